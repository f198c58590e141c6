/* The CUDA driver: memory and copies. */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <cuda.h>
#include <stdlib.h>

STUB_API(int, cuMemAlloc_v2, CUdeviceptr *pointer, size_t bytes) {
  int code = stub_device(stub_current());
  return code ? code : stub_allocate((void **)pointer, bytes, stub_current());
}
STUB_API(int, cuMemAllocAsync, CUdeviceptr *pointer, size_t bytes, void *stream) {
  return stub_cuMemAlloc_v2(pointer, bytes);
}
STUB_API(int, cuMemFree_v2, CUdeviceptr pointer) { return stub_free((void *)pointer); }
STUB_API(int, cuMemFreeAsync, CUdeviceptr pointer, void *stream) {
  return stub_free((void *)pointer);
}
STUB_API(int, cuMemAllocHost_v2, void **pointer, size_t bytes) {
  return stub_host_allocate(pointer, bytes);
}
STUB_API(int, cuMemHostAlloc, void **pointer, size_t bytes, unsigned flags) {
  return stub_host_allocate(pointer, bytes);
}
STUB_API(int, cuMemFreeHost, void *pointer) { return stub_host_free(pointer); }
STUB_API(int, cuMemHostRegister_v2, void *pointer, size_t bytes, unsigned flags) {
  return stub_host_register(pointer, bytes);
}
STUB_API(int, cuMemHostUnregister, void *pointer) { return stub_host_unregister(pointer); }
STUB_API(int, cuMemHostGetDevicePointer_v2, CUdeviceptr *device, void *host, unsigned flags) {
  stub_note("cuMemHostGetDevicePointer");
  *device = (CUdeviceptr)host;
  return STUB_OK;
}
STUB_API(int, cuMemGetInfo_v2, size_t *unused, size_t *total) {
  *total = stub_target()->memory;
  *unused = *total - stub_allocated(stub_current());
  return stub_device(stub_current());
}
STUB_API(int, cuMemGetAddressRange_v2, CUdeviceptr *start, size_t *bytes, CUdeviceptr pointer) {
  struct stub_place place;
  if (!stub_find((void *)pointer, &place)) return stub_fail(STUB_NOT_FOUND, "not allocated");
  if (start) *start = place.start;
  if (bytes) *bytes = place.size;
  return STUB_OK;
}
STUB_API(int, cuPointerGetAttribute, void *value, int attribute, CUdeviceptr pointer) {
  struct stub_place place;
  if (!stub_find((void *)pointer, &place))
    return stub_fail(STUB_INVALID_VALUE, "invalid argument: not memory of a device");
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(void **)value = (void *)(uintptr_t)(STUB_CONTEXT + place.device);
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)value =
          place.kind == STUB_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *)value = pointer;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *(void **)value = place.kind == STUB_HOST ? (void *)pointer : 0;
      return place.kind == STUB_HOST ? STUB_OK : STUB_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *(unsigned *)value = 0;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long *)value = place.start;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)value = place.device;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *)value = place.start;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *)value = place.size;
      return STUB_OK;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *(int *)value = 1;
      return STUB_OK;
    default:
      return stub_refused("cuPointerGetAttribute");
  }
}
STUB_API(int, cuPointerSetAttribute, const void *value, int attribute, CUdeviceptr pointer) {
  return STUB_OK;
}

/* Addresses and memory apart, as torch's expandable segments take them */

struct piece {
  size_t bytes;
  int device;
};
STUB_API(int, cuMemGetAllocationGranularity, size_t *bytes, const void *properties, int option) {
  *bytes = (size_t)2 << 20;
  return STUB_OK;
}
STUB_API(int, cuMemAddressReserve, CUdeviceptr *pointer, size_t bytes, size_t alignment) {
  return stub_reserve((void **)pointer, bytes, alignment);
}
STUB_API(int, cuMemAddressFree, CUdeviceptr pointer, size_t bytes) {
  return stub_release((void *)pointer, bytes);
}
STUB_API(int, cuMemCreate, struct piece **handle, size_t bytes, const CUmemAllocationProp *p) {
  int code = p->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? stub_device(p->location.id)
                                                             : stub_refused("cuMemCreate");
  if (code) return code;
  struct piece *one = malloc(sizeof *one);
  if (!one) return stub_fail(STUB_OUT_OF_MEMORY, "out of memory");
  *one = (struct piece){bytes, p->location.id};
  code = stub_commit(bytes, one->device);
  if (code)
    free(one);
  else
    *handle = one;
  return code;
}
STUB_API(int, cuMemMap, CUdeviceptr pointer, size_t bytes, size_t offset, struct piece *handle) {
  return stub_map((void *)pointer, bytes, handle->device);
}
STUB_API(int, cuMemSetAccess, CUdeviceptr pointer, size_t bytes) { return STUB_OK; }
STUB_API(int, cuMemUnmap, CUdeviceptr pointer, size_t bytes) {
  return stub_unmap((void *)pointer, bytes);
}
STUB_API(int, cuMemRelease, struct piece *handle) {
  stub_decommit(handle->bytes, handle->device);
  free(handle);
  return STUB_OK;
}

