/* The CUDA driver: memory, and all that moves bytes. */
#define _GNU_SOURCE
#include "null.h"

#include <cuda.h>
#include <stdlib.h>

NULL_API(int, cuMemAlloc_v2, CUdeviceptr *pointer, size_t bytes) {
  int code = null_device(null_current());
  return code ? code : null_allocate((void **)pointer, bytes, null_current());
}
NULL_API(int, cuMemAllocAsync, CUdeviceptr *pointer, size_t bytes, void *stream) {
  return null_cuMemAlloc_v2(pointer, bytes);
}
NULL_API(int, cuMemFree_v2, CUdeviceptr pointer) { return null_free((void *)pointer); }
NULL_API(int, cuMemFreeAsync, CUdeviceptr pointer, void *stream) {
  return null_free((void *)pointer);
}
NULL_API(int, cuMemAllocHost_v2, void **pointer, size_t bytes) {
  return null_host_allocate(pointer, bytes);
}
NULL_API(int, cuMemHostAlloc, void **pointer, size_t bytes, unsigned flags) {
  return null_host_allocate(pointer, bytes);
}
NULL_API(int, cuMemFreeHost, void *pointer) { return null_host_free(pointer); }
NULL_API(int, cuMemHostRegister_v2, void *pointer, size_t bytes, unsigned flags) {
  return null_host_register(pointer, bytes);
}
NULL_API(int, cuMemHostUnregister, void *pointer) { return null_host_unregister(pointer); }
NULL_API(int, cuMemHostGetDevicePointer_v2, CUdeviceptr *device, void *host, unsigned flags) {
  null_note("cuMemHostGetDevicePointer");
  *device = (CUdeviceptr)host;
  return NULL_OK;
}
NULL_API(int, cuMemGetInfo_v2, size_t *unused, size_t *total) {
  *total = null_target()->memory;
  *unused = *total - null_allocated(null_current());
  return null_device(null_current());
}
NULL_API(int, cuMemGetAddressRange_v2, CUdeviceptr *start, size_t *bytes, CUdeviceptr pointer) {
  struct null_place place;
  if (!null_find((void *)pointer, &place)) return null_fail(NULL_NOT_FOUND, "not allocated");
  if (start) *start = place.start;
  if (bytes) *bytes = place.size;
  return NULL_OK;
}
NULL_API(int, cuPointerGetAttribute, void *value, int attribute, CUdeviceptr pointer) {
  struct null_place place;
  if (!null_find((void *)pointer, &place))
    return null_fail(NULL_INVALID_VALUE, "invalid argument: not memory of a device");
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(void **)value = (void *)(uintptr_t)(NULL_CONTEXT + place.device);
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)value =
          place.kind == NULL_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *)value = pointer;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *(void **)value = place.kind == NULL_HOST ? (void *)pointer : 0;
      return place.kind == NULL_HOST ? NULL_OK : NULL_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *(unsigned *)value = 0;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long *)value = place.start;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)value = place.device;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *)value = place.start;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *)value = place.size;
      return NULL_OK;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *(int *)value = 1;
      return NULL_OK;
    default:
      return null_refused("cuPointerGetAttribute");
  }
}
NULL_API(int, cuPointerSetAttribute, const void *value, int attribute, CUdeviceptr pointer) {
  return NULL_OK;
}

/* Addresses and memory apart, as torch's expandable segments take them */

struct piece {
  size_t bytes;
  int device;
};
NULL_API(int, cuMemGetAllocationGranularity, size_t *bytes, const void *properties, int option) {
  *bytes = (size_t)2 << 20;
  return NULL_OK;
}
NULL_API(int, cuMemAddressReserve, CUdeviceptr *pointer, size_t bytes, size_t alignment) {
  return null_reserve((void **)pointer, bytes, alignment);
}
NULL_API(int, cuMemAddressFree, CUdeviceptr pointer, size_t bytes) {
  return null_release((void *)pointer, bytes);
}
NULL_API(int, cuMemCreate, struct piece **handle, size_t bytes, const CUmemAllocationProp *p) {
  int code = p->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? null_device(p->location.id)
                                                             : null_refused("cuMemCreate");
  if (code) return code;
  struct piece *one = malloc(sizeof *one);
  if (!one) return null_fail(NULL_OUT_OF_MEMORY, "out of memory");
  *one = (struct piece){bytes, p->location.id};
  code = null_commit(bytes, one->device);
  if (code)
    free(one);
  else
    *handle = one;
  return code;
}
NULL_API(int, cuMemMap, CUdeviceptr pointer, size_t bytes, size_t offset, struct piece *handle) {
  return null_map((void *)pointer, bytes, handle->device);
}
NULL_API(int, cuMemSetAccess, CUdeviceptr pointer, size_t bytes) { return NULL_OK; }
NULL_API(int, cuMemUnmap, CUdeviceptr pointer, size_t bytes) {
  return null_unmap((void *)pointer, bytes);
}
NULL_API(int, cuMemRelease, struct piece *handle) {
  null_decommit(handle->bytes, handle->device);
  free(handle);
  return NULL_OK;
}

