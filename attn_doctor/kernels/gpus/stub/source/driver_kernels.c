/* The CUDA driver: kernels. They come as cubin, and what is asked about one is read from it. */
#define _GNU_SOURCE
#include "null.h"

#include <cuda.h>
#include <cuda_occupancy.h>
#include <string.h>

/* A module in memory says nowhere how long it is. */
static int load_image(void **module, const void *image) {
  return null_module_of((struct null_module **)module, image, PTRDIFF_MAX);
}
static int load_file(void **module, const char *path) {
  return null_module_at((struct null_module **)module, path);
}
NULL_API(int, cuModuleLoadData, void **module, const void *image) {
  return load_image(module, image);
}
NULL_API(int, cuModuleLoadDataEx, void **module, const void *image) {
  return load_image(module, image);
}
NULL_API(int, cuModuleLoad, void **module, const char *path) { return load_file(module, path); }
NULL_API(int, cuModuleUnload, void *module) {
  null_module_end(module);
  return NULL_OK;
}
NULL_API(int, cuModuleGetFunction, void **function, void *module, const char *name) {
  *function = null_function_named(module, name);
  return *function ? NULL_OK : null_fail(NULL_NOT_FOUND, "named symbol not found: %s", name);
}
NULL_API(int, cuModuleGetFunctionCount, unsigned *count, void *module) {
  *count = (unsigned)null_function_count(module);
  return NULL_OK;
}
NULL_API(int, cuModuleGetGlobal_v2, CUdeviceptr *pointer, size_t *bytes, void *module,
         const char *name) {
  void *memory = 0;
  int code = null_variable(module, name, &memory, bytes);
  if (pointer) *pointer = (CUdeviceptr)memory;
  return code;
}
/* Libraries, which torch's newer launchers take in place of modules. A kernel is its function. */
NULL_API(int, cuLibraryLoadData, void **library, const void *image) {
  return load_image(library, image);
}
NULL_API(int, cuLibraryLoadFromFile, void **library, const char *path) {
  return load_file(library, path);
}
NULL_API(int, cuLibraryUnload, void *library) { return null_cuModuleUnload(library); }
NULL_API(int, cuLibraryGetKernel, void **kernel, void *library, const char *name) {
  return null_cuModuleGetFunction(kernel, library, name);
}
NULL_API(int, cuLibraryGetModule, void **module, void *library) {
  *module = library;
  return NULL_OK;
}
NULL_API(int, cuKernelGetFunction, void **function, void *kernel) {
  *function = kernel;
  return NULL_OK;
}

NULL_API(int, cuFuncGetAttribute, int *value, int attribute, void *handle) {
  const struct null_function *function = handle;
  if (!function) return null_fail(NULL_INVALID_HANDLE, "invalid resource handle");
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = function->threads;
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = function->shared;
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = function->constant;
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = function->local;
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = function->registers;
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = null_value(75) * 10 + null_value(76);
      return NULL_OK;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = null_value(8);
      return NULL_OK;
    default:
      null_note("cuFuncGetAttribute");
      *value = 0;
      return NULL_OK;
  }
}
NULL_API(int, cuFuncSetAttribute, void *function, int attribute, int value) {
  /* As the driver does: a kernel gets no more shared memory than the GPU can give. */
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > null_value(97))
    return null_fail(NULL_INVALID_VALUE, "invalid argument: %d bytes of shared memory, of %d",
                     value, null_value(97));
  return NULL_OK;
}
NULL_API(int, cuFuncSetCacheConfig, void *function, int config) { return NULL_OK; }
NULL_API(int, cuFuncGetName, const char **name, void *function) {
  *name = ((struct null_function *)function)->name;
  return NULL_OK;
}
NULL_API(int, cuKernelGetAttribute, int *value, int attribute, void *kernel, int device) {
  return null_cuFuncGetAttribute(value, attribute, kernel);
}
NULL_API(int, cuKernelSetAttribute, int attribute, int value, void *kernel, int device) {
  return null_cuFuncSetAttribute(kernel, attribute, value);
}
static int launch(void) {
  int code = null_device(null_current());
  if (!code) null_launched();
  return code;
}
NULL_API(int, cuLaunchKernel, void *function) { return launch(); }
NULL_API(int, cuLaunchKernelEx, const void *configuration, void *function) { return launch(); }
NULL_API(int, cuLaunchCooperativeKernel, void *function) { return launch(); }
/* By NVIDIA's own formula, from the registers and the memory that the kernel's file names. */
static int occupancy(int *blocks, const struct null_function *function, int threads,
                     size_t shared) {
  cudaOccDeviceProp gpu = {.computeMajor = null_value(75),
                           .computeMinor = null_value(76),
                           .maxThreadsPerBlock = null_value(1),
                           .maxThreadsPerMultiprocessor = null_value(39),
                           .regsPerBlock = null_value(12),
                           .regsPerMultiprocessor = null_value(82),
                           .warpSize = null_value(10),
                           .sharedMemPerBlock = (size_t)null_value(8),
                           .sharedMemPerMultiprocessor = (size_t)null_value(81),
                           .numSms = null_value(16),
                           .sharedMemPerBlockOptin = (size_t)null_value(97),
                           .reservedSharedMemPerBlock = (size_t)null_value(111)};
  cudaOccFuncAttributes kernel = {.maxThreadsPerBlock = function->threads,
                                  .numRegs = function->registers,
                                  .sharedSizeBytes = (size_t)function->shared,
                                  .partitionedGCConfig = PARTITIONED_GC_OFF,
                                  .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
                                  .maxDynamicSharedSizeBytes = (size_t)null_value(97)};
  cudaOccDeviceState state = {.cacheConfig = CACHE_PREFER_NONE,
                              .carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT};
  cudaOccResult found;
  int unknown = 0;
  if (!null_attribute(111, &unknown) || !null_attribute(81, &unknown) ||
      cudaOccMaxActiveBlocksPerMultiprocessor(&found, &gpu, &kernel, &state, threads, shared))
    return null_refused("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = found.activeBlocksPerMultiprocessor;
  return NULL_OK;
}
NULL_API(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *function,
         int threads, size_t shared) {
  return occupancy(blocks, function, threads, shared);
}
NULL_API(int, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks, void *function,
         int threads, size_t shared, unsigned flags) {
  return occupancy(blocks, function, threads, shared);
}
/* Opaque to all but a kernel, which does not run. */
NULL_API(int, cuTensorMapEncodeTiled, void *map) {
  memset(map, 0, 128);
  return NULL_OK;
}
NULL_API(int, cuTensorMapEncodeIm2col, void *map) {
  memset(map, 0, 128);
  return NULL_OK;
}
