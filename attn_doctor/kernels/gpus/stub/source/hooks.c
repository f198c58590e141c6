/* Reports and counts what the examined program asked that only a GPU can answer.
 *
 * For the child process, through ctypes:
 *
 *     unsigned long stub_gpu_launches(void)
 *     void stub_gpu_on_read(void (*)(const char *function, const void *address, size_t bytes))
 *     void stub_gpu_on_timing(void (*)(const char *function))
 *     void stub_gpu_refuse(const char *text)      within a call-back: the call fails with this text
 *     const char *stub_gpu_unknown(void)          names of functions, one a line
 *     int stub_gpu_known(const void *address, size_t bytes)
 *
 * Call-backs run on the calling thread, without any of our locks.
 */
#define _GNU_SOURCE
#include "stub_gpu.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*on_read)(const char *function, const void *address, size_t bytes);
typedef void (*on_timing)(const char *function);

static atomic_ulong launches;
static _Atomic(on_read) reader;
static _Atomic(on_timing) timer;
static __thread char text[1024];
static __thread int text_of;
static __thread int refused;

void stub_launched(void) {
  stub_used();
  atomic_fetch_add(&launches, 1);
}
unsigned long stub_epoch(void) { return atomic_load(&launches); }

STUB_API(unsigned long, stub_gpu_launches, void) { return stub_epoch(); }
STUB_API(void, stub_gpu_on_read, on_read call) { atomic_store(&reader, call); }
STUB_API(void, stub_gpu_on_timing, on_timing call) { atomic_store(&timer, call); }
STUB_API(int, stub_gpu_known, const void *address, size_t bytes) {
  return stub_known(address, bytes);
}
STUB_API(void, stub_gpu_refuse, const char *words) {
  refused = 1;
  stub_fail(STUB_NOT_PERMITTED, "%s", words);
}

int stub_read(const char *function, uintptr_t address, size_t bytes) {
  on_read call = atomic_load(&reader);
  refused = 0;
  if (call) call(function, (const void *)address, bytes);
  return refused ? STUB_NOT_PERMITTED : STUB_OK;
}

int stub_timing(const char *function) {
  on_timing call = atomic_load(&timer);
  refused = 0;
  if (call) call(function);
  return refused ? STUB_NOT_PERMITTED : STUB_OK;
}

/* Names, each once, as one text that only grows, so that a reader sees complete names. */
enum { MOST_TEXT = 1 << 15 };
static char noted[MOST_TEXT];
static size_t noted_length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_noted(const char *name, size_t length) {
  for (const char *at = noted; (at = strstr(at, name)); at += length)
    if ((at == noted || at[-1] == '\n') && (at[length] == '\n' || !at[length])) return 1;
  return 0;
}

void stub_note(const char *function) {
  size_t length = strlen(function);
  pthread_mutex_lock(&lock);
  if (!is_noted(function, length) && noted_length + length + 2 < MOST_TEXT) {
    size_t start = noted_length ? noted_length + 1 : 0;
    memcpy(noted + start, function, length + 1);
    if (start) noted[start - 1] = '\n';
    noted_length = start + length;
  }
  pthread_mutex_unlock(&lock);
}

STUB_API(const char *, stub_gpu_unknown, void) { return noted; }

/* A process that uses the stub GPU creates an empty file. It reveals a process without a guard, such
 * as a Python that was started with -S. */
void stub_used(void) {
  static _Atomic pid_t reported;
  pid_t self = getpid();
  if (atomic_exchange(&reported, self) == self) return;
  const char *folder = getenv("ATTN_DOCTOR_STUB_GPU_REPORT");
  char path[4096];
  if (!folder || !*folder) return;
  if (snprintf(path, sizeof path, "%s/used-%ld", folder, (long)self) >= (int)sizeof path) return;
  int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) close(file);
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void load(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
}

int stub_fail(int code, const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  text_of = code;
  return code;
}

int stub_refused(const char *function) {
  stub_note(function);
  return stub_fail(STUB_NOT_SUPPORTED,
                   "the stub GPU cannot do %s: only a real GPU can answer", function);
}

static const struct {
  int code;
  const char *name, *words;
} errors[] = {
    {STUB_OK, "Success", "no error"},
    {STUB_INVALID_VALUE, "ErrorInvalidValue", "invalid argument"},
    {STUB_OUT_OF_MEMORY, "ErrorMemoryAllocation", "out of memory"},
    {STUB_NO_DEVICE, "ErrorNoDevice", "no CUDA-capable device is detected"},
    {STUB_INVALID_DEVICE, "ErrorInvalidDevice", "invalid device ordinal"},
    {301, "ErrorFileNotFound", "file not found"},
    {STUB_INVALID_HANDLE, "ErrorInvalidResourceHandle", "invalid resource handle"},
    {STUB_NOT_FOUND, "ErrorSymbolNotFound", "named symbol not found"},
    {STUB_NOT_PERMITTED, "ErrorNotPermitted", "operation not permitted"},
    {STUB_NOT_SUPPORTED, "ErrorNotSupported", "operation not supported"},
};

const char *stub_words(int code) {
  if (code && code == text_of && *text) return text;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return errors[i].words;
  return "an error of CUDA that the stub GPU never returns";
}

const char *stub_error_name(int code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return errors[i].name;
  return "ErrorUnknown";
}
