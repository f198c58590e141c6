/* The CUDA runtime: what torch's own libraries call. Devices and errors.
 *
 * Prototypes hold for CUDA 12 and 13; layouts of structures come from the headers of the environment
 * that is built for. What is in none of the runtime's files is refused by name (stubs.py).
 */
#define _GNU_SOURCE
#include "null.h"

#include <cuda.h> /* for CUDA_VERSION */
#include <driver_types.h>
#include <stdio.h>
#include <string.h>

static __thread int last;

int null_done(int code) {
  if (code) last = code;
  return code;
}

int null_runtime_refused(const char *function) { return null_done(null_refused(function)); }

/* Errors */

NULL_API(int, cudaGetLastError, void) {
  int code = last;
  last = 0;
  return code;
}
NULL_API(int, cudaPeekAtLastError, void) { return last; }
NULL_API(const char *, cudaGetErrorString, int code) { return null_words(code); }
NULL_API(const char *, cudaGetErrorName, int code) { return null_error_name(code); }

/* Devices */

NULL_API(int, cudaGetDeviceCount, int *count) {
  *count = null_visible();
  return null_done(*count ? NULL_OK : null_device(0));
}
NULL_API(int, cudaGetDevice, int *device) {
  *device = null_current();
  return null_done(null_device(0));
}
NULL_API(int, cudaSetDevice, int device) {
  int code = null_set_current(device);
  if (!code) null_touch(device); /* since CUDA 12 this makes the device's context */
  return null_done(code);
}
NULL_API(int, cudaInitDevice, int device, unsigned flags, unsigned more) {
  int code = null_device(device);
  if (!code) null_touch(device);
  return null_done(code);
}
NULL_API(int, cudaSetValidDevices, int *devices, int count) { return NULL_OK; }
NULL_API(int, cudaSetDeviceFlags, unsigned flags) { return NULL_OK; }
NULL_API(int, cudaGetDeviceFlags, unsigned *flags) {
  *flags = 0;
  return NULL_OK;
}
NULL_API(int, cudaChooseDevice, int *device, const void *wanted) {
  *device = 0;
  return null_done(null_device(0));
}
NULL_API(int, cudaDeviceReset, void) { return NULL_OK; }
NULL_API(int, cudaDeviceSynchronize, void) { return null_done(null_device(0)); }

