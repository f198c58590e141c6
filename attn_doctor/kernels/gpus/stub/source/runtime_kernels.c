/* The CUDA runtime: code that nvcc compiled. Only the launch of a kernel is known.
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <driver_types.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Variables in code that nvcc compiled: memory of its own for each, made when it is asked for */

struct symbol {
  const void *host;
  size_t bytes;
  void *memory[STUB_MOST_DEVICES];
  struct symbol *next;
};
static struct symbol *symbols;
static pthread_mutex_t symbols_lock = PTHREAD_MUTEX_INITIALIZER;

static int symbol(const void *host, char **pointer, size_t *bytes) {
  int code = stub_here(), device = stub_current();
  if (code) return code;
  pthread_mutex_lock(&symbols_lock);
  struct symbol *one = symbols;
  while (one && one->host != host) one = one->next;
  if (!one)
    code = stub_fail(13, "invalid device symbol"); /* cudaErrorInvalidSymbol */
  else if (!one->memory[device])
    code = stub_allocate(&one->memory[device], one->bytes, device);
  if (!code) {
    *pointer = one->memory[device];
    *bytes = one->bytes;
  }
  pthread_mutex_unlock(&symbols_lock);
  return code;
}
STUB_API(void, __cudaRegisterVar, void **module, char *host, char *address, const char *name,
         int external, size_t bytes, int constant, int global) {
  struct symbol *one = calloc(1, sizeof *one);
  if (!one) return;
  one->host = host;
  one->bytes = bytes;
  pthread_mutex_lock(&symbols_lock);
  one->next = symbols;
  symbols = one;
  pthread_mutex_unlock(&symbols_lock);
}
STUB_API(int, cudaGetSymbolAddress, void **pointer, const void *host) {
  size_t bytes;
  return stub_done(symbol(host, (char **)pointer, &bytes));
}
STUB_API(int, cudaGetSymbolSize, size_t *bytes, const void *host) {
  char *pointer;
  return stub_done(symbol(host, &pointer, bytes));
}
STUB_API(int, cudaMemcpyToSymbol, const void *host, const void *from, size_t bytes, size_t offset,
         int kind) {
  char *pointer;
  size_t all;
  int code = symbol(host, &pointer, &all);
  return stub_done(code ? code : stub_copy("cudaMemcpyToSymbol", pointer + offset, from, bytes));
}
STUB_API(int, cudaMemcpyToSymbolAsync, const void *host, const void *from, size_t bytes,
         size_t offset, int kind, void *stream) {
  return stub_cudaMemcpyToSymbol(host, from, bytes, offset, kind);
}
STUB_API(int, cudaMemcpyFromSymbol, void *to, const void *host, size_t bytes, size_t offset,
         int kind) {
  char *pointer;
  size_t all;
  int code = symbol(host, &pointer, &all);
  return stub_done(code ? code : stub_copy("cudaMemcpyFromSymbol", to, pointer + offset, bytes));
}
STUB_API(int, cudaMemcpyFromSymbolAsync, void *to, const void *host, size_t bytes, size_t offset,
         int kind, void *stream) {
  return stub_cudaMemcpyFromSymbol(to, host, bytes, offset, kind);
}

/* Kernels */

STUB_API(void **, __cudaRegisterFatBinary, void *binary) {
  static void *module[4];
  return module;
}
STUB_API(void, __cudaRegisterFatBinaryEnd, void **module) {}
STUB_API(void, __cudaUnregisterFatBinary, void **module) {}
STUB_API(void, __cudaRegisterFunction, void **module) {}
STUB_API(void, __cudaRegisterManagedVar, void **module) {}
STUB_API(char, __cudaInitModule, void **module) { return 1; }
STUB_API(int, __cudaGetKernel, void **kernel, const void *function) {
  *kernel = (void *)function;
  return STUB_OK;
}
struct configuration {
  unsigned grid[3], block[3];
  size_t shared;
  void *stream;
};
struct three {
  unsigned x, y, z;
};
static __thread struct configuration pushed[16];
static __thread int depth;
STUB_API(unsigned, __cudaPushCallConfiguration, struct three grid, struct three block,
         size_t shared, void *stream) {
  if (depth == 16) return 1;
  pushed[depth++] = (struct configuration){
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream};
  return 0;
}
STUB_API(int, __cudaPopCallConfiguration, void *grid, void *block, size_t *shared, void *stream) {
  if (!depth) return stub_done(stub_fail(52, "invalid configuration argument"));
  const struct configuration *one = &pushed[--depth];
  memcpy(grid, one->grid, sizeof one->grid);
  memcpy(block, one->block, sizeof one->block);
  *shared = one->shared;
  *(void **)stream = one->stream;
  return STUB_OK;
}

static int launch(void) {
  int code = stub_here();
  if (!code) stub_launched();
  return stub_done(code);
}
STUB_API(int, cudaLaunchKernel, const void *function) { return launch(); }
STUB_API(int, cudaLaunchKernelExC, const void *configuration, const void *function) {
  return launch();
}
STUB_API(int, cudaLaunchCooperativeKernel, const void *function) { return launch(); }
STUB_API(int, __cudaLaunchKernel, void *kernel) { return launch(); }
STUB_API(int, __cudaLaunchKernel_ptsz, void *kernel) { return launch(); }

STUB_API(int, cudaFuncSetAttribute, const void *function, int attribute, int value) {
  return STUB_OK;
}
STUB_API(int, cudaFuncSetCacheConfig, const void *function, int config) { return STUB_OK; }
STUB_API(int, cudaFuncSetSharedMemConfig, const void *function, int config) { return STUB_OK; }
STUB_API(int, cudaFuncGetAttributes, struct cudaFuncAttributes *a, const void *function) {
  /* Launches that follow from it do nothing, so it need only be possible. */
  stub_note("cudaFuncGetAttributes");
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = stub_value(1);
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = stub_value(75) * 10 + stub_value(76);
  a->maxDynamicSharedSizeBytes = stub_value(8);
  return STUB_OK;
}
static int occupancy(const char *function, int *blocks) {
  /* Its registers are not known, and the launch that follows does nothing. */
  stub_note(function);
  *blocks = 1;
  return STUB_OK;
}
STUB_API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks) {
  return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessor", blocks);
}
STUB_API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks) {
  return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks);
}
