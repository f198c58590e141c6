/* Memory of the devices: addresses that nothing stands behind until it is written. */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t LARGE_PAGE = (size_t)2 << 20;

static struct block **blocks; /* in order of their start */
static size_t block_count, block_room;
static size_t allocated[NULL_MOST_DEVICES], most[NULL_MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void null_lock(void) { pthread_mutex_lock(&lock); }
void null_unlock(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void load(void) {
  pthread_atfork(null_lock, null_unlock, null_unlock);
}

/* Blocks. All that follows is called with the lock held, unless it is part of null.h. */

/* The number of blocks that start at or before `at`. */
static size_t position(uintptr_t at) {
  size_t low = 0, high = block_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (blocks[middle]->start <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The block that holds this address. Blocks never overlap. */
struct block *null_block(const void *pointer) {
  size_t i = position((uintptr_t)pointer);
  if (!i) return 0;
  struct block *one = blocks[i - 1];
  return (uintptr_t)pointer - one->start < one->size ? one : 0;
}

struct block *null_block_number(size_t number) {
  return number < block_count ? blocks[number] : 0;
}

static struct block *block_at(const void *pointer, enum null_kind kind) {
  struct block *one = null_block(pointer);
  return one && one->kind == kind && one->start == (uintptr_t)pointer ? one : 0;
}

static int add(uintptr_t start, size_t size, enum null_kind kind, int device) {
  if (block_count == block_room) {
    size_t room = block_room ? block_room * 2 : 256;
    struct block **more = realloc(blocks, room * sizeof *more);
    if (!more) return NULL_OUT_OF_MEMORY;
    blocks = more;
    block_room = room;
  }
  struct block *one = calloc(1, sizeof *one);
  if (!one) return NULL_OUT_OF_MEMORY;
  one->start = start;
  one->size = size;
  one->kind = kind;
  one->device = device;
  size_t i = position(start);
  memmove(blocks + i + 1, blocks + i, (block_count - i) * sizeof *blocks);
  blocks[i] = one;
  block_count++;
  return NULL_OK;
}

static void drop(struct block *one) {
  size_t i = position(one->start) - 1;
  memmove(blocks + i, blocks + i + 1, (block_count - i - 1) * sizeof *blocks);
  block_count--;
  null_forget_kept(one);
  free(one->known);
  free(one);
}

/* Allocation */

static uintptr_t aligned(size_t bytes, size_t alignment) {
  char *raw = mmap(0, bytes + alignment, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 0;
  uintptr_t start = ((uintptr_t)raw + alignment - 1) & ~(alignment - 1);
  size_t before = start - (uintptr_t)raw, after = alignment - before;
  if (before) munmap(raw, before);
  if (after) munmap((char *)start + bytes, after);
  return start;
}

static int count(int device, size_t bytes) {
  if (bytes > null_target()->memory - allocated[device]) return 0;
  allocated[device] += bytes;
  if (allocated[device] > most[device]) most[device] = allocated[device];
  return 1;
}

static int too_much(int device, size_t bytes) {
  return null_fail(NULL_OUT_OF_MEMORY, "out of memory: %zu bytes asked, %zu of %zu in use", bytes,
                   allocated[device], null_target()->memory);
}

int null_allocate(void **pointer, size_t bytes, int device) {
  *pointer = 0;
  if (!bytes) return NULL_OK;
  null_used();
  if (bytes > null_target()->memory) return too_much(device, bytes);
  bytes = (bytes + NULL_PAGE - 1) & ~(size_t)(NULL_PAGE - 1);
  int code = NULL_OK;
  null_lock();
  if (!count(device, bytes)) {
    code = too_much(device, bytes);
  } else {
    uintptr_t start = aligned(bytes, LARGE_PAGE);
    if (!start)
      code = null_fail(NULL_OUT_OF_MEMORY,
                       "this machine does not let %zu bytes be reserved for the null GPU"
                       " (ulimit -v, or vm.overcommit_memory = 2)", bytes);
    else if ((code = add(start, bytes, NULL_DEVICE, device)))
      munmap((void *)start, bytes);
    if (code)
      allocated[device] -= bytes;
    else
      *pointer = (void *)start;
  }
  null_unlock();
  return code;
}

int null_free(void *pointer) {
  if (!pointer) return NULL_OK;
  int code = NULL_INVALID_VALUE;
  null_lock();
  struct block *one = block_at(pointer, NULL_DEVICE);
  if (one && !one->reserved) {
    code = NULL_OK;
    allocated[one->device] -= one->size;
    munmap(pointer, one->size);
    drop(one);
  }
  null_unlock();
  return code ? null_fail(code, "invalid argument: %p was not allocated", pointer) : code;
}

size_t null_allocated(int device) { return allocated[device]; }
size_t null_allocated_most(int device) { return most[device]; }

int null_find(const void *pointer, struct null_place *place) {
  null_lock();
  struct block *one = null_block(pointer);
  if (one) *place = (struct null_place){one->kind, one->device, one->start, one->size};
  null_unlock();
  return one != 0;
}

int null_host_register(void *pointer, size_t bytes) {
  null_lock();
  int code = add((uintptr_t)pointer, bytes, NULL_HOST, null_current());
  null_unlock();
  return code;
}

int null_host_unregister(void *pointer) {
  null_lock();
  struct block *one = block_at(pointer, NULL_HOST);
  if (one) drop(one);
  null_unlock();
  return one ? NULL_OK
             : null_fail(NULL_INVALID_VALUE, "invalid argument: %p was not registered", pointer);
}

int null_host_allocate(void **pointer, size_t bytes) {
  *pointer = 0;
  if (!bytes) return NULL_OK;
  if (posix_memalign(pointer, NULL_PAGE, bytes)) return null_fail(NULL_OUT_OF_MEMORY, "out of memory");
  return null_host_register(*pointer, bytes);
}

int null_host_free(void *pointer) {
  int code = pointer ? null_host_unregister(pointer) : NULL_OK;
  if (!code) free(pointer);
  return code;
}

/* Addresses and memory apart. The whole range is one block, since copies go across its parts. */

int null_reserve(void **pointer, size_t bytes, size_t alignment) {
  null_lock();
  uintptr_t start = aligned(bytes, alignment < LARGE_PAGE ? LARGE_PAGE : alignment);
  int code = start ? add(start, bytes, NULL_DEVICE, null_current()) : NULL_OUT_OF_MEMORY;
  if (!code)
    null_block((void *)start)->reserved = 1;
  else if (start)
    munmap((void *)start, bytes);
  null_unlock();
  *pointer = code ? 0 : (void *)start;
  return code ? null_fail(code, "out of memory: %zu bytes of addresses", bytes) : code;
}

int null_release(void *pointer, size_t bytes) {
  null_lock();
  struct block *one = block_at(pointer, NULL_DEVICE);
  int found = one && one->reserved && one->size == bytes;
  if (found) {
    munmap(pointer, bytes);
    drop(one);
  }
  null_unlock();
  return found ? NULL_OK : null_fail(NULL_INVALID_VALUE, "invalid argument: not reserved");
}

int null_commit(size_t bytes, int device) {
  null_used();
  null_lock();
  int code = count(device, bytes) ? NULL_OK : too_much(device, bytes);
  null_unlock();
  return code;
}

void null_decommit(size_t bytes, int device) {
  null_lock();
  allocated[device] -= bytes;
  null_unlock();
}

int null_map(void *pointer, size_t bytes, int device) {
  null_lock();
  struct block *one = null_block(pointer);
  int found = one && one->reserved && bytes <= one->size - ((uintptr_t)pointer - one->start);
  if (found) one->device = device;
  null_unlock();
  return found ? NULL_OK : null_fail(NULL_INVALID_VALUE, "invalid argument: not reserved");
}

int null_unmap(void *pointer, size_t bytes) {
  uintptr_t start = (uintptr_t)pointer;
  null_lock();
  struct block *one = null_block(pointer);
  int found = one && one->reserved && bytes <= one->size - (start - one->start);
  if (found) {
    madvise(pointer, bytes, MADV_DONTNEED);
    null_forget(one, start, start + bytes);
  }
  null_unlock();
  return found ? NULL_OK : null_fail(NULL_INVALID_VALUE, "invalid argument: not reserved");
}
