/* The current device of each thread, which devices were used, and handles without objects.
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <stdatomic.h>

static __thread int current;
static _Atomic char touched[STUB_MOST_DEVICES];

int stub_current(void) { return current; }

int stub_device(int device) {
  if (!stub_visible()) return stub_fail(STUB_NO_DEVICE, "no CUDA-capable device is detected");
  if (device < 0 || device >= stub_visible())
    return stub_fail(STUB_INVALID_DEVICE, "invalid device ordinal");
  return STUB_OK;
}

int stub_set_current(int device) {
  int code = stub_device(device);
  if (!code) current = device;
  return code;
}

int stub_touched(int device) {
  return device >= 0 && device < STUB_MOST_DEVICES && touched[device];
}

void stub_touch(int device) {
  if (device >= 0 && device < STUB_MOST_DEVICES) touched[device] = 1;
}

int stub_here(void) {
  int code = stub_device(current);
  if (!code) stub_touch(current);
  return code;
}

/* Never 0, which is the default stream, nor 1 or 2, the legacy and the per-thread one. */
void *stub_handle(void) {
  static atomic_uintptr_t last = 0x1000;
  return (void *)(atomic_fetch_add(&last, 16) + 16);
}

/* Limits of a device, as far as they were set: what a driver begins with, only it knows. */
enum { MOST_LIMITS = 16 };
static _Atomic size_t limits[STUB_MOST_DEVICES][MOST_LIMITS];
static _Atomic char limited[STUB_MOST_DEVICES][MOST_LIMITS];

int stub_limit(int limit, size_t *value) {
  if (limit < 0 || limit >= MOST_LIMITS || !limited[current][limit]) return 0;
  *value = limits[current][limit];
  return 1;
}

int stub_set_limit(int limit, size_t value) {
  if (limit < 0 || limit >= MOST_LIMITS) return stub_fail(STUB_NOT_SUPPORTED, "no such limit");
  limits[current][limit] = value;
  limited[current][limit] = 1;
  return STUB_OK;
}
