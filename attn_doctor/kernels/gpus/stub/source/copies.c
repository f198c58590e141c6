/* Copies and fills, and which bytes of the devices are known.
 *
 * A byte is known from a copy or a fill by the host until the next launch, because that launch
 * may write anywhere. Known bytes are stored up to a limit; beyond it they count as unknown, so a
 * model's weights need not fit into this machine. Unknown bytes read as zeros, in every run.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Bytes of device memory that are stored: in total, and for one copy. */
static const size_t MOST_KEPT = (size_t)1 << 30, MOST_COPIED = (size_t)256 << 20;
static size_t kept;

/* Known ranges of a block */

static void forget_all(struct block *one) {
  if (one->epoch != stub_epoch()) one->count = 0;
  one->epoch = stub_epoch();
}

static int insert(struct block *one, int at, struct range range) {
  if (one->count == one->room) {
    int room = one->room ? one->room * 2 : 8;
    struct range *more = realloc(one->known, room * sizeof *more);
    if (!more) return 0;
    one->known = more;
    one->room = room;
  }
  memmove(one->known + at + 1, one->known + at, (one->count - at) * sizeof *one->known);
  one->known[at] = range;
  one->count++;
  return 1;
}

/* Take [start, end) out of the known ranges. */
void stub_forget(struct block *one, uintptr_t start, uintptr_t end) {
  forget_all(one);
  for (int i = 0; i < one->count; i++) {
    struct range *range = &one->known[i];
    if (range->end <= start || range->start >= end) continue;
    struct range after = {end, range->end};
    if (range->start < start) {
      int both = range->end > end;
      range->end = start;
      if (both) insert(one, i + 1, after); /* without memory for it: unknown, which is safe */
    } else if (range->end > end) {
      range->start = end;
    } else {
      one->count--;
      memmove(range, range + 1, (one->count - i) * sizeof *range);
      i--;
    }
  }
}

static void learn(struct block *one, uintptr_t start, uintptr_t end) {
  stub_forget(one, start, end);
  int i = 0;
  while (i < one->count && one->known[i].end < start) i++;
  if (i < one->count && one->known[i].end == start) {
    one->known[i].end = end;
    if (i + 1 < one->count && one->known[i + 1].start == end) {
      one->known[i].end = one->known[i + 1].end;
      one->count--;
      memmove(one->known + i + 1, one->known + i + 2,
              (one->count - i - 1) * sizeof *one->known);
    }
  } else if (i < one->count && one->known[i].start == end) {
    one->known[i].start = start;
  } else {
    insert(one, i, (struct range){start, end});
  }
}

static int knows(struct block *one, uintptr_t start, uintptr_t end) {
  forget_all(one);
  for (int i = 0; i < one->count; i++)
    if (one->known[i].start <= start && end <= one->known[i].end) return 1;
  return start == end;
}

int stub_known(const void *pointer, size_t bytes) {
  stub_lock();
  struct block *one = stub_block(pointer);
  uintptr_t start = (uintptr_t)pointer;
  int known = one && one->kind == STUB_DEVICE ? knows(one, start, start + bytes) : 1;
  stub_unlock();
  return known;
}

/* Copies and fills */

void stub_forget_kept(struct block *one) {
  kept -= one->kept;
  one->kept = 0;
}

/* Free bytes that are unknown by now: all that was written before the last launch. */
static void reclaim(void) {
  unsigned long now = stub_epoch();
  struct block *one;
  for (size_t i = 0; (one = stub_block_number(i)); i++) {
    if (one->kind != STUB_DEVICE || one->epoch == now || !one->kept) continue;
    madvise((void *)one->start, one->size, MADV_DONTNEED);
    stub_forget_kept(one);
  }
}

/* Whether `bytes` more may be written to this block. Writing it again costs nothing. */
static int room_for(struct block *one, size_t bytes) {
  size_t more = one->size - one->kept < bytes ? one->size - one->kept : bytes;
  if (bytes > MOST_COPIED) return 0;
  if (more > MOST_KEPT - kept) {
    reclaim();
    more = one->size - one->kept < bytes ? one->size - one->kept : bytes;
    if (more > MOST_KEPT - kept) return 0;
  }
  one->kept += more;
  kept += more;
  return 1;
}

