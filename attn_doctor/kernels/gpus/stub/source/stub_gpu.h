/* The stub GPU: the interface between its parts.
 *
 * A CUDA driver and runtime whose devices have the properties of a GPU that is not here. Memory is
 * memory of the host, committed as it is written; a launch does nothing. Computed values
 * are therefore unknown, and every way by which unknown bytes reach the host is reported.
 */
#ifndef ATTN_DOCTOR_STUB_GPU_H
#define ATTN_DOCTOR_STUB_GPU_H

#include <stddef.h>
#include <stdint.h>

/* Defines an exported function `name`. In C it goes by stub_<name>: NVIDIA's headers may declare
 * the same name with the types of another version, or make a macro of it. */
#define STUB_API(type, name, ...)                                                              \
  type stub_##name(__VA_ARGS__) __asm__(#name) __attribute__((visibility("default"), used)); \
  type stub_##name(__VA_ARGS__)

/* Error numbers that CUDA's runtime and driver share. */
enum {
  STUB_OK = 0,
  STUB_INVALID_VALUE = 1,
  STUB_OUT_OF_MEMORY = 2,
  STUB_NO_DEVICE = 100,
  STUB_INVALID_DEVICE = 101,
  STUB_INVALID_HANDLE = 400,
  STUB_NOT_FOUND = 500,
  STUB_NOT_PERMITTED = 800,
  STUB_NOT_SUPPORTED = 801
};

/* target.c: the GPU whose properties this one has */
enum { STUB_ATTRIBUTES = 512, STUB_MOST_DEVICES = 64 };
struct stub_target {
  char name[256];
  size_t memory; /* bytes of one device */
  int devices;   /* 0 without a target: then there is no GPU at all */
  int driver;    /* the CUDA that its driver serves, such as 13000 */
};
const struct stub_target *stub_target(void);
/* Devices that CUDA_VISIBLE_DEVICES leaves, and the number of one of them without it. */
int stub_visible(void);
int stub_physical(int device);
/* The value of a CUdevice_attribute, which is a cudaDeviceAttr too. False if it is unknown. */
int stub_attribute(int number, int *value);
/* The value, or 0 where it is not known: for fields that no caller can tell apart. */
int stub_value(int number);
void stub_uuid(int device, unsigned char uuid[16]);
void stub_uuid_text(int device, char *text, size_t size);
void stub_bus(int device, int *domain, int *bus, int *slot);

/* hooks.c: what the examined program did that only a GPU can answer */
void stub_launched(void);
/* Something was allocated or launched in this process. */
void stub_used(void);
unsigned long stub_epoch(void);
/* `function` has given an answer that only a GPU knows. */
void stub_note(const char *function);
/* Unknown bytes are about to reach the host. An error number, or 0 to go on. */
int stub_read(const char *function, uintptr_t address, size_t bytes);
/* A time is asked for. An error number, or 0 to go on. */
int stub_timing(const char *function);
/* Set an error of this thread with its own text. Returns `code`. */
int stub_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `function` cannot be done without the GPU. Returns STUB_NOT_SUPPORTED, and notes the name. */
int stub_refused(const char *function);
/* The words for an error number: those of the last failure of this thread if it had that number. */
const char *stub_words(int code);
const char *stub_error_name(int code);

/* device.c: the current device of a thread, and handles */
int stub_current(void);
int stub_set_current(int device);
/* An error number if there is no such device. */
int stub_device(int device);
/* A device has a context once it was used. */
int stub_touched(int device);
void stub_touch(int device);
/* The current device is about to be used: an error number if there is none. */
int stub_here(void);
/* The primary context of device 0; all contexts are primary. */
enum { STUB_CONTEXT = 0x10 };
void *stub_handle(void);
int stub_limit(int limit, size_t *value);
int stub_set_limit(int limit, size_t value);

/* runtime.c: the last error of a thread. All of the runtime's functions end with it. */
int stub_done(int code);
int stub_runtime_refused(const char *function);
/* blas.c */
int stub_blas_refused(const char *function);
int stub_blas_refused_result(const char *function);

/* memory.c */
enum stub_kind { STUB_DEVICE = 1, STUB_HOST = 2 };
struct stub_place {
  enum stub_kind kind;
  int device;
  uintptr_t start;
  size_t size;
};
int stub_allocate(void **pointer, size_t bytes, int device);
int stub_free(void *pointer);
size_t stub_allocated(int device);
size_t stub_allocated_most(int device);
/* The place of a pointer; false outside our memory. */
int stub_find(const void *pointer, struct stub_place *place);
int stub_host_allocate(void **pointer, size_t bytes);
int stub_host_free(void *pointer);
int stub_host_register(void *pointer, size_t bytes);
int stub_host_unregister(void *pointer);
/* Ranges of addresses whose memory is mapped later. */
int stub_reserve(void **pointer, size_t bytes, size_t alignment);
int stub_release(void *pointer, size_t bytes);
int stub_commit(size_t bytes, int device);
void stub_decommit(size_t bytes, int device);
int stub_map(void *pointer, size_t bytes, int device);
int stub_unmap(void *pointer, size_t bytes);
/* Whether the bytes are those that a GPU would hold now. */
int stub_known(const void *pointer, size_t bytes);

struct stub_box { /* rows × slices of `width` bytes */
  void *to;
  const void *from;
  size_t width, rows, slices;
  size_t to_row, from_row, to_slice, from_slice; /* bytes from one to the next */
};
int stub_copy(const char *function, void *to, const void *from, size_t bytes);
int stub_copy_box(const char *function, const struct stub_box *box);
int stub_fill(void *to, const void *pattern, size_t unit, size_t count);

/* cubin.c */
struct stub_function {
  char *name;
  int registers, local, shared, constant, threads;
};
struct stub_module;
int stub_module_of(struct stub_module **module, const void *image, size_t size);
int stub_module_at(struct stub_module **module, const char *path);
void stub_module_end(struct stub_module *module);
struct stub_function *stub_function_named(struct stub_module *module, const char *name);
int stub_function_count(const struct stub_module *module);
struct stub_function *stub_function_at(struct stub_module *module, int index);
/* A variable of the module, in memory of the device. */
int stub_variable(struct stub_module *module, const char *name, void **pointer, size_t *bytes);

/* Generated for each environment, see generated.py */
void *stub_entry(const char *name);

#endif
