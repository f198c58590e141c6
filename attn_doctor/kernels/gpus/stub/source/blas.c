/* cuBLAS, as far as a matrix product goes: handles, settings, and products that do nothing.
 *
 * The functions that compute, and those that only set something, are generated (generated.py).
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <cuda.h>
#include <string.h>

/* Of this thread, as a handle is. */
static __thread int pointer_mode;

STUB_API(int, cublasCreate_v2, void **handle) {
  *handle = stub_handle();
  return STUB_OK;
}
STUB_API(int, cublasLtCreate, void **handle) {
  *handle = stub_handle();
  return STUB_OK;
}
STUB_API(int, cublasGetMathMode, void *handle, int *mode) {
  *mode = 0;
  return STUB_OK;
}
STUB_API(int, cublasGetPointerMode_v2, void *handle, int *mode) {
  *mode = pointer_mode;
  return STUB_OK;
}
STUB_API(int, cublasGetStream_v2, void *handle, void **stream) {
  *stream = 0;
  return STUB_OK;
}
/* The major version of the toolkit; the header does not name the release of cuBLAS. */
enum { VERSION = CUDA_VERSION / 1000 * 10000 };
STUB_API(int, cublasGetVersion_v2, void *handle, int *version) {
  *version = VERSION;
  return STUB_OK;
}
STUB_API(size_t, cublasLtGetVersion, void) { return VERSION; }
STUB_API(const char *, cublasGetStatusString, int code) { return stub_words(code == 15 ? 801 : code); }
STUB_API(const char *, cublasLtGetStatusString, int code) { return stub_words(code == 15 ? 801 : code); }
STUB_API(const char *, cublasGetStatusName, int code) { return stub_error_name(code == 15 ? 801 : code); }
STUB_API(const char *, cublasLtGetStatusName, int code) { return stub_error_name(code == 15 ? 801 : code); }

/* Descriptors are objects of the host that only cuBLAS reads. */
#define DESCRIPTION(name)                         \
  STUB_API(int, cublasLt##name##Create, void **made) { \
    *made = stub_handle();                        \
    return STUB_OK;                               \
  }                                               \
  STUB_API(int, cublasLt##name##Destroy, void *made) { return STUB_OK; }
DESCRIPTION(MatmulDesc)
DESCRIPTION(MatmulPreference)
DESCRIPTION(MatrixLayout)
DESCRIPTION(MatrixTransformDesc)

/* One algorithm without properties: the result's first field is its opaque part. */
STUB_API(int, cublasLtMatmulAlgoGetHeuristic, void *handle, void *operation, void *a, void *b,
         void *c, void *d, void *preference, int wanted, void *results, int *found) {
  stub_note("cublasLtMatmulAlgoGetHeuristic");
  memset(results, 0, 64); /* cublasLtMatmulAlgo_t, and no workspace */
  *found = 1;
  return STUB_OK;
}

enum { BLAS_NOT_SUPPORTED = 15, HOST = 0 };
int stub_blas_refused(const char *function) {
  stub_refused(function);
  return BLAS_NOT_SUPPORTED;
}
/* A sum or a maximum, which goes to the host unless the caller has asked for the device. */
STUB_API(int, cublasSetPointerMode_v2, void *handle, int mode) {
  pointer_mode = mode;
  return STUB_OK;
}
int stub_blas_refused_result(const char *function) {
  stub_launched();
  if (pointer_mode != HOST) return STUB_OK;
  stub_note(function);
  return stub_read(function, 0, 0) ? BLAS_NOT_SUPPORTED : STUB_OK;
}