/* Copies. The addresses show which side is the host's. */

#define COPY(name, to_type, from_type)                                                   \
  STUB_API(int, name##_v2, to_type to, from_type from, size_t bytes) {                   \
    return stub_copy(#name, (void *)to, (const void *)from, bytes);                      \
  }                                                                                      \
  STUB_API(int, name##Async_v2, to_type to, from_type from, size_t bytes, void *stream) { \
    return stub_copy(#name "Async", (void *)to, (const void *)from, bytes);              \
  }
COPY(cuMemcpyHtoD, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH, void *, CUdeviceptr)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)
STUB_API(int, cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return stub_copy("cuMemcpy", (void *)to, (const void *)from, bytes);
}
STUB_API(int, cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) {
  return stub_copy("cuMemcpyAsync", (void *)to, (const void *)from, bytes);
}
STUB_API(int, cuMemcpyPeer, CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes) {
  return stub_copy("cuMemcpyPeer", (void *)to, (const void *)from, bytes);
}
STUB_API(int, cuMemcpyPeerAsync, CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes,
         void *stream) {
  return stub_copy("cuMemcpyPeerAsync", (void *)to, (const void *)from, bytes);
}
static int batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count) {
  int code = STUB_OK;
  for (size_t i = 0; i < count && !code; i++)
    code = stub_copy("cuMemcpyBatchAsync", (void *)to[i], (const void *)from[i], bytes[i]);
  return code;
}
STUB_API(int, cuMemcpyBatchAsync, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
         size_t count) {
  return batch(to, from, bytes, count);
}
STUB_API(int, cuMemcpyBatchAsync_v2, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
         size_t count) {
  return batch(to, from, bytes, count);
}

/* One side of a copy of rows: its address, or 0 for an array, which the stub GPU does not have. */
static char *side(CUmemorytype type, const void *host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? (char *)host
         : type == CU_MEMORYTYPE_ARRAY ? 0
                                       : (char *)device;
}
static int rows(const char *function, const CUDA_MEMCPY2D *p) {
  char *from = side(p->srcMemoryType, p->srcHost, p->srcDevice);
  char *to = side(p->dstMemoryType, p->dstHost, p->dstDevice);
  if (!from || !to) return stub_refused(function);
  struct stub_box all = {.to = to + p->dstY * p->dstPitch + p->dstXInBytes,
                         .from = from + p->srcY * p->srcPitch + p->srcXInBytes,
                         .width = p->WidthInBytes,
                         .rows = p->Height,
                         .slices = 1,
                         .to_row = p->dstPitch,
                         .from_row = p->srcPitch};
  return stub_copy_box(function, &all);
}
STUB_API(int, cuMemcpy2D_v2, const CUDA_MEMCPY2D *p) { return rows("cuMemcpy2D", p); }
STUB_API(int, cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *p) {
  return rows("cuMemcpy2DUnaligned", p);
}
STUB_API(int, cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *p, void *stream) {
  return rows("cuMemcpy2DAsync", p);
}
static int slices(const char *function, const CUDA_MEMCPY3D *p) {
  char *from = side(p->srcMemoryType, p->srcHost, p->srcDevice);
  char *to = side(p->dstMemoryType, p->dstHost, p->dstDevice);
  if (!from || !to) return stub_refused(function);
  size_t from_slice = p->srcPitch * p->srcHeight, to_slice = p->dstPitch * p->dstHeight;
  struct stub_box all = {
      .to = to + p->dstZ * to_slice + p->dstY * p->dstPitch + p->dstXInBytes,
      .from = from + p->srcZ * from_slice + p->srcY * p->srcPitch + p->srcXInBytes,
      .width = p->WidthInBytes,
      .rows = p->Height,
      .slices = p->Depth,
      .to_row = p->dstPitch,
      .from_row = p->srcPitch,
      .to_slice = to_slice,
      .from_slice = from_slice};
  return stub_copy_box(function, &all);
}
STUB_API(int, cuMemcpy3D_v2, const CUDA_MEMCPY3D *p) { return slices("cuMemcpy3D", p); }
STUB_API(int, cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *p, void *stream) {
  return slices("cuMemcpy3DAsync", p);
}

#define FILL(name, type)                                                             \
  STUB_API(int, name##_v2, CUdeviceptr to, type value, size_t count) {               \
    return stub_fill((void *)to, &value, sizeof value, count);                       \
  }                                                                                  \
  STUB_API(int, name##Async, CUdeviceptr to, type value, size_t count, void *stream) { \
    return stub_fill((void *)to, &value, sizeof value, count);                       \
  }
FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)
