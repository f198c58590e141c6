/* The null GPU: what its parts know of one another.
 *
 * A CUDA driver and runtime whose devices have the properties of a GPU that is not here. Memory is
 * memory of the host, committed as it is written; a launch does nothing. What would have to be
 * computed is therefore unknown, and every way by which unknown bytes reach the host is reported.
 */
#ifndef ATTN_DOCTOR_NULL_H
#define ATTN_DOCTOR_NULL_H

#include <stddef.h>
#include <stdint.h>

/* Defines an exported function `name`. In C it goes by null_<name>: NVIDIA's headers may declare
 * the same name with the types of another version, or make a macro of it. */
#define NULL_API(type, name, ...)                                                              \
  type null_##name(__VA_ARGS__) __asm__(#name) __attribute__((visibility("default"), used)); \
  type null_##name(__VA_ARGS__)

/* Error numbers that CUDA's runtime and driver share. */
enum {
  NULL_OK = 0,
  NULL_INVALID_VALUE = 1,
  NULL_OUT_OF_MEMORY = 2,
  NULL_NO_DEVICE = 100,
  NULL_INVALID_DEVICE = 101,
  NULL_INVALID_HANDLE = 400,
  NULL_NOT_FOUND = 500,
  NULL_NOT_PERMITTED = 800,
  NULL_NOT_SUPPORTED = 801
};

/* target.c: the GPU that this one stands for */
enum { NULL_ATTRIBUTES = 512, NULL_MOST_DEVICES = 64 };
struct null_target {
  char name[256];
  size_t memory; /* bytes of one device */
  int devices;   /* 0 without a target: then there is no GPU at all */
  int driver;    /* the CUDA that its driver serves, such as 13000 */
};
const struct null_target *null_target(void);
/* Devices that CUDA_VISIBLE_DEVICES leaves, and the number of one of them without it. */
int null_visible(void);
int null_physical(int device);
/* The value of a CUdevice_attribute, which is a cudaDeviceAttr too. False if nobody knows it. */
int null_attribute(int number, int *value);
/* The value, or 0 where it is not known: for fields that no caller can tell apart. */
int null_value(int number);
void null_uuid(int device, unsigned char uuid[16]);
void null_uuid_text(int device, char *text, size_t size);
void null_bus(int device, int *domain, int *bus, int *slot);

/* hooks.c: what the examined program did that only a GPU can answer */
void null_launched(void);
/* Something was allocated or launched in this process. */
void null_used(void);
unsigned long null_epoch(void);
/* `function` has given an answer that only a GPU knows. */
void null_note(const char *function);
/* Unknown bytes are about to reach the host. An error number, or 0 to go on. */
int null_read(const char *function, uintptr_t address, size_t bytes);
/* A time is asked for. An error number, or 0 to go on. */
int null_timing(const char *function);
/* An error of this thread with words of its own. Returns `code`. */
int null_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `function` cannot be done without the GPU. Returns NULL_NOT_SUPPORTED, and notes the name. */
int null_refused(const char *function);
/* The words for an error number: those of the last failure of this thread if it had that number. */
const char *null_words(int code);
const char *null_error_name(int code);

/* device.c: the current device of a thread, and handles */
int null_current(void);
int null_set_current(int device);
/* An error number if there is no such device. */
int null_device(int device);
/* A device has a context once it was used. */
int null_touched(int device);
void null_touch(int device);
/* The current device is about to be used: an error number if there is none. */
int null_here(void);
/* The primary context of device 0; there are no others than primary ones. */
enum { NULL_CONTEXT = 0x10 };
void *null_handle(void);
int null_limit(int limit, size_t *value);
int null_set_limit(int limit, size_t value);

/* runtime.c: the last error of a thread. All of the runtime's functions end with it. */
int null_done(int code);
int null_runtime_refused(const char *function);
/* blas.c */
int null_blas_refused(const char *function);
int null_blas_told(const char *function);

/* memory.c */
enum null_kind { NULL_DEVICE = 1, NULL_HOST = 2 };
struct null_place {
  enum null_kind kind;
  int device;
  uintptr_t start;
  size_t size;
};
int null_allocate(void **pointer, size_t bytes, int device);
int null_free(void *pointer);
size_t null_allocated(int device);
size_t null_allocated_most(int device);
/* Where a pointer lies; false outside all memory of ours. */
int null_find(const void *pointer, struct null_place *place);
int null_host_allocate(void **pointer, size_t bytes);
int null_host_free(void *pointer);
int null_host_register(void *pointer, size_t bytes);
int null_host_unregister(void *pointer);
/* Ranges of addresses whose memory is mapped later. */
int null_reserve(void **pointer, size_t bytes, size_t alignment);
int null_release(void *pointer, size_t bytes);
int null_commit(size_t bytes, int device);
void null_decommit(size_t bytes, int device);
int null_map(void *pointer, size_t bytes, int device);
int null_unmap(void *pointer, size_t bytes);
/* Whether the bytes are those that a GPU would hold now. */
int null_known(const void *pointer, size_t bytes);

struct null_box { /* rows × slices of `width` bytes */
  void *to;
  const void *from;
  size_t width, rows, slices;
  size_t to_row, from_row, to_slice, from_slice; /* bytes from one to the next */
};
int null_copy(const char *function, void *to, const void *from, size_t bytes);
int null_copy_box(const char *function, const struct null_box *box);
int null_fill(void *to, const void *pattern, size_t unit, size_t count);

/* cubin.c */
struct null_function {
  char *name;
  int registers, local, shared, constant, threads;
};
struct null_module;
int null_module_of(struct null_module **module, const void *image, size_t size);
int null_module_at(struct null_module **module, const char *path);
void null_module_end(struct null_module *module);
struct null_function *null_function_named(struct null_module *module, const char *name);
int null_function_count(const struct null_module *module);
struct null_function *null_function_at(struct null_module *module, int index);
/* A variable of the module, in memory of the device. */
int null_variable(struct null_module *module, const char *name, void **pointer, size_t *bytes);

/* stubs: made for each environment, see stubs.py */
void *null_entry(const char *name);

#endif
