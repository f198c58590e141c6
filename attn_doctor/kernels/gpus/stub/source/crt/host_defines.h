/* Replaces the header of NVIDIA's compiler, which the runtime's wheel lacks: for a C compiler,
 * all that it defines is empty or an attribute of GCC. */
#ifndef __HOST_DEFINES_H__
#define __HOST_DEFINES_H__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __host__
#define __device__
#define __forceinline__ inline
#define __inline__ inline
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define NV_CLANG_ATOMIC_NOEXCEPT
#endif
