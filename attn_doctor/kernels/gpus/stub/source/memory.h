/* Blocks of memory, for the two files that know what is in them: memory.c and copies.c. */
#ifndef ATTN_DOCTOR_MEMORY_H
#define ATTN_DOCTOR_MEMORY_H

#include "stub_gpu.h"

enum { STUB_PAGE = 4096 };

struct range {
  uintptr_t start, end;
};

struct block {
  uintptr_t start;
  size_t size;
  enum stub_kind kind;
  int device;
  int reserved; /* addresses only: its memory is counted by stub_commit */
  unsigned long epoch; /* of `known`: a launch since makes all of it unknown */
  struct range *known; /* in order, apart from one another */
  int count, room;
  size_t kept; /* bytes written here, at most */
};

void stub_lock(void);
void stub_unlock(void);
/* With the lock held: */
struct block *stub_block(const void *pointer);
struct block *stub_block_number(size_t number); /* or 0 beyond the last */
void stub_forget(struct block *block, uintptr_t start, uintptr_t end);
void stub_forget_kept(struct block *block);

#endif
