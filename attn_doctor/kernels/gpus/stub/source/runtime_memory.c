/* The CUDA runtime: memory, and all that moves bytes. */
#define _GNU_SOURCE
#include "null.h"

#include <driver_types.h>
#include <stdlib.h>
#include <string.h>

NULL_API(int, cudaMalloc, void **pointer, size_t bytes) {
  int code = null_here();
  return null_done(code ? code : null_allocate(pointer, bytes, null_current()));
}
NULL_API(int, cudaMallocAsync, void **pointer, size_t bytes, void *stream) {
  return null_cudaMalloc(pointer, bytes);
}
NULL_API(int, cudaMallocFromPoolAsync, void **pointer, size_t bytes, void *pool, void *stream) {
  return null_cudaMalloc(pointer, bytes);
}
NULL_API(int, cudaMallocPitch, void **pointer, size_t *pitch, size_t width, size_t rows) {
  *pitch = (width + 511) & ~(size_t)511;
  return null_cudaMalloc(pointer, *pitch * rows);
}
NULL_API(int, cudaFree, void *pointer) {
  int code = null_here();
  return null_done(code ? code : null_free(pointer));
}
NULL_API(int, cudaFreeAsync, void *pointer, void *stream) { return null_done(null_free(pointer)); }
NULL_API(int, cudaHostAlloc, void **pointer, size_t bytes, unsigned flags) {
  return null_done(null_host_allocate(pointer, bytes));
}
NULL_API(int, cudaMallocHost, void **pointer, size_t bytes) {
  return null_done(null_host_allocate(pointer, bytes));
}
NULL_API(int, cudaFreeHost, void *pointer) { return null_done(null_host_free(pointer)); }
NULL_API(int, cudaHostRegister, void *pointer, size_t bytes, unsigned flags) {
  return null_done(null_host_register(pointer, bytes));
}
NULL_API(int, cudaHostUnregister, void *pointer) { return null_done(null_host_unregister(pointer)); }
NULL_API(int, cudaHostGetFlags, unsigned *flags, void *pointer) {
  *flags = 0;
  return NULL_OK;
}
NULL_API(int, cudaHostGetDevicePointer, void **device, void *host, unsigned flags) {
  /* A kernel would write there by itself, and no call tells when the host reads it. */
  null_note("cudaHostGetDevicePointer");
  *device = host;
  return NULL_OK;
}
NULL_API(int, cudaMemGetInfo, size_t *unused, size_t *total) {
  int code = null_here();
  if (code) return null_done(code);
  *total = null_target()->memory;
  *unused = *total - null_allocated(null_current());
  return NULL_OK;
}
NULL_API(int, cudaPointerGetAttributes, struct cudaPointerAttributes *a, const void *pointer) {
  struct null_place place;
  memset(a, 0, sizeof *a);
  if (!null_find(pointer, &place)) {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2; /* cudaInvalidDeviceId */
    a->hostPointer = (void *)pointer;
    return NULL_OK;
  }
  a->type = place.kind == NULL_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = place.device;
  a->devicePointer = (void *)pointer;
  a->hostPointer = place.kind == NULL_HOST ? (void *)pointer : 0;
  return NULL_OK;
}

/* Pools: one for each device, whose only state is what is in use */

NULL_API(int, cudaDeviceGetDefaultMemPool, void **pool, int device) {
  *pool = (void *)(uintptr_t)(0x100 + device);
  return null_done(null_device(device));
}
NULL_API(int, cudaDeviceGetMemPool, void **pool, int device) {
  return null_cudaDeviceGetDefaultMemPool(pool, device);
}
NULL_API(int, cudaMemPoolGetAttribute, void *pool, int attribute, void *value) {
  uintptr_t device = (uintptr_t)pool - 0x100;
  if (device >= NULL_MOST_DEVICES) return null_done(null_refused("cudaMemPoolGetAttribute"));
  if (attribute < cudaMemPoolAttrReleaseThreshold)
    *(int *)value = 1;
  else if (attribute == cudaMemPoolAttrReleaseThreshold)
    *(uint64_t *)value = 0;
  else if (attribute == cudaMemPoolAttrReservedMemCurrent ||
           attribute == cudaMemPoolAttrUsedMemCurrent)
    *(uint64_t *)value = null_allocated((int)device);
  else
    *(uint64_t *)value = null_allocated_most((int)device);
  return NULL_OK;
}
NULL_API(int, cudaMemPoolSetAttribute, void *pool, int attribute, void *value) { return NULL_OK; }
NULL_API(int, cudaMemPoolSetAccess, void *pool, const void *access, size_t count) {
  return NULL_OK;
}
NULL_API(int, cudaMemPoolTrimTo, void *pool, size_t bytes) { return NULL_OK; }

/* Copies. Which side is the host's is seen by the addresses, whatever `kind` says. */

static int box(const char *function, void *to, size_t to_row, const void *from, size_t from_row,
               size_t width, size_t rows) {
  if (width > to_row || width > from_row)
    return null_fail(12, "invalid pitch argument"); /* cudaErrorInvalidPitchValue */
  struct null_box all = {.to = to,
                         .from = from,
                         .width = width,
                         .rows = rows,
                         .slices = 1,
                         .to_row = to_row,
                         .from_row = from_row};
  return null_copy_box(function, &all);
}

