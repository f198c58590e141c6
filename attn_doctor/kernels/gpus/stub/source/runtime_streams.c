/* The CUDA runtime: streams and events. All is done when it is asked for, in that order. */
#define _GNU_SOURCE
#include "null.h"

NULL_API(int, cudaStreamCreate, void **stream) {
  int code = null_here();
  *stream = code ? 0 : null_handle();
  return null_done(code);
}
NULL_API(int, cudaStreamCreateWithFlags, void **stream, unsigned flags) {
  return null_cudaStreamCreate(stream);
}
NULL_API(int, cudaStreamCreateWithPriority, void **stream, unsigned flags, int priority) {
  return null_cudaStreamCreate(stream);
}
NULL_API(int, cudaStreamDestroy, void *stream) { return NULL_OK; }
NULL_API(int, cudaStreamSynchronize, void *stream) { return NULL_OK; }
NULL_API(int, cudaStreamQuery, void *stream) { return NULL_OK; }
NULL_API(int, cudaStreamWaitEvent, void *stream, void *event, unsigned flags) { return NULL_OK; }
NULL_API(int, cudaStreamGetPriority, void *stream, int *priority) {
  *priority = 0;
  return NULL_OK;
}
NULL_API(int, cudaStreamGetFlags, void *stream, unsigned *flags) {
  *flags = 0;
  return NULL_OK;
}
NULL_API(int, cudaStreamGetDevice, void *stream, int *device) {
  *device = null_current();
  return NULL_OK;
}
NULL_API(int, cudaStreamGetId, void *stream, unsigned long long *id) {
  *id = (uintptr_t)stream;
  return NULL_OK;
}
NULL_API(int, cudaStreamAttachMemAsync, void *stream) { return NULL_OK; }
NULL_API(int, cudaStreamSetAttribute, void *stream, int attribute, const void *value) {
  return NULL_OK;
}
NULL_API(int, cudaLaunchHostFunc, void *stream, void (*call)(void *), void *data) {
  call(data);
  return NULL_OK;
}
NULL_API(int, cudaStreamAddCallback, void *stream, void (*call)(void *, int, void *), void *data,
         unsigned flags) {
  call(stream, NULL_OK, data);
  return NULL_OK;
}
/* No stream is ever being captured: beginning a capture is refused. */
NULL_API(int, cudaStreamIsCapturing, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cudaStreamGetCaptureInfo, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cudaStreamGetCaptureInfo_v2, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
NULL_API(int, cudaStreamGetCaptureInfo_v3, void *stream, int *status) {
  *status = 0;
  return NULL_OK;
}
static __thread int capture_mode;
NULL_API(int, cudaThreadExchangeStreamCaptureMode, int *mode) {
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return NULL_OK;
}
NULL_API(int, cudaEventCreate, void **event) { return null_cudaStreamCreate(event); }
NULL_API(int, cudaEventCreateWithFlags, void **event, unsigned flags) {
  return null_cudaStreamCreate(event);
}
NULL_API(int, cudaEventDestroy, void *event) { return NULL_OK; }
NULL_API(int, cudaEventRecord, void *event, void *stream) { return NULL_OK; }
NULL_API(int, cudaEventRecordWithFlags, void *event, void *stream, unsigned flags) {
  return NULL_OK;
}
NULL_API(int, cudaEventSynchronize, void *event) { return NULL_OK; }
NULL_API(int, cudaEventQuery, void *event) { return NULL_OK; }
/* Not 0, by which benchmarks divide. */
static int elapsed(const char *function, float *milliseconds) {
  *milliseconds = 0.1f;
  return null_done(null_timing(function));
}
NULL_API(int, cudaEventElapsedTime, float *milliseconds, void *start, void *end) {
  return elapsed("cudaEventElapsedTime", milliseconds);
}
NULL_API(int, cudaEventElapsedTime_v2, float *milliseconds, void *start, void *end) {
  return elapsed("cudaEventElapsedTime", milliseconds);
}
