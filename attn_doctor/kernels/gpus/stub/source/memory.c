/* Memory of the devices: addresses without memory behind them until they are written. */
#define _GNU_SOURCE
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t LARGE_PAGE = (size_t)2 << 20;

static struct block **blocks; /* in order of their start */
static size_t block_count, block_room;
static size_t allocated[STUB_MOST_DEVICES], most[STUB_MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void stub_lock(void) { pthread_mutex_lock(&lock); }
void stub_unlock(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void load(void) {
  pthread_atfork(stub_lock, stub_unlock, stub_unlock);
}

/* Blocks. All that follows is called with the lock held, unless it is part of stub_gpu.h. */

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
struct block *stub_block(const void *pointer) {
  size_t i = position((uintptr_t)pointer);
  if (!i) return 0;
  struct block *one = blocks[i - 1];
  return (uintptr_t)pointer - one->start < one->size ? one : 0;
}

struct block *stub_block_number(size_t number) {
  return number < block_count ? blocks[number] : 0;
}

static struct block *block_at(const void *pointer, enum stub_kind kind) {
  struct block *one = stub_block(pointer);
  return one && one->kind == kind && one->start == (uintptr_t)pointer ? one : 0;
}

static int add(uintptr_t start, size_t size, enum stub_kind kind, int device) {
  if (block_count == block_room) {
    size_t room = block_room ? block_room * 2 : 256;
    struct block **more = realloc(blocks, room * sizeof *more);
    if (!more) return STUB_OUT_OF_MEMORY;
    blocks = more;
    block_room = room;
  }
  struct block *one = calloc(1, sizeof *one);
  if (!one) return STUB_OUT_OF_MEMORY;
  one->start = start;
  one->size = size;
  one->kind = kind;
  one->device = device;
  size_t i = position(start);
  memmove(blocks + i + 1, blocks + i, (block_count - i) * sizeof *blocks);
  blocks[i] = one;
  block_count++;
  return STUB_OK;
}

static void drop(struct block *one) {
  size_t i = position(one->start) - 1;
  memmove(blocks + i, blocks + i + 1, (block_count - i - 1) * sizeof *blocks);
  block_count--;
  stub_forget_kept(one);
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
  if (bytes > stub_target()->memory - allocated[device]) return 0;
  allocated[device] += bytes;
  if (allocated[device] > most[device]) most[device] = allocated[device];
  return 1;
}

static int too_much(int device, size_t bytes) {
  return stub_fail(STUB_OUT_OF_MEMORY, "out of memory: %zu bytes asked, %zu of %zu in use", bytes,
                   allocated[device], stub_target()->memory);
}

int stub_allocate(void **pointer, size_t bytes, int device) {
  *pointer = 0;
  if (!bytes) return STUB_OK;
  stub_used();
  if (bytes > stub_target()->memory) return too_much(device, bytes);
  bytes = (bytes + STUB_PAGE - 1) & ~(size_t)(STUB_PAGE - 1);
  int code = STUB_OK;
  stub_lock();
  if (!count(device, bytes)) {
    code = too_much(device, bytes);
  } else {
    uintptr_t start = aligned(bytes, LARGE_PAGE);
    if (!start)
      code = stub_fail(STUB_OUT_OF_MEMORY,
                       "this machine does not let %zu bytes be reserved for the stub GPU"
                       " (ulimit -v, or vm.overcommit_memory = 2)", bytes);
    else if ((code = add(start, bytes, STUB_DEVICE, device)))
      munmap((void *)start, bytes);
    if (code)
      allocated[device] -= bytes;
    else
      *pointer = (void *)start;
  }
  stub_unlock();
  return code;
}

int stub_free(void *pointer) {
  if (!pointer) return STUB_OK;
  int code = STUB_INVALID_VALUE;
  stub_lock();
  struct block *one = block_at(pointer, STUB_DEVICE);
  if (one && !one->reserved) {
    code = STUB_OK;
    allocated[one->device] -= one->size;
    munmap(pointer, one->size);
    drop(one);
  }
  stub_unlock();
  return code ? stub_fail(code, "invalid argument: %p was not allocated", pointer) : code;
}

size_t stub_allocated(int device) { return allocated[device]; }
size_t stub_allocated_most(int device) { return most[device]; }

int stub_find(const void *pointer, struct stub_place *place) {
  stub_lock();
  struct block *one = stub_block(pointer);
  if (one) *place = (struct stub_place){one->kind, one->device, one->start, one->size};
  stub_unlock();
  return one != 0;
}

int stub_host_register(void *pointer, size_t bytes) {
  stub_lock();
  int code = add((uintptr_t)pointer, bytes, STUB_HOST, stub_current());
  stub_unlock();
  return code;
}

int stub_host_unregister(void *pointer) {
  stub_lock();
  struct block *one = block_at(pointer, STUB_HOST);
  if (one) drop(one);
  stub_unlock();
  return one ? STUB_OK
             : stub_fail(STUB_INVALID_VALUE, "invalid argument: %p was not registered", pointer);
}

int stub_host_allocate(void **pointer, size_t bytes) {
  *pointer = 0;
  if (!bytes) return STUB_OK;
  if (posix_memalign(pointer, STUB_PAGE, bytes)) return stub_fail(STUB_OUT_OF_MEMORY, "out of memory");
  return stub_host_register(*pointer, bytes);
}

int stub_host_free(void *pointer) {
  int code = pointer ? stub_host_unregister(pointer) : STUB_OK;
  if (!code) free(pointer);
  return code;
}

/* Addresses and memory apart. The whole range is one block, since copies go across its parts. */

int stub_reserve(void **pointer, size_t bytes, size_t alignment) {
  stub_lock();
  uintptr_t start = aligned(bytes, alignment < LARGE_PAGE ? LARGE_PAGE : alignment);
  int code = start ? add(start, bytes, STUB_DEVICE, stub_current()) : STUB_OUT_OF_MEMORY;
  if (!code)
    stub_block((void *)start)->reserved = 1;
  else if (start)
    munmap((void *)start, bytes);
  stub_unlock();
  *pointer = code ? 0 : (void *)start;
  return code ? stub_fail(code, "out of memory: %zu bytes of addresses", bytes) : code;
}

int stub_release(void *pointer, size_t bytes) {
  stub_lock();
  struct block *one = block_at(pointer, STUB_DEVICE);
  int found = one && one->reserved && one->size == bytes;
  if (found) {
    munmap(pointer, bytes);
    drop(one);
  }
  stub_unlock();
  return found ? STUB_OK : stub_fail(STUB_INVALID_VALUE, "invalid argument: not reserved");
}

int stub_commit(size_t bytes, int device) {
  stub_used();
  stub_lock();
  int code = count(device, bytes) ? STUB_OK : too_much(device, bytes);
  stub_unlock();
  return code;
}

void stub_decommit(size_t bytes, int device) {
  stub_lock();
  allocated[device] -= bytes;
  stub_unlock();
}

int stub_map(void *pointer, size_t bytes, int device) {
  stub_lock();
  struct block *one = stub_block(pointer);
  int found = one && one->reserved && bytes <= one->size - ((uintptr_t)pointer - one->start);
  if (found) one->device = device;
  stub_unlock();
  return found ? STUB_OK : stub_fail(STUB_INVALID_VALUE, "invalid argument: not reserved");
}

int stub_unmap(void *pointer, size_t bytes) {
  uintptr_t start = (uintptr_t)pointer;
  stub_lock();
  struct block *one = stub_block(pointer);
  int found = one && one->reserved && bytes <= one->size - (start - one->start);
  if (found) {
    madvise(pointer, bytes, MADV_DONTNEED);
    stub_forget(one, start, start + bytes);
  }
  stub_unlock();
  return found ? STUB_OK : stub_fail(STUB_INVALID_VALUE, "invalid argument: not reserved");
}