static char *inside(const struct cudaPitchedPtr *area, const struct cudaPos *at) {
  return (char *)area->ptr + (at->z * area->ysize + at->y) * area->pitch + at->x;
}

static int box3(const char *function, const struct cudaPitchedPtr *to, const struct cudaPos *to_at,
                const struct cudaPitchedPtr *from, const struct cudaPos *from_at,
                const struct cudaExtent *extent) {
  struct null_box all = {.to = inside(to, to_at),
                         .from = inside(from, from_at),
                         .width = extent->width,
                         .rows = extent->height,
                         .slices = extent->depth,
                         .to_row = to->pitch,
                         .from_row = from->pitch,
                         .to_slice = to->pitch * to->ysize,
                         .from_slice = from->pitch * from->ysize};
  return null_copy_box(function, &all);
}

NULL_API(int, cudaMemcpy, void *to, const void *from, size_t bytes, int kind) {
  return null_done(null_copy("cudaMemcpy", to, from, bytes));
}
NULL_API(int, cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream) {
  return null_done(null_copy("cudaMemcpyAsync", to, from, bytes));
}
NULL_API(int, cudaMemcpyPeer, void *to, int to_device, const void *from, int from_device,
         size_t bytes) {
  return null_done(null_copy("cudaMemcpyPeer", to, from, bytes));
}
NULL_API(int, cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device,
         size_t bytes, void *stream) {
  return null_done(null_copy("cudaMemcpyPeerAsync", to, from, bytes));
}
NULL_API(int, cudaMemcpy2D, void *to, size_t to_row, const void *from, size_t from_row,
         size_t width, size_t rows, int kind) {
  return null_done(box("cudaMemcpy2D", to, to_row, from, from_row, width, rows));
}
NULL_API(int, cudaMemcpy2DAsync, void *to, size_t to_row, const void *from, size_t from_row,
         size_t width, size_t rows, int kind, void *stream) {
  return null_done(box("cudaMemcpy2DAsync", to, to_row, from, from_row, width, rows));
}
NULL_API(int, cudaMemcpy3D, const struct cudaMemcpy3DParms *p) {
  if (p->srcArray || p->dstArray) return null_done(null_refused("cudaMemcpy3D"));
  return null_done(
      box3("cudaMemcpy3D", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
NULL_API(int, cudaMemcpy3DAsync, const struct cudaMemcpy3DParms *p, void *stream) {
  if (p->srcArray || p->dstArray) return null_done(null_refused("cudaMemcpy3DAsync"));
  return null_done(
      box3("cudaMemcpy3DAsync", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
NULL_API(int, cudaMemcpy3DPeer, const struct cudaMemcpy3DPeerParms *p) {
  if (p->srcArray || p->dstArray) return null_done(null_refused("cudaMemcpy3DPeer"));
  return null_done(
      box3("cudaMemcpy3DPeer", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
NULL_API(int, cudaMemcpy3DPeerAsync, const struct cudaMemcpy3DPeerParms *p, void *stream) {
  if (p->srcArray || p->dstArray) return null_done(null_refused("cudaMemcpy3DPeerAsync"));
  return null_done(
      box3("cudaMemcpy3DPeerAsync", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
/* CUDA 12.8 and 13 differ in what follows the count, which does not matter here. */
NULL_API(int, cudaMemcpyBatchAsync, void **to, const void **from, const size_t *bytes,
         size_t count) {
  int code = NULL_OK;
  for (size_t i = 0; i < count && !code; i++)
    code = null_copy("cudaMemcpyBatchAsync", to[i], from[i], bytes[i]);
  return null_done(code);
}
NULL_API(int, cudaMemcpyWithAttributesAsync, void *to, const void *from, size_t bytes,
         const void *attributes, void *stream) {
  return null_done(null_copy("cudaMemcpyWithAttributesAsync", to, from, bytes));
}

NULL_API(int, cudaMemset, void *to, int value, size_t bytes) {
  unsigned char byte = (unsigned char)value;
  return null_done(null_fill(to, &byte, 1, bytes));
}
NULL_API(int, cudaMemsetAsync, void *to, int value, size_t bytes, void *stream) {
  return null_cudaMemset(to, value, bytes);
}
NULL_API(int, cudaMemset2D, void *to, size_t pitch, int value, size_t width, size_t rows) {
  int code = NULL_OK;
  for (size_t y = 0; y < rows && !code; y++)
    code = null_cudaMemset((char *)to + y * pitch, value, width);
  return code;
}
NULL_API(int, cudaMemset2DAsync, void *to, size_t pitch, int value, size_t width, size_t rows,
         void *stream) {
  return null_cudaMemset2D(to, pitch, value, width, rows);
}
NULL_API(int, cudaMemPrefetchAsync, const void *pointer, size_t bytes) { return NULL_OK; }
NULL_API(int, cudaMemAdvise, const void *pointer, size_t bytes) { return NULL_OK; }