static struct block *device_block(const void *pointer) {
  struct block *one = stub_block(pointer);
  return one && one->kind == STUB_DEVICE ? one : 0;
}

static int fits(const struct block *one, const void *pointer, size_t bytes) {
  return !one || bytes <= one->size - ((uintptr_t)pointer - one->start);
}

/* One row. Bytes that only the GPU knows reach the host as zeros, and `unknown` becomes true. */
static int copy_row(void *to, const void *from, size_t bytes, int *unknown) {
  struct block *target = device_block(to), *source = device_block(from);
  uintptr_t at = (uintptr_t)to, origin = (uintptr_t)from;
  if (!fits(target, to, bytes) || !fits(source, from, bytes)) return STUB_INVALID_VALUE;
  int known = !source || knows(source, origin, origin + bytes);
  if (!target) {
    if (known) {
      memmove(to, from, bytes);
    } else {
      memset(to, 0, bytes);
      *unknown = 1;
    }
  } else if (known && room_for(target, bytes)) {
    memmove(to, from, bytes);
    learn(target, at, at + bytes);
  } else {
    stub_forget(target, at, at + bytes);
  }
  return STUB_OK;
}

int stub_copy_box(const char *function, const struct stub_box *box) {
  int code = STUB_OK, unknown = 0;
  if (!box->width || !box->rows || !box->slices) return STUB_OK;
  if (!box->to || !box->from) return stub_fail(STUB_INVALID_VALUE, "%s: no address", function);
  stub_lock();
  for (size_t z = 0; z < box->slices && !code; z++)
    for (size_t y = 0; y < box->rows && !code; y++)
      code = copy_row((char *)box->to + z * box->to_slice + y * box->to_row,
                      (const char *)box->from + z * box->from_slice + y * box->from_row,
                      box->width, &unknown);
  stub_unlock();
  if (code) return stub_fail(code, "%s: invalid argument: beyond the end of its memory", function);
  if (!unknown) return STUB_OK;
  return stub_read(function, (uintptr_t)box->from, box->width * box->rows * box->slices);
}

int stub_copy(const char *function, void *to, const void *from, size_t bytes) {
  struct stub_box box = {.to = to, .from = from, .width = bytes, .rows = 1, .slices = 1};
  return stub_copy_box(function, &box);
}

static int all_zero(const unsigned char *bytes, size_t count) {
  while (count && !*bytes) bytes++, count--;
  return !count;
}

/* Fill with zeros, giving whole pages back. */
static void clear(char *start, size_t bytes) {
  char *first = (char *)(((uintptr_t)start + STUB_PAGE - 1) & ~(uintptr_t)(STUB_PAGE - 1));
  char *last = (char *)(((uintptr_t)start + bytes) & ~(uintptr_t)(STUB_PAGE - 1));
  if (last <= first || madvise(first, last - first, MADV_DONTNEED)) {
    memset(start, 0, bytes);
    return;
  }
  memset(start, 0, first - start);
  memset(last, 0, start + bytes - last);
}

int stub_fill(void *to, const void *pattern, size_t unit, size_t count) {
  size_t bytes = unit * count;
  uintptr_t at = (uintptr_t)to;
  if (!bytes) return STUB_OK;
  stub_lock();
  struct block *one = device_block(to);
  int code = !to || !fits(one, to, bytes) ? STUB_INVALID_VALUE : STUB_OK;
  if (!code) {
    int done = 1;
    if (one && all_zero(pattern, unit))
      clear(to, bytes);
    else if (!one || room_for(one, bytes))
      for (size_t i = 0; i < count; i++) memcpy((char *)to + i * unit, pattern, unit);
    else
      done = 0;
    if (one && done)
      learn(one, at, at + bytes);
    else if (one)
      stub_forget(one, at, at + bytes);
  }
  stub_unlock();
  return code ? stub_fail(code, "invalid argument: beyond the end of its memory") : code;
}