/* Copies. Which side is the host's is seen by the addresses. */

#define COPY(name, to_type, from_type)                                                   \
  NULL_API(int, name##_v2, to_type to, from_type from, size_t bytes) {                   \
    return null_copy(#name, (void *)to, (const void *)from, bytes);                      \
  }                                                                                      \
  NULL_API(int, name##Async_v2, to_type to, from_type from, size_t bytes, void *stream) { \
    return null_copy(#name "Async", (void *)to, (const void *)from, bytes);              \
  }
COPY(cuMemcpyHtoD, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH, void *, CUdeviceptr)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)
NULL_API(int, cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return null_copy("cuMemcpy", (void *)to, (const void *)from, bytes);
}
NULL_API(int, cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, void *stream) {
  return null_copy("cuMemcpyAsync", (void *)to, (const void *)from, bytes);
}
NULL_API(int, cuMemcpyPeer, CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes) {
  return null_copy("cuMemcpyPeer", (void *)to, (const void *)from, bytes);
}
NULL_API(int, cuMemcpyPeerAsync, CUdeviceptr to, void *a, CUdeviceptr from, void *b, size_t bytes,
         void *stream) {
  return null_copy("cuMemcpyPeerAsync", (void *)to, (const void *)from, bytes);
}
static int batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count) {
  int code = NULL_OK;
  for (size_t i = 0; i < count && !code; i++)
    code = null_copy("cuMemcpyBatchAsync", (void *)to[i], (const void *)from[i], bytes[i]);
  return code;
}
NULL_API(int, cuMemcpyBatchAsync, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
         size_t count) {
  return batch(to, from, bytes, count);
}
NULL_API(int, cuMemcpyBatchAsync_v2, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
         size_t count) {
  return batch(to, from, bytes, count);
}

/* One side of a copy of rows: its address, or 0 for an array, which the null GPU has not. */
static char *side(CUmemorytype type, const void *host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? (char *)host
         : type == CU_MEMORYTYPE_ARRAY ? 0
                                       : (char *)device;
}
static int rows(const char *function, const CUDA_MEMCPY2D *p) {
  char *from = side(p->srcMemoryType, p->srcHost, p->srcDevice);
  char *to = side(p->dstMemoryType, p->dstHost, p->dstDevice);
  if (!from || !to) return null_refused(function);
  struct null_box all = {.to = to + p->dstY * p->dstPitch + p->dstXInBytes,
                         .from = from + p->srcY * p->srcPitch + p->srcXInBytes,
                         .width = p->WidthInBytes,
                         .rows = p->Height,
                         .slices = 1,
                         .to_row = p->dstPitch,
                         .from_row = p->srcPitch};
  return null_copy_box(function, &all);
}
NULL_API(int, cuMemcpy2D_v2, const CUDA_MEMCPY2D *p) { return rows("cuMemcpy2D", p); }
NULL_API(int, cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *p) {
  return rows("cuMemcpy2DUnaligned", p);
}
NULL_API(int, cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *p, void *stream) {
  return rows("cuMemcpy2DAsync", p);
}
static int slices(const char *function, const CUDA_MEMCPY3D *p) {
  char *from = side(p->srcMemoryType, p->srcHost, p->srcDevice);
  char *to = side(p->dstMemoryType, p->dstHost, p->dstDevice);
  if (!from || !to) return null_refused(function);
  size_t from_slice = p->srcPitch * p->srcHeight, to_slice = p->dstPitch * p->dstHeight;
  struct null_box all = {
      .to = to + p->dstZ * to_slice + p->dstY * p->dstPitch + p->dstXInBytes,
      .from = from + p->srcZ * from_slice + p->srcY * p->srcPitch + p->srcXInBytes,
      .width = p->WidthInBytes,
      .rows = p->Height,
      .slices = p->Depth,
      .to_row = p->dstPitch,
      .from_row = p->srcPitch,
      .to_slice = to_slice,
      .from_slice = from_slice};
  return null_copy_box(function, &all);
}
NULL_API(int, cuMemcpy3D_v2, const CUDA_MEMCPY3D *p) { return slices("cuMemcpy3D", p); }
NULL_API(int, cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *p, void *stream) {
  return slices("cuMemcpy3DAsync", p);
}

#define FILL(name, type)                                                             \
  NULL_API(int, name##_v2, CUdeviceptr to, type value, size_t count) {               \
    return null_fill((void *)to, &value, sizeof value, count);                       \
  }                                                                                  \
  NULL_API(int, name##Async, CUdeviceptr to, type value, size_t count, void *stream) { \
    return null_fill((void *)to, &value, sizeof value, count);                       \
  }
FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)
