/* The CUDA runtime: what torch's own libraries call. Devices and errors.
 *
 * Prototypes hold for CUDA 12 and 13; layouts of structures come from the headers of the environment
 * that is built for. What is in none of the runtime's files is refused by name (generated.py).
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <cuda.h> /* for CUDA_VERSION */
#include <driver_types.h>
#include <stdio.h>
#include <string.h>

static __thread int last;

int stub_done(int code) {
  if (code) last = code;
  return code;
}

int stub_runtime_refused(const char *function) { return stub_done(stub_refused(function)); }

/* Errors */

STUB_API(int, cudaGetLastError, void) {
  int code = last;
  last = 0;
  return code;
}
STUB_API(int, cudaPeekAtLastError, void) { return last; }
STUB_API(const char *, cudaGetErrorString, int code) { return stub_words(code); }
STUB_API(const char *, cudaGetErrorName, int code) { return stub_error_name(code); }

/* Devices */

STUB_API(int, cudaGetDeviceCount, int *count) {
  *count = stub_visible();
  return stub_done(*count ? STUB_OK : stub_device(0));
}
STUB_API(int, cudaGetDevice, int *device) {
  *device = stub_current();
  return stub_done(stub_device(0));
}
STUB_API(int, cudaSetDevice, int device) {
  int code = stub_set_current(device);
  if (!code) stub_touch(device); /* since CUDA 12 this makes the device's context */
  return stub_done(code);
}
STUB_API(int, cudaInitDevice, int device, unsigned flags, unsigned more) {
  int code = stub_device(device);
  if (!code) stub_touch(device);
  return stub_done(code);
}
STUB_API(int, cudaSetValidDevices, int *devices, int count) { return STUB_OK; }
STUB_API(int, cudaSetDeviceFlags, unsigned flags) { return STUB_OK; }
STUB_API(int, cudaGetDeviceFlags, unsigned *flags) {
  *flags = 0;
  return STUB_OK;
}
STUB_API(int, cudaChooseDevice, int *device, const void *wanted) {
  *device = 0;
  return stub_done(stub_device(0));
}
STUB_API(int, cudaDeviceReset, void) { return STUB_OK; }
STUB_API(int, cudaDeviceSynchronize, void) { return stub_done(stub_device(0)); }

static int properties(struct cudaDeviceProp *p, int device) {
  int domain, bus, slot, code = stub_device(device);
  unsigned char uuid[16];
  if (code) return stub_done(code);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", stub_target()->name);
  stub_uuid(stub_physical(device), uuid);
  memcpy(&p->uuid, uuid, sizeof uuid);
  stub_bus(stub_physical(device), &domain, &bus, &slot);
  p->pciDomainID = domain;
  p->pciBusID = bus;
  p->pciDeviceID = slot;
  p->totalGlobalMem = stub_target()->memory;
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
    *integers[i].field = stub_value(integers[i].number);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    *sizes[i].field = (size_t)stub_value(sizes[i].number);
  return STUB_OK;
}
STUB_API(int, cudaGetDeviceProperties, struct cudaDeviceProp *p, int device) {
#if CUDA_VERSION < 13000
  /* In CUDA 12 this name has the shorter structure of CUDA 11, and no program built for 12 calls it. */
  return stub_done(stub_refused("cudaGetDeviceProperties"));
#else
  return properties(p, device);
#endif
}
STUB_API(int, cudaGetDeviceProperties_v2, struct cudaDeviceProp *p, int device) {
  return properties(p, device);
}
STUB_API(int, cudaDeviceGetAttribute, int *value, int number, int device) {
  int domain, bus, slot, code = stub_device(device);
  if (code) return stub_done(code);
  stub_bus(stub_physical(device), &domain, &bus, &slot);
  if (number == cudaDevAttrPciBusId || number == cudaDevAttrPciDeviceId ||
      number == cudaDevAttrPciDomainId) {
    *value = number == cudaDevAttrPciBusId ? bus : number == cudaDevAttrPciDeviceId ? slot : domain;
    return STUB_OK;
  }
  if (stub_attribute(number, value)) return STUB_OK;
  stub_note("cudaDeviceGetAttribute");
  return stub_done(stub_fail(STUB_INVALID_VALUE,
                        "the target's descriptor has no attribute %d", number));
}
STUB_API(int, cudaDeviceGetPCIBusId, char *text, int size, int device) {
  int domain, bus, slot, code = stub_device(device);
  if (code) return stub_done(code);
  stub_bus(stub_physical(device), &domain, &bus, &slot);
  snprintf(text, (size_t)size, "%08X:%02X:%02X.0", domain, bus, slot);
  return STUB_OK;
}
STUB_API(int, cudaDeviceGetByPCIBusId, int *device, const char *text) {
  unsigned domain, bus, slot;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3)
    for (int i = 0; i < stub_visible(); i++)
      if (stub_physical(i) + 1 == (int)bus) {
        *device = i;
        return STUB_OK;
      }
  return stub_done(stub_fail(STUB_INVALID_DEVICE, "invalid device ordinal: %s", text));
}
STUB_API(int, cudaDriverGetVersion, int *version) {
  *version = stub_target()->driver ? stub_target()->driver : CUDA_VERSION;
  return STUB_OK;
}
STUB_API(int, cudaRuntimeGetVersion, int *version) {
  *version = CUDA_VERSION;
  return STUB_OK;
}
STUB_API(int, cudaDeviceGetStreamPriorityRange, int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return STUB_OK;
}
STUB_API(int, cudaDeviceCanAccessPeer, int *can, int device, int peer) {
  *can = 0;
  return stub_done(stub_device(device) ? stub_device(device) : stub_device(peer));
}
STUB_API(int, cudaDeviceGetLimit, size_t *value, int limit) {
  return stub_done(stub_limit(limit, value) ? STUB_OK : stub_refused("cudaDeviceGetLimit"));
}
STUB_API(int, cudaDeviceSetLimit, int limit, size_t value) {
  return stub_done(stub_set_limit(limit, value));
}
STUB_API(int, cudaDeviceGetCacheConfig, int *config) {
  *config = 0;
  return STUB_OK;
}
STUB_API(int, cudaDeviceSetCacheConfig, int config) { return STUB_OK; }
STUB_API(int, cudaCtxResetPersistingL2Cache, void) { return STUB_OK; }

STUB_API(int, cudaProfilerStart, void) { return STUB_OK; }
STUB_API(int, cudaProfilerStop, void) { return STUB_OK; }

/* The driver's functions by name */

static int entry(const char *name, void **pointer, int *found) {
  *pointer = stub_entry(name);
  if (found) *found = *pointer ? 0 : 1; /* cudaDriverEntryPointSymbolNotFound */
  return STUB_OK;
}
STUB_API(int, cudaGetDriverEntryPoint, const char *name, void **pointer, unsigned long long flags,
         int *found) {
  return entry(name, pointer, found);
}
STUB_API(int, cudaGetDriverEntryPointByVersion, const char *name, void **pointer, unsigned version,
         unsigned long long flags, int *found) {
  return entry(name, pointer, found);
}
