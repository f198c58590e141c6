/* The CUDA driver: what Triton, Inductor's launcher and torch's allocator call. Devices, contexts,
 * streams and events. What is in none of the driver's files is refused by name (generated.py).
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <cuda.h>
#include <stdio.h>

/* Devices and contexts */

STUB_API(int, cuInit, unsigned flags) { return stub_device(0); }
STUB_API(int, cuDriverGetVersion, int *version) {
  *version = stub_target()->driver ? stub_target()->driver : CUDA_VERSION;
  return STUB_OK;
}
STUB_API(int, cuDeviceGetCount, int *count) {
  *count = stub_visible();
  return STUB_OK;
}
STUB_API(int, cuDeviceGet, int *device, int ordinal) {
  *device = ordinal;
  return stub_device(ordinal);
}
STUB_API(int, cuDeviceGetName, char *name, int size, int device) {
  snprintf(name, (size_t)size, "%s", stub_target()->name);
  return stub_device(device);
}
STUB_API(int, cuDeviceGetAttribute, int *value, int number, int device) {
  int domain, bus, slot, code = stub_device(device);
  if (code) return code;
  stub_bus(stub_physical(device), &domain, &bus, &slot);
  if (number == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
    *value = bus;
  else if (number == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
    *value = slot;
  else if (number == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
    *value = domain;
  else if (!stub_attribute(number, value)) {
    stub_note("cuDeviceGetAttribute");
    return stub_fail(STUB_INVALID_VALUE, "the target's descriptor has no attribute %d",
                     number);
  }
  return STUB_OK;
}
STUB_API(int, cuDeviceTotalMem_v2, size_t *bytes, int device) {
  *bytes = stub_target()->memory;
  return stub_device(device);
}
STUB_API(int, cuDeviceGetUuid, void *uuid, int device) {
  stub_uuid(stub_physical(device), uuid);
  return stub_device(device);
}
STUB_API(int, cuDeviceGetUuid_v2, void *uuid, int device) {
  stub_uuid(stub_physical(device), uuid);
  return stub_device(device);
}
STUB_API(int, cuDeviceGetPCIBusId, char *text, int size, int device) {
  int domain, bus, slot, code = stub_device(device);
  stub_bus(stub_physical(device), &domain, &bus, &slot);
  snprintf(text, (size_t)size, "%08X:%02X:%02X.0", domain, bus, slot);
  return code;
}
STUB_API(int, cuDeviceCanAccessPeer, int *can, int device, int peer) {
  *can = 0;
  return stub_device(device) ? stub_device(device) : stub_device(peer);
}
STUB_API(int, cuDevicePrimaryCtxRetain, void **context, int device) {
  int code = stub_device(device);
  *context = code ? 0 : (void *)(uintptr_t)(STUB_CONTEXT + device);
  if (!code) stub_touch(device);
  return code;
}
STUB_API(int, cuDevicePrimaryCtxRelease_v2, int device) { return stub_device(device); }
STUB_API(int, cuDevicePrimaryCtxReset_v2, int device) { return stub_device(device); }
STUB_API(int, cuDevicePrimaryCtxSetFlags_v2, int device, unsigned flags) {
  return stub_device(device);
}
STUB_API(int, cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
  if (flags) *flags = 0;
  if (active) *active = stub_touched(device);
  return stub_device(device);
}
STUB_API(int, cuCtxGetCurrent, void **context) {
  int device = stub_current();
  *context = stub_touched(device) ? (void *)(uintptr_t)(STUB_CONTEXT + device) : 0;
  return STUB_OK;
}
STUB_API(int, cuCtxSetCurrent, void *context) {
  return context ? stub_set_current((int)((uintptr_t)context - STUB_CONTEXT)) : STUB_OK;
}
/* Contexts below the current one, of this thread. */
static __thread int stack[16];
static __thread int depth;
STUB_API(int, cuCtxPushCurrent_v2, void *context) {
  if (depth == 16) return stub_fail(STUB_INVALID_VALUE, "too many contexts");
  stack[depth++] = stub_current();
  return stub_cuCtxSetCurrent(context);
}
STUB_API(int, cuCtxPopCurrent_v2, void **context) {
  if (context) *context = (void *)(uintptr_t)(STUB_CONTEXT + stub_current());
  return depth ? stub_set_current(stack[--depth]) : STUB_OK;
}
STUB_API(int, cuCtxGetDevice, int *device) {
  *device = stub_current();
  return stub_device(*device);
}
STUB_API(int, cuCtxGetDevice_v2, int *device, void *context) {
  *device = context ? (int)((uintptr_t)context - STUB_CONTEXT) : stub_current();
  return stub_device(*device);
}
STUB_API(int, cuCtxSynchronize, void) { return STUB_OK; }
STUB_API(int, cuCtxSynchronize_v2, void *context) { return STUB_OK; }
STUB_API(int, cuCtxGetLimit, size_t *value, int limit) {
  return stub_limit(limit, value) ? STUB_OK : stub_refused("cuCtxGetLimit");
}
STUB_API(int, cuCtxSetLimit, int limit, size_t value) { return stub_set_limit(limit, value); }
STUB_API(int, cuCtxGetStreamPriorityRange, int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return STUB_OK;
}
STUB_API(int, cuGetErrorString, int code, const char **text) {
  *text = stub_words(code);
  return STUB_OK;
}
STUB_API(int, cuGetErrorName, int code, const char **text) {
  *text = stub_error_name(code);
  return STUB_OK;
}

/* Streams and events */

STUB_API(int, cuStreamCreate, void **stream, unsigned flags) {
  *stream = stub_handle();
  return stub_device(stub_current());
}
STUB_API(int, cuStreamCreateWithPriority, void **stream, unsigned flags, int priority) {
  return stub_cuStreamCreate(stream, flags);
}
STUB_API(int, cuStreamDestroy_v2, void *stream) { return STUB_OK; }
STUB_API(int, cuStreamSynchronize, void *stream) { return STUB_OK; }
STUB_API(int, cuStreamQuery, void *stream) { return STUB_OK; }
STUB_API(int, cuStreamWaitEvent, void *stream, void *event, unsigned flags) { return STUB_OK; }
STUB_API(int, cuStreamGetCtx, void *stream, void **context) {
  *context = (void *)(uintptr_t)(STUB_CONTEXT + stub_current());
  return STUB_OK;
}
STUB_API(int, cuStreamIsCapturing, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cuStreamGetCaptureInfo_v2, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cuStreamGetCaptureInfo_v3, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cuLaunchHostFunc, void *stream, void (*call)(void *), void *data) {
  call(data);
  return STUB_OK;
}
STUB_API(int, cuEventCreate, void **event, unsigned flags) {
  return stub_cuStreamCreate(event, flags);
}
STUB_API(int, cuEventDestroy_v2, void *event) { return STUB_OK; }
STUB_API(int, cuEventRecord, void *event, void *stream) { return STUB_OK; }
STUB_API(int, cuEventRecordWithFlags, void *event, void *stream, unsigned flags) {
  return STUB_OK;
}
STUB_API(int, cuEventQuery, void *event) { return STUB_OK; }
STUB_API(int, cuEventSynchronize, void *event) { return STUB_OK; }
STUB_API(int, cuEventElapsedTime, float *milliseconds, void *start, void *end) {
  *milliseconds = 0.1f;
  return stub_timing("cuEventElapsedTime");
}
STUB_API(int, cuEventElapsedTime_v2, float *milliseconds, void *start, void *end) {
  return stub_cuEventElapsedTime(milliseconds, start, end);
}

/* Functions by name, whatever version of CUDA the caller was built for */

STUB_API(int, cuGetProcAddress, const char *name, void **pointer, int version, uint64_t flags) {
  *pointer = stub_entry(name);
  return *pointer ? STUB_OK : stub_fail(STUB_NOT_FOUND, "named symbol not found: %s", name);
}
STUB_API(int, cuGetProcAddress_v2, const char *name, void **pointer, int version, uint64_t flags,
         int *found) {
  *pointer = stub_entry(name);
  if (found) *found = *pointer ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
  return *pointer ? STUB_OK : stub_fail(STUB_NOT_FOUND, "named symbol not found: %s", name);
}
