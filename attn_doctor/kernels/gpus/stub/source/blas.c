/* cuBLAS, as far as a matrix product goes: handles, settings, and products that do nothing.
 *
 * The functions that compute, and those that only set something, are generated (stubs.py).
 */
#define _GNU_SOURCE
#include "null.h"

#include <cuda.h>
#include <string.h>

/* Of this thread, as a handle is. */
static __thread int pointer_mode;

NULL_API(int, cublasCreate_v2, void **handle) {
  *handle = null_handle();
  return NULL_OK;
}
NULL_API(int, cublasLtCreate, void **handle) {
  *handle = null_handle();
  return NULL_OK;
}
NULL_API(int, cublasGetMathMode, void *handle, int *mode) {
  *mode = 0;
  return NULL_OK;
}
NULL_API(int, cublasGetPointerMode_v2, void *handle, int *mode) {
  *mode = pointer_mode;
  return NULL_OK;
}
NULL_API(int, cublasGetStream_v2, void *handle, void **stream) {
  *stream = 0;
  return NULL_OK;
}
/* The major version of the toolkit; which release of cuBLAS, the header does not tell. */
enum { VERSION = CUDA_VERSION / 1000 * 10000 };
NULL_API(int, cublasGetVersion_v2, void *handle, int *version) {
  *version = VERSION;
  return NULL_OK;
}
NULL_API(size_t, cublasLtGetVersion, void) { return VERSION; }
NULL_API(const char *, cublasGetStatusString, int code) { return null_words(code == 15 ? 801 : code); }
NULL_API(const char *, cublasLtGetStatusString, int code) { return null_words(code == 15 ? 801 : code); }
NULL_API(const char *, cublasGetStatusName, int code) { return null_error_name(code == 15 ? 801 : code); }
NULL_API(const char *, cublasLtGetStatusName, int code) { return null_error_name(code == 15 ? 801 : code); }

/* Descriptions are objects of the host, which only cuBLAS looks into. */
#define DESCRIPTION(name)                         \
  NULL_API(int, cublasLt##name##Create, void **made) { \
    *made = null_handle();                        \
    return NULL_OK;                               \
  }                                               \
  NULL_API(int, cublasLt##name##Destroy, void *made) { return NULL_OK; }
DESCRIPTION(MatmulDesc)
DESCRIPTION(MatmulPreference)
DESCRIPTION(MatrixLayout)
DESCRIPTION(MatrixTransformDesc)

/* One algorithm, of which nothing is known: the result's first field is its opaque part. */
NULL_API(int, cublasLtMatmulAlgoGetHeuristic, void *handle, void *operation, void *a, void *b,
         void *c, void *d, void *preference, int wanted, void *results, int *found) {
  null_note("cublasLtMatmulAlgoGetHeuristic");
  memset(results, 0, 64); /* cublasLtMatmulAlgo_t, and no workspace */
  *found = 1;
  return NULL_OK;
}

enum { BLAS_NOT_SUPPORTED = 15, HOST = 0 };
int null_blas_refused(const char *function) {
  null_refused(function);
  return BLAS_NOT_SUPPORTED;
}
/* A sum or a maximum, which goes to the host unless the caller has asked for the device. */
NULL_API(int, cublasSetPointerMode_v2, void *handle, int mode) {
  pointer_mode = mode;
  return NULL_OK;
}
int null_blas_told(const char *function) {
  null_launched();
  if (pointer_mode != HOST) return NULL_OK;
  null_note(function);
  return null_read(function, 0, 0) ? BLAS_NOT_SUPPORTED : NULL_OK;
}
