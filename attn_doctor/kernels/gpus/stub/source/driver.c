/* The CUDA driver: what Triton, Inductor's launcher and torch's allocator call. Devices, contexts,
 * streams and events. What is in none of the driver's files is refused by name (stubs.py).
 */
#define _GNU_SOURCE
#include "null.h"

#include <cuda.h>
#include <stdio.h>

/* Devices and contexts */

NULL_API(int, cuInit, unsigned flags) { return null_device(0); }
NULL_API(int, cuDriverGetVersion, int *version) {
  *version = null_target()->driver ? null_target()->driver : CUDA_VERSION;
  return NULL_OK;
}
NULL_API(int, cuDeviceGetCount, int *count) {
  *count = null_visible();
  return NULL_OK;
}
NULL_API(int, cuDeviceGet, int *device, int ordinal) {
  *device = ordinal;
  return null_device(ordinal);
}
NULL_API(int, cuDeviceGetName, char *name, int size, int device) {
  snprintf(name, (size_t)size, "%s", null_target()->name);
  return null_device(device);
}
NULL_API(int, cuDeviceGetAttribute, int *value, int number, int device) {
  int domain, bus, slot, code = null_device(device);
  if (code) return code;
  null_bus(null_physical(device), &domain, &bus, &slot);
  if (number == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
    *value = bus;
  else if (number == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
    *value = slot;
  else if (number == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
    *value = domain;
  else if (!null_attribute(number, value)) {
    null_note("cuDeviceGetAttribute");
    return null_fail(NULL_INVALID_VALUE, "the target's descriptor does not tell attribute %d",
                     number);
  }
  return NULL_OK;
}
NULL_API(int, cuDeviceTotalMem_v2, size_t *bytes, int device) {
  *bytes = null_target()->memory;
  return null_device(device);
}
NULL_API(int, cuDeviceGetUuid, void *uuid, int device) {
  null_uuid(null_physical(device), uuid);
  return null_device(device);
}
NULL_API(int, cuDeviceGetUuid_v2, void *uuid, int device) {
  null_uuid(null_physical(device), uuid);
  return null_device(device);
}
NULL_API(int, cuDeviceGetPCIBusId, char *text, int size, int device) {
  int domain, bus, slot, code = null_device(device);
  null_bus(null_physical(device), &domain, &bus, &slot);
  snprintf(text, (size_t)size, "%08X:%02X:%02X.0", domain, bus, slot);
  return code;
}
NULL_API(int, cuDeviceCanAccessPeer, int *can, int device, int peer) {
  *can = 0;
  return null_device(device) ? null_device(device) : null_device(peer);
}
NULL_API(int, cuDevicePrimaryCtxRetain, void **context, int device) {
  int code = null_device(device);
  *context = code ? 0 : (void *)(uintptr_t)(NULL_CONTEXT + device);
  if (!code) null_touch(device);
  return code;
}
NULL_API(int, cuDevicePrimaryCtxRelease_v2, int device) { return null_device(device); }
NULL_API(int, cuDevicePrimaryCtxReset_v2, int device) { return null_device(device); }
NULL_API(int, cuDevicePrimaryCtxSetFlags_v2, int device, unsigned flags) {
  return null_device(device);
}
NULL_API(int, cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
  if (flags) *flags = 0;
  if (active) *active = null_touched(device);
  return null_device(device);
}
NULL_API(int, cuCtxGetCurrent, void **context) {
  int device = null_current();
  *context = null_touched(device) ? (void *)(uintptr_t)(NULL_CONTEXT + device) : 0;
  return NULL_OK;
}
NULL_API(int, cuCtxSetCurrent, void *context) {
  return context ? null_set_current((int)((uintptr_t)context - NULL_CONTEXT)) : NULL_OK;
}
/* Contexts below the current one, of this thread. */
static __thread int stack[16];
static __thread int depth;
NULL_API(int, cuCtxPushCurrent_v2, void *context) {
  if (depth == 16) return null_fail(NULL_INVALID_VALUE, "too many contexts");
  stack[depth++] = null_current();
  return null_cuCtxSetCurrent(context);
}
NULL_API(int, cuCtxPopCurrent_v2, void **context) {
  if (context) *context = (void *)(uintptr_t)(NULL_CONTEXT + null_current());
  return depth ? null_set_current(stack[--depth]) : NULL_OK;
}
NULL_API(int, cuCtxGetDevice, int *device) {
  *device = null_current();
  return null_device(*device);
}
NULL_API(int, cuCtxGetDevice_v2, int *device, void *context) {
  *device = context ? (int)((uintptr_t)context - NULL_CONTEXT) : null_current();
  return null_device(*device);
}
NULL_API(int, cuCtxSynchronize, void) { return NULL_OK; }
NULL_API(int, cuCtxSynchronize_v2, void *context) { return NULL_OK; }
NULL_API(int, cuCtxGetLimit, size_t *value, int limit) {
  return null_limit(limit, value) ? NULL_OK : null_refused("cuCtxGetLimit");
}
NULL_API(int, cuCtxSetLimit, int limit, size_t value) { return null_set_limit(limit, value); }
NULL_API(int, cuCtxGetStreamPriorityRange, int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return NULL_OK;
}
NULL_API(int, cuGetErrorString, int code, const char **text) {
  *text = null_words(code);
  return NULL_OK;
}
NULL_API(int, cuGetErrorName, int code, const char **text) {
  *text = null_error_name(code);
  return NULL_OK;
}

/* Streams and events */

NULL_API(int, cuStreamCreate, void **stream, unsigned flags) {
  *stream = null_handle();
  return null_device(null_current());
}
NULL_API(int, cuStreamCreateWithPriority, void **stream, unsigned flags, int priority) {
  return null_cuStreamCreate(stream, flags);
}
NULL_API(int, cuStreamDestroy_v2, void *stream) { return NULL_OK; }
NULL_API(int, cuStreamSynchronize, void *stream) { return NULL_OK; }
NULL_API(int, cuStreamQuery, void *stream) { return NULL_OK; }
NULL_API(int, cuStreamWaitEvent, void *stream, void *event, unsigned flags) { return NULL_OK; }
NULL_API(int, cuStreamGetCtx, void *stream, void **context) {
  *context = (void *)(uintptr_t)(NULL_CONTEXT + null_current());
  return NULL_OK;
}
NULL_API(int, cuStreamIsCapturing, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cuStreamGetCaptureInfo_v2, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cuStreamGetCaptureInfo_v3, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cuLaunchHostFunc, void *stream, void (*call)(void *), void *data) {
  call(data);
  return NULL_OK;
}
NULL_API(int, cuEventCreate, void **event, unsigned flags) {
  return null_cuStreamCreate(event, flags);
}
NULL_API(int, cuEventDestroy_v2, void *event) { return NULL_OK; }
NULL_API(int, cuEventRecord, void *event, void *stream) { return NULL_OK; }
NULL_API(int, cuEventRecordWithFlags, void *event, void *stream, unsigned flags) {
  return NULL_OK;
}
NULL_API(int, cuEventQuery, void *event) { return NULL_OK; }
NULL_API(int, cuEventSynchronize, void *event) { return NULL_OK; }
NULL_API(int, cuEventElapsedTime, float *milliseconds, void *start, void *end) {
  *milliseconds = 0.1f;
  return null_timing("cuEventElapsedTime");
}
NULL_API(int, cuEventElapsedTime_v2, float *milliseconds, void *start, void *end) {
  return null_cuEventElapsedTime(milliseconds, start, end);
}

/* Functions by name, whatever version of CUDA the caller was built for */

NULL_API(int, cuGetProcAddress, const char *name, void **pointer, int version, uint64_t flags) {
  *pointer = null_entry(name);
  return *pointer ? NULL_OK : null_fail(NULL_NOT_FOUND, "named symbol not found: %s", name);
}
NULL_API(int, cuGetProcAddress_v2, const char *name, void **pointer, int version, uint64_t flags,
         int *found) {
  *pointer = null_entry(name);
  if (found) *found = *pointer ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
  return *pointer ? NULL_OK : null_fail(NULL_NOT_FOUND, "named symbol not found: %s", name);
}
