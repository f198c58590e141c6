/* The CUDA driver: kernels. They come as cubin, and what is asked about one is read from it. */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <cuda.h>
#include <cuda_occupancy.h>
#include <string.h>

/* A module in memory says nowhere how long it is. */
static int load_image(void **module, const void *image) {
  return stub_module_of((struct stub_module **)module, image, PTRDIFF_MAX);
}
static int load_file(void **module, const char *path) {
  return stub_module_at((struct stub_module **)module, path);
}
STUB_API(int, cuModuleLoadData, void **module, const void *image) {
  return load_image(module, image);
}
STUB_API(int, cuModuleLoadDataEx, void **module, const void *image) {
  return load_image(module, image);
}
STUB_API(int, cuModuleLoad, void **module, const char *path) { return load_file(module, path); }
STUB_API(int, cuModuleUnload, void *module) {
  stub_module_end(module);
  return STUB_OK;
}
STUB_API(int, cuModuleGetFunction, void **function, void *module, const char *name) {
  *function = stub_function_named(module, name);
  return *function ? STUB_OK : stub_fail(STUB_NOT_FOUND, "named symbol not found: %s", name);
}
STUB_API(int, cuModuleGetFunctionCount, unsigned *count, void *module) {
  *count = (unsigned)stub_function_count(module);
  return STUB_OK;
}
STUB_API(int, cuModuleGetGlobal_v2, CUdeviceptr *pointer, size_t *bytes, void *module,
         const char *name) {
  void *memory = 0;
  int code = stub_variable(module, name, &memory, bytes);
  if (pointer) *pointer = (CUdeviceptr)memory;
  return code;
}
/* Libraries, which torch's newer launchers take in place of modules. A kernel is its function. */
STUB_API(int, cuLibraryLoadData, void **library, const void *image) {
  return load_image(library, image);
}
STUB_API(int, cuLibraryLoadFromFile, void **library, const char *path) {
  return load_file(library, path);
}
STUB_API(int, cuLibraryUnload, void *library) { return stub_cuModuleUnload(library); }
STUB_API(int, cuLibraryGetKernel, void **kernel, void *library, const char *name) {
  return stub_cuModuleGetFunction(kernel, library, name);
}
STUB_API(int, cuLibraryGetModule, void **module, void *library) {
  *module = library;
  return STUB_OK;
}
STUB_API(int, cuKernelGetFunction, void **function, void *kernel) {
  *function = kernel;
  return STUB_OK;
}

STUB_API(int, cuFuncGetAttribute, int *value, int attribute, void *handle) {
  const struct stub_function *function = handle;
  if (!function) return stub_fail(STUB_INVALID_HANDLE, "invalid resource handle");
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = function->threads;
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = function->shared;
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = function->constant;
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = function->local;
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = function->registers;
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = stub_value(75) * 10 + stub_value(76);
      return STUB_OK;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = stub_value(8);
      return STUB_OK;
    default:
      stub_note("cuFuncGetAttribute");
      *value = 0;
      return STUB_OK;
  }
}
STUB_API(int, cuFuncSetAttribute, void *function, int attribute, int value) {
  /* As the driver does: a kernel gets no more shared memory than the GPU can give. */
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > stub_value(97))
    return stub_fail(STUB_INVALID_VALUE, "invalid argument: %d bytes of shared memory, of %d",
                     value, stub_value(97));
  return STUB_OK;
}
STUB_API(int, cuFuncSetCacheConfig, void *function, int config) { return STUB_OK; }
STUB_API(int, cuFuncGetName, const char **name, void *function) {
  *name = ((struct stub_function *)function)->name;
  return STUB_OK;
}
STUB_API(int, cuKernelGetAttribute, int *value, int attribute, void *kernel, int device) {
  return stub_cuFuncGetAttribute(value, attribute, kernel);
}
STUB_API(int, cuKernelSetAttribute, int attribute, int value, void *kernel, int device) {
  return stub_cuFuncSetAttribute(kernel, attribute, value);
}
static int launch(void) {
  int code = stub_device(stub_current());
  if (!code) stub_launched();
  return code;
}
STUB_API(int, cuLaunchKernel, void *function) { return launch(); }
STUB_API(int, cuLaunchKernelEx, const void *configuration, void *function) { return launch(); }
STUB_API(int, cuLaunchCooperativeKernel, void *function) { return launch(); }
/* By NVIDIA's own formula, from the registers and the memory that the kernel's file names. */
static int occupancy(int *blocks, const struct stub_function *function, int threads,
                     size_t shared) {
  cudaOccDeviceProp gpu = {.computeMajor = stub_value(75),
                           .computeMinor = stub_value(76),
                           .maxThreadsPerBlock = stub_value(1),
                           .maxThreadsPerMultiprocessor = stub_value(39),
                           .regsPerBlock = stub_value(12),
                           .regsPerMultiprocessor = stub_value(82),
                           .warpSize = stub_value(10),
                           .sharedMemPerBlock = (size_t)stub_value(8),
                           .sharedMemPerMultiprocessor = (size_t)stub_value(81),
                           .numSms = stub_value(16),
                           .sharedMemPerBlockOptin = (size_t)stub_value(97),
                           .reservedSharedMemPerBlock = (size_t)stub_value(111)};
  cudaOccFuncAttributes kernel = {.maxThreadsPerBlock = function->threads,
                                  .numRegs = function->registers,
                                  .sharedSizeBytes = (size_t)function->shared,
                                  .partitionedGCConfig = PARTITIONED_GC_OFF,
                                  .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
                                  .maxDynamicSharedSizeBytes = (size_t)stub_value(97)};
  cudaOccDeviceState state = {.cacheConfig = CACHE_PREFER_NONE,
                              .carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT};
  cudaOccResult found;
  int unknown = 0;
  if (!stub_attribute(111, &unknown) || !stub_attribute(81, &unknown) ||
      cudaOccMaxActiveBlocksPerMultiprocessor(&found, &gpu, &kernel, &state, threads, shared))
    return stub_refused("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = found.activeBlocksPerMultiprocessor;
  return STUB_OK;
}
STUB_API(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *function,
         int threads, size_t shared) {
  return occupancy(blocks, function, threads, shared);
}
STUB_API(int, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks, void *function,
         int threads, size_t shared, unsigned flags) {
  return occupancy(blocks, function, threads, shared);
}
/* Opaque to all but a kernel, which does not run. */
STUB_API(int, cuTensorMapEncodeTiled, void *map) {
  memset(map, 0, 128);
  return STUB_OK;
}
STUB_API(int, cuTensorMapEncodeIm2col, void *map) {
  memset(map, 0, 128);
  return STUB_OK;
}
