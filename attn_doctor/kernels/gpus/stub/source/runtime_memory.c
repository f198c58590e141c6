/* The CUDA runtime: memory and copies. */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <driver_types.h>
#include <stdlib.h>
#include <string.h>

STUB_API(int, cudaMalloc, void **pointer, size_t bytes) {
  int code = stub_here();
  return stub_done(code ? code : stub_allocate(pointer, bytes, stub_current()));
}
STUB_API(int, cudaMallocAsync, void **pointer, size_t bytes, void *stream) {
  return stub_cudaMalloc(pointer, bytes);
}
STUB_API(int, cudaMallocFromPoolAsync, void **pointer, size_t bytes, void *pool, void *stream) {
  return stub_cudaMalloc(pointer, bytes);
}
STUB_API(int, cudaMallocPitch, void **pointer, size_t *pitch, size_t width, size_t rows) {
  *pitch = (width + 511) & ~(size_t)511;
  return stub_cudaMalloc(pointer, *pitch * rows);
}
STUB_API(int, cudaFree, void *pointer) {
  int code = stub_here();
  return stub_done(code ? code : stub_free(pointer));
}
STUB_API(int, cudaFreeAsync, void *pointer, void *stream) { return stub_done(stub_free(pointer)); }
STUB_API(int, cudaHostAlloc, void **pointer, size_t bytes, unsigned flags) {
  return stub_done(stub_host_allocate(pointer, bytes));
}
STUB_API(int, cudaMallocHost, void **pointer, size_t bytes) {
  return stub_done(stub_host_allocate(pointer, bytes));
}
STUB_API(int, cudaFreeHost, void *pointer) { return stub_done(stub_host_free(pointer)); }
STUB_API(int, cudaHostRegister, void *pointer, size_t bytes, unsigned flags) {
  return stub_done(stub_host_register(pointer, bytes));
}
STUB_API(int, cudaHostUnregister, void *pointer) { return stub_done(stub_host_unregister(pointer)); }
STUB_API(int, cudaHostGetFlags, unsigned *flags, void *pointer) {
  *flags = 0;
  return STUB_OK;
}
STUB_API(int, cudaHostGetDevicePointer, void **device, void *host, unsigned flags) {
  /* A kernel would write there by itself, and the host reads it without a call. */
  stub_note("cudaHostGetDevicePointer");
  *device = host;
  return STUB_OK;
}
STUB_API(int, cudaMemGetInfo, size_t *unused, size_t *total) {
  int code = stub_here();
  if (code) return stub_done(code);
  *total = stub_target()->memory;
  *unused = *total - stub_allocated(stub_current());
  return STUB_OK;
}
STUB_API(int, cudaPointerGetAttributes, struct cudaPointerAttributes *a, const void *pointer) {
  struct stub_place place;
  memset(a, 0, sizeof *a);
  if (!stub_find(pointer, &place)) {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2; /* cudaInvalidDeviceId */
    a->hostPointer = (void *)pointer;
    return STUB_OK;
  }
  a->type = place.kind == STUB_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = place.device;
  a->devicePointer = (void *)pointer;
  a->hostPointer = place.kind == STUB_HOST ? (void *)pointer : 0;
  return STUB_OK;
}

/* Pools: one for each device, whose only state is what is in use */

STUB_API(int, cudaDeviceGetDefaultMemPool, void **pool, int device) {
  *pool = (void *)(uintptr_t)(0x100 + device);
  return stub_done(stub_device(device));
}
STUB_API(int, cudaDeviceGetMemPool, void **pool, int device) {
  return stub_cudaDeviceGetDefaultMemPool(pool, device);
}
STUB_API(int, cudaMemPoolGetAttribute, void *pool, int attribute, void *value) {
  uintptr_t device = (uintptr_t)pool - 0x100;
  if (device >= STUB_MOST_DEVICES) return stub_done(stub_refused("cudaMemPoolGetAttribute"));
  if (attribute < cudaMemPoolAttrReleaseThreshold)
    *(int *)value = 1;
  else if (attribute == cudaMemPoolAttrReleaseThreshold)
    *(uint64_t *)value = 0;
  else if (attribute == cudaMemPoolAttrReservedMemCurrent ||
           attribute == cudaMemPoolAttrUsedMemCurrent)
    *(uint64_t *)value = stub_allocated((int)device);
  else
    *(uint64_t *)value = stub_allocated_most((int)device);
  return STUB_OK;
}
STUB_API(int, cudaMemPoolSetAttribute, void *pool, int attribute, void *value) { return STUB_OK; }
STUB_API(int, cudaMemPoolSetAccess, void *pool, const void *access, size_t count) {
  return STUB_OK;
}
STUB_API(int, cudaMemPoolTrimTo, void *pool, size_t bytes) { return STUB_OK; }

/* Copies. The addresses show which side is the host's, whatever `kind` says. */

static int box(const char *function, void *to, size_t to_row, const void *from, size_t from_row,
               size_t width, size_t rows) {
  if (width > to_row || width > from_row)
    return stub_fail(12, "invalid pitch argument"); /* cudaErrorInvalidPitchValue */
  struct stub_box all = {.to = to,
                         .from = from,
                         .width = width,
                         .rows = rows,
                         .slices = 1,
                         .to_row = to_row,
                         .from_row = from_row};
  return stub_copy_box(function, &all);
}

