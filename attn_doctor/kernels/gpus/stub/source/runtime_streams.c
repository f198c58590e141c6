/* The CUDA runtime: streams and events. Every call completes at once, in order. */
#define _GNU_SOURCE
#include "stub_gpu.h"

STUB_API(int, cudaStreamCreate, void **stream) {
  int code = stub_here();
  *stream = code ? 0 : stub_handle();
  return stub_done(code);
}
STUB_API(int, cudaStreamCreateWithFlags, void **stream, unsigned flags) {
  return stub_cudaStreamCreate(stream);
}
STUB_API(int, cudaStreamCreateWithPriority, void **stream, unsigned flags, int priority) {
  return stub_cudaStreamCreate(stream);
}
STUB_API(int, cudaStreamDestroy, void *stream) { return STUB_OK; }
STUB_API(int, cudaStreamSynchronize, void *stream) { return STUB_OK; }
STUB_API(int, cudaStreamQuery, void *stream) { return STUB_OK; }
STUB_API(int, cudaStreamWaitEvent, void *stream, void *event, unsigned flags) { return STUB_OK; }
STUB_API(int, cudaStreamGetPriority, void *stream, int *priority) {
  *priority = 0;
  return STUB_OK;
}
STUB_API(int, cudaStreamGetFlags, void *stream, unsigned *flags) {
  *flags = 0;
  return STUB_OK;
}
STUB_API(int, cudaStreamGetDevice, void *stream, int *device) {
  *device = stub_current();
  return STUB_OK;
}
STUB_API(int, cudaStreamGetId, void *stream, unsigned long long *id) {
  *id = (uintptr_t)stream;
  return STUB_OK;
}
STUB_API(int, cudaStreamAttachMemAsync, void *stream) { return STUB_OK; }
STUB_API(int, cudaStreamSetAttribute, void *stream, int attribute, const void *value) {
  return STUB_OK;
}
STUB_API(int, cudaLaunchHostFunc, void *stream, void (*call)(void *), void *data) {
  call(data);
  return STUB_OK;
}
STUB_API(int, cudaStreamAddCallback, void *stream, void (*call)(void *, int, void *), void *data,
         unsigned flags) {
  call(stream, STUB_OK, data);
  return STUB_OK;
}
/* No stream is ever being captured: beginning a capture is refused. */
STUB_API(int, cudaStreamIsCapturing, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cudaStreamGetCaptureInfo, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cudaStreamGetCaptureInfo_v2, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
STUB_API(int, cudaStreamGetCaptureInfo_v3, void *stream, int *status) {
  *status = 0;
  return STUB_OK;
}
static __thread int capture_mode;
STUB_API(int, cudaThreadExchangeStreamCaptureMode, int *mode) {
  int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return STUB_OK;
}
STUB_API(int, cudaEventCreate, void **event) { return stub_cudaStreamCreate(event); }
STUB_API(int, cudaEventCreateWithFlags, void **event, unsigned flags) {
  return stub_cudaStreamCreate(event);
}
STUB_API(int, cudaEventDestroy, void *event) { return STUB_OK; }
STUB_API(int, cudaEventRecord, void *event, void *stream) { return STUB_OK; }
STUB_API(int, cudaEventRecordWithFlags, void *event, void *stream, unsigned flags) {
  return STUB_OK;
}
STUB_API(int, cudaEventSynchronize, void *event) { return STUB_OK; }
STUB_API(int, cudaEventQuery, void *event) { return STUB_OK; }
/* Not 0, by which benchmarks divide. */
static int elapsed(const char *function, float *milliseconds) {
  *milliseconds = 0.1f;
  return stub_done(stub_timing(function));
}
STUB_API(int, cudaEventElapsedTime, float *milliseconds, void *start, void *end) {
  return elapsed("cudaEventElapsedTime", milliseconds);
}
STUB_API(int, cudaEventElapsedTime_v2, float *milliseconds, void *start, void *end) {
  return elapsed("cudaEventElapsedTime", milliseconds);
}