static int properties(struct cudaDeviceProp *p, int device) {
  int domain, bus, slot, code = null_device(device);
  unsigned char uuid[16];
  if (code) return null_done(code);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", null_target()->name);
  null_uuid(null_physical(device), uuid);
  memcpy(&p->uuid, uuid, sizeof uuid);
  null_bus(null_physical(device), &domain, &bus, &slot);
  p->pciDomainID = domain;
  p->pciBusID = bus;
  p->pciDeviceID = slot;
  p->totalGlobalMem = null_target()->memory;
  const struct {
    int *field, number;
  } integers[] = {
      {&p->regsPerBlock, 12},
      {&p->warpSize, 10},
      {&p->maxThreadsPerBlock, 1},
      {&p->maxThreadsDim[0], 2},
      {&p->maxThreadsDim[1], 3},
      {&p->maxThreadsDim[2], 4},
      {&p->maxGridSize[0], 5},
      {&p->maxGridSize[1], 6},
      {&p->maxGridSize[2], 7},
      {&p->major, 75},
      {&p->minor, 76},
      {&p->multiProcessorCount, 16},
      {&p->integrated, 18},
      {&p->canMapHostMemory, 19},
      {&p->concurrentKernels, 31},
      {&p->ECCEnabled, 32},
      {&p->asyncEngineCount, 40},
      {&p->unifiedAddressing, 41},
      {&p->memoryBusWidth, 37},
      {&p->l2CacheSize, 38},
      {&p->persistingL2CacheMaxSize, 108},
      {&p->maxThreadsPerMultiProcessor, 39},
      {&p->streamPrioritiesSupported, 78},
      {&p->globalL1CacheSupported, 79},
      {&p->localL1CacheSupported, 80},
      {&p->regsPerMultiprocessor, 82},
      {&p->isMultiGpuBoard, 84},
      {&p->multiGpuBoardGroupID, 85},
      {&p->hostNativeAtomicSupported, 86},
      {&p->computePreemptionSupported, 90},
      {&p->canUseHostPointerForRegisteredMem, 91},
      {&p->cooperativeLaunch, 95},
      {&p->maxBlocksPerMultiProcessor, 106},
      {&p->accessPolicyMaxWindowSize, 109},
      {&p->hostRegisterSupported, 99},
      {&p->memoryPoolsSupported, 115},
      {&p->clusterLaunch, 120},
      {&p->unifiedFunctionPointers, 129},
#if CUDA_VERSION < 13000
      {&p->singleToDoublePrecisionPerfRatio, 87},
      {&p->clockRate, 13},
      {&p->memoryClockRate, 36},
#endif
  };
  const struct {
    size_t *field;
    int number;
  } sizes[] = {
      {&p->sharedMemPerBlock, 8},          {&p->memPitch, 11},
      {&p->totalConstMem, 9},              {&p->textureAlignment, 14},
      {&p->texturePitchAlignment, 51},     {&p->sharedMemPerMultiprocessor, 81},
      {&p->sharedMemPerBlockOptin, 97},    {&p->reservedSharedMemPerBlock, 111},
  };
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
    *integers[i].field = null_value(integers[i].number);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    *sizes[i].field = (size_t)null_value(sizes[i].number);
  return NULL_OK;
}
NULL_API(int, cudaGetDeviceProperties, struct cudaDeviceProp *p, int device) {
#if CUDA_VERSION < 13000
  /* In CUDA 12 this name has the shorter structure of CUDA 11, and nobody built for 12 calls it. */
  return null_done(null_refused("cudaGetDeviceProperties"));
#else
  return properties(p, device);
#endif
}
NULL_API(int, cudaGetDeviceProperties_v2, struct cudaDeviceProp *p, int device) {
  return properties(p, device);
}
NULL_API(int, cudaDeviceGetAttribute, int *value, int number, int device) {
  int domain, bus, slot, code = null_device(device);
  if (code) return null_done(code);
  null_bus(null_physical(device), &domain, &bus, &slot);
  if (number == cudaDevAttrPciBusId || number == cudaDevAttrPciDeviceId ||
      number == cudaDevAttrPciDomainId) {
    *value = number == cudaDevAttrPciBusId ? bus : number == cudaDevAttrPciDeviceId ? slot : domain;
    return NULL_OK;
  }
  if (null_attribute(number, value)) return NULL_OK;
  null_note("cudaDeviceGetAttribute");
  return null_done(null_fail(NULL_INVALID_VALUE,
                        "the target's descriptor does not tell attribute %d", number));
}
NULL_API(int, cudaDeviceGetPCIBusId, char *text, int size, int device) {
  int domain, bus, slot, code = null_device(device);
  if (code) return null_done(code);
  null_bus(null_physical(device), &domain, &bus, &slot);
  snprintf(text, (size_t)size, "%08X:%02X:%02X.0", domain, bus, slot);
  return NULL_OK;
}
NULL_API(int, cudaDeviceGetByPCIBusId, int *device, const char *text) {
  unsigned domain, bus, slot;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3)
    for (int i = 0; i < null_visible(); i++)
      if (null_physical(i) + 1 == (int)bus) {
        *device = i;
        return NULL_OK;
      }
  return null_done(null_fail(NULL_INVALID_DEVICE, "invalid device ordinal: %s", text));
}
NULL_API(int, cudaDriverGetVersion, int *version) {
  *version = null_target()->driver ? null_target()->driver : CUDA_VERSION;
  return NULL_OK;
}
NULL_API(int, cudaRuntimeGetVersion, int *version) {
  *version = CUDA_VERSION;
  return NULL_OK;
}
NULL_API(int, cudaDeviceGetStreamPriorityRange, int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return NULL_OK;
}
NULL_API(int, cudaDeviceCanAccessPeer, int *can, int device, int peer) {
  *can = 0;
  return null_done(null_device(device) ? null_device(device) : null_device(peer));
}
NULL_API(int, cudaDeviceGetLimit, size_t *value, int limit) {
  return null_done(null_limit(limit, value) ? NULL_OK : null_refused("cudaDeviceGetLimit"));
}
NULL_API(int, cudaDeviceSetLimit, int limit, size_t value) {
  return null_done(null_set_limit(limit, value));
}
NULL_API(int, cudaDeviceGetCacheConfig, int *config) {
  *config = 0;
  return NULL_OK;
}
NULL_API(int, cudaDeviceSetCacheConfig, int config) { return NULL_OK; }
NULL_API(int, cudaCtxResetPersistingL2Cache, void) { return NULL_OK; }

NULL_API(int, cudaProfilerStart, void) { return NULL_OK; }
NULL_API(int, cudaProfilerStop, void) { return NULL_OK; }

/* The driver's functions by name */

static int entry(const char *name, void **pointer, int *found) {
  *pointer = null_entry(name);
  if (found) *found = *pointer ? 0 : 1; /* cudaDriverEntryPointSymbolNotFound */
  return NULL_OK;
}
NULL_API(int, cudaGetDriverEntryPoint, const char *name, void **pointer, unsigned long long flags,
         int *found) {
  return entry(name, pointer, found);
}
NULL_API(int, cudaGetDriverEntryPointByVersion, const char *name, void **pointer, unsigned version,
         unsigned long long flags, int *found) {
  return entry(name, pointer, found);
}
