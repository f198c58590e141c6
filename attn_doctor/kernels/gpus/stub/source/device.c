/* The current device of each thread, which devices were used, and handles that stand for nothing.
 */
#define _GNU_SOURCE
#include "null.h"

#include <stdatomic.h>

static __thread int current;
static _Atomic char touched[NULL_MOST_DEVICES];

int null_current(void) { return current; }

int null_device(int device) {
  if (!null_visible()) return null_fail(NULL_NO_DEVICE, "no CUDA-capable device is detected");
  if (device < 0 || device >= null_visible())
    return null_fail(NULL_INVALID_DEVICE, "invalid device ordinal");
  return NULL_OK;
}

int null_set_current(int device) {
  int code = null_device(device);
  if (!code) current = device;
  return code;
}

int null_touched(int device) {
  return device >= 0 && device < NULL_MOST_DEVICES && touched[device];
}

void null_touch(int device) {
  if (device >= 0 && device < NULL_MOST_DEVICES) touched[device] = 1;
}

int null_here(void) {
  int code = null_device(current);
  if (!code) null_touch(current);
  return code;
}

/* Never 0, which is the default stream, nor 1 or 2, the legacy and the per-thread one. */
void *null_handle(void) {
  static atomic_uintptr_t last = 0x1000;
  return (void *)(atomic_fetch_add(&last, 16) + 16);
}

/* Limits of a device, as far as they were set: what a driver begins with, only it knows. */
enum { MOST_LIMITS = 16 };
static _Atomic size_t limits[NULL_MOST_DEVICES][MOST_LIMITS];
static _Atomic char limited[NULL_MOST_DEVICES][MOST_LIMITS];

int null_limit(int limit, size_t *value) {
  if (limit < 0 || limit >= MOST_LIMITS || !limited[current][limit]) return 0;
  *value = limits[current][limit];
  return 1;
}

int null_set_limit(int limit, size_t value) {
  if (limit < 0 || limit >= MOST_LIMITS) return null_fail(NULL_NOT_SUPPORTED, "no such limit");
  limits[current][limit] = value;
  limited[current][limit] = 1;
  return NULL_OK;
}
