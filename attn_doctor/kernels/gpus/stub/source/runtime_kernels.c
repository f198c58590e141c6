/* The CUDA runtime: code that nvcc compiled. Nothing is known of a kernel but that it was launched.
 */
#define _GNU_SOURCE
#include "null.h"

#include <driver_types.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Variables in code that nvcc compiled: memory of its own for each, made when it is asked for */

struct symbol {
  const void *host;
  size_t bytes;
  void *memory[NULL_MOST_DEVICES];
  struct symbol *next;
};
static struct symbol *symbols;
static pthread_mutex_t symbols_lock = PTHREAD_MUTEX_INITIALIZER;

static int symbol(const void *host, char **pointer, size_t *bytes) {
  int code = null_here(), device = null_current();
  if (code) return code;
  pthread_mutex_lock(&symbols_lock);
  struct symbol *one = symbols;
  while (one && one->host != host) one = one->next;
  if (!one)
    code = null_fail(13, "invalid device symbol"); /* cudaErrorInvalidSymbol */
  else if (!one->memory[device])
    code = null_allocate(&one->memory[device], one->bytes, device);
  if (!code) {
    *pointer = one->memory[device];
    *bytes = one->bytes;
  }
  pthread_mutex_unlock(&symbols_lock);
  return code;
}
NULL_API(void, __cudaRegisterVar, void **module, char *host, char *address, const char *name,
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
NULL_API(int, cudaGetSymbolAddress, void **pointer, const void *host) {
  size_t bytes;
  return null_done(symbol(host, (char **)pointer, &bytes));
}
NULL_API(int, cudaGetSymbolSize, size_t *bytes, const void *host) {
  char *pointer;
  return null_done(symbol(host, &pointer, bytes));
}
NULL_API(int, cudaMemcpyToSymbol, const void *host, const void *from, size_t bytes, size_t offset,
         int kind) {
  char *pointer;
  size_t all;
  int code = symbol(host, &pointer, &all);
  return null_done(code ? code : null_copy("cudaMemcpyToSymbol", pointer + offset, from, bytes));
}
NULL_API(int, cudaMemcpyToSymbolAsync, const void *host, const void *from, size_t bytes,
         size_t offset, int kind, void *stream) {
  return null_cudaMemcpyToSymbol(host, from, bytes, offset, kind);
}
NULL_API(int, cudaMemcpyFromSymbol, void *to, const void *host, size_t bytes, size_t offset,
         int kind) {
  char *pointer;
  size_t all;
  int code = symbol(host, &pointer, &all);
  return null_done(code ? code : null_copy("cudaMemcpyFromSymbol", to, pointer + offset, bytes));
}
NULL_API(int, cudaMemcpyFromSymbolAsync, void *to, const void *host, size_t bytes, size_t offset,
         int kind, void *stream) {
  return null_cudaMemcpyFromSymbol(to, host, bytes, offset, kind);
}

/* Kernels */

NULL_API(void **, __cudaRegisterFatBinary, void *binary) {
  static void *module[4];
  return module;
}
NULL_API(void, __cudaRegisterFatBinaryEnd, void **module) {}
NULL_API(void, __cudaUnregisterFatBinary, void **module) {}
NULL_API(void, __cudaRegisterFunction, void **module) {}
NULL_API(void, __cudaRegisterManagedVar, void **module) {}
NULL_API(char, __cudaInitModule, void **module) { return 1; }
NULL_API(int, __cudaGetKernel, void **kernel, const void *function) {
  *kernel = (void *)function;
  return NULL_OK;
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
NULL_API(unsigned, __cudaPushCallConfiguration, struct three grid, struct three block,
         size_t shared, void *stream) {
  if (depth == 16) return 1;
  pushed[depth++] = (struct configuration){
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream};
  return 0;
}
NULL_API(int, __cudaPopCallConfiguration, void *grid, void *block, size_t *shared, void *stream) {
  if (!depth) return null_done(null_fail(52, "invalid configuration argument"));
  const struct configuration *one = &pushed[--depth];
  memcpy(grid, one->grid, sizeof one->grid);
  memcpy(block, one->block, sizeof one->block);
  *shared = one->shared;
  *(void **)stream = one->stream;
  return NULL_OK;
}

static int launch(void) {
  int code = null_here();
  if (!code) null_launched();
  return null_done(code);
}
NULL_API(int, cudaLaunchKernel, const void *function) { return launch(); }
NULL_API(int, cudaLaunchKernelExC, const void *configuration, const void *function) {
  return launch();
}
NULL_API(int, cudaLaunchCooperativeKernel, const void *function) { return launch(); }
NULL_API(int, __cudaLaunchKernel, void *kernel) { return launch(); }
NULL_API(int, __cudaLaunchKernel_ptsz, void *kernel) { return launch(); }

NULL_API(int, cudaFuncSetAttribute, const void *function, int attribute, int value) {
  return NULL_OK;
}
NULL_API(int, cudaFuncSetCacheConfig, const void *function, int config) { return NULL_OK; }
NULL_API(int, cudaFuncSetSharedMemConfig, const void *function, int config) { return NULL_OK; }
NULL_API(int, cudaFuncGetAttributes, struct cudaFuncAttributes *a, const void *function) {
  /* Launches that follow from it do nothing, so it need only be possible. */
  null_note("cudaFuncGetAttributes");
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = null_value(1);
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = null_value(75) * 10 + null_value(76);
  a->maxDynamicSharedSizeBytes = null_value(8);
  return NULL_OK;
}
static int occupancy(const char *function, int *blocks) {
  /* Its registers are not known, and the launch that follows does nothing. */
  null_note(function);
  *blocks = 1;
  return NULL_OK;
}
NULL_API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks) {
  return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessor", blocks);
}
NULL_API(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks) {
  return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks);
}