static char *inside(const struct cudaPitchedPtr *area, const struct cudaPos *at) {
  return (char *)area->ptr + (at->z * area->ysize + at->y) * area->pitch + at->x;
}

static int box3(const char *function, const struct cudaPitchedPtr *to, const struct cudaPos *to_at,
                const struct cudaPitchedPtr *from, const struct cudaPos *from_at,
                const struct cudaExtent *extent) {
  struct stub_box all = {.to = inside(to, to_at),
                         .from = inside(from, from_at),
                         .width = extent->width,
                         .rows = extent->height,
                         .slices = extent->depth,
                         .to_row = to->pitch,
                         .from_row = from->pitch,
                         .to_slice = to->pitch * to->ysize,
                         .from_slice = from->pitch * from->ysize};
  return stub_copy_box(function, &all);
}

STUB_API(int, cudaMemcpy, void *to, const void *from, size_t bytes, int kind) {
  return stub_done(stub_copy("cudaMemcpy", to, from, bytes));
}
STUB_API(int, cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream) {
  return stub_done(stub_copy("cudaMemcpyAsync", to, from, bytes));
}
STUB_API(int, cudaMemcpyPeer, void *to, int to_device, const void *from, int from_device,
         size_t bytes) {
  return stub_done(stub_copy("cudaMemcpyPeer", to, from, bytes));
}
STUB_API(int, cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device,
         size_t bytes, void *stream) {
  return stub_done(stub_copy("cudaMemcpyPeerAsync", to, from, bytes));
}
STUB_API(int, cudaMemcpy2D, void *to, size_t to_row, const void *from, size_t from_row,
         size_t width, size_t rows, int kind) {
  return stub_done(box("cudaMemcpy2D", to, to_row, from, from_row, width, rows));
}
STUB_API(int, cudaMemcpy2DAsync, void *to, size_t to_row, const void *from, size_t from_row,
         size_t width, size_t rows, int kind, void *stream) {
  return stub_done(box("cudaMemcpy2DAsync", to, to_row, from, from_row, width, rows));
}
STUB_API(int, cudaMemcpy3D, const struct cudaMemcpy3DParms *p) {
  if (p->srcArray || p->dstArray) return stub_done(stub_refused("cudaMemcpy3D"));
  return stub_done(
      box3("cudaMemcpy3D", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
STUB_API(int, cudaMemcpy3DAsync, const struct cudaMemcpy3DParms *p, void *stream) {
  if (p->srcArray || p->dstArray) return stub_done(stub_refused("cudaMemcpy3DAsync"));
  return stub_done(
      box3("cudaMemcpy3DAsync", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
STUB_API(int, cudaMemcpy3DPeer, const struct cudaMemcpy3DPeerParms *p) {
  if (p->srcArray || p->dstArray) return stub_done(stub_refused("cudaMemcpy3DPeer"));
  return stub_done(
      box3("cudaMemcpy3DPeer", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
STUB_API(int, cudaMemcpy3DPeerAsync, const struct cudaMemcpy3DPeerParms *p, void *stream) {
  if (p->srcArray || p->dstArray) return stub_done(stub_refused("cudaMemcpy3DPeerAsync"));
  return stub_done(
      box3("cudaMemcpy3DPeerAsync", &p->dstPtr, &p->dstPos, &p->srcPtr, &p->srcPos, &p->extent));
}
/* CUDA 12.8 and 13 differ in what follows the count, which does not matter here. */
STUB_API(int, cudaMemcpyBatchAsync, void **to, const void **from, const size_t *bytes,
         size_t count) {
  int code = STUB_OK;
  for (size_t i = 0; i < count && !code; i++)
    code = stub_copy("cudaMemcpyBatchAsync", to[i], from[i], bytes[i]);
  return stub_done(code);
}
STUB_API(int, cudaMemcpyWithAttributesAsync, void *to, const void *from, size_t bytes,
         const void *attributes, void *stream) {
  return stub_done(stub_copy("cudaMemcpyWithAttributesAsync", to, from, bytes));
}

STUB_API(int, cudaMemset, void *to, int value, size_t bytes) {
  unsigned char byte = (unsigned char)value;
  return stub_done(stub_fill(to, &byte, 1, bytes));
}
STUB_API(int, cudaMemsetAsync, void *to, int value, size_t bytes, void *stream) {
  return stub_cudaMemset(to, value, bytes);
}
STUB_API(int, cudaMemset2D, void *to, size_t pitch, int value, size_t width, size_t rows) {
  int code = STUB_OK;
  for (size_t y = 0; y < rows && !code; y++)
    code = stub_cudaMemset((char *)to + y * pitch, value, width);
  return code;
}
STUB_API(int, cudaMemset2DAsync, void *to, size_t pitch, int value, size_t width, size_t rows,
         void *stream) {
  return stub_cudaMemset2D(to, pitch, value, width, rows);
}
STUB_API(int, cudaMemPrefetchAsync, const void *pointer, size_t bytes) { return STUB_OK; }
STUB_API(int, cudaMemAdvise, const void *pointer, size_t bytes) { return STUB_OK; }
