// communicators.c - see communicators.h. The wrappers of NCCL's functions are in nccl.c.
#define _GNU_SOURCE
#include "interpose/communicators.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/hook.h"
#include "base/lock.h"
#include "interpose/nccl.h"

// Live communicators, in the order of making. The ranks of one process that have the same unique id (a
// process may have many devices) are one communicator with one number.
enum { MOST = 512, IN_PROGRESS = 7 };
static struct communicator {
  void *handle;
  struct nccl_key key;
  uint32_t number;
} live[MOST];
static size_t live_count;
static uint32_t made;
static _Atomic uint32_t ranks[MOST];  // by number, of the first MOST
static struct lock lock;

static __thread uint32_t here;       // the number that this thread works for, 0: none
static __thread int groups;          // depth of ncclGroupStart
static _Atomic uint32_t anywhere;    // that a call under way works for
static _Atomic uint32_t unfinished;  // that a call without waiting has begun to make
static _Atomic int under_way;

// The number of the communicator with that key, or a new one.
static uint32_t number_of(struct nccl_key key, uint32_t count) {
  uint32_t number = 0;
  lock_take(&lock);
  for (size_t i = 0; i < live_count && number == 0; i++) {
    if (key.a != 0 && live[i].key.a == key.a && live[i].key.b == key.b) number = live[i].number;
  }
  if (number == 0) number = ++made;
  if (number <= MOST) ranks[number - 1] = count;
  lock_give(&lock);
  return number;
}

static void enter(struct nccl_work *work, uint32_t number) {
  *work = (struct nccl_work){.before = here, .number = number};
  if (number == 0) return;
  here = number;
  atomic_fetch_add(&under_way, 1);
  atomic_store(&anywhere, number);
}

void nccl_make(struct nccl_work *work, struct nccl_key key, int count) { enter(work, hook_on() ? number_of(key, (uint32_t)count) : 0); }

static void add(const struct nccl_work *work, struct nccl_key key, void *handle) {
  if (work->number == 0 || handle == NULL) return;
  lock_take(&lock);
  if (live_count < MOST) live[live_count++] = (struct communicator){.handle = handle, .key = key, .number = work->number};
  lock_give(&lock);
}

void nccl_add(const struct nccl_work *work, void *handle) { add(work, (struct nccl_key){0}, handle); }

void nccl_made(struct nccl_work *work, struct nccl_key key, void *handle, int result) {
  if (result == 0 || result == IN_PROGRESS) add(work, key, handle);
  if (result == IN_PROGRESS) atomic_store(&unfinished, work->number);
  nccl_leave(work);
}

void nccl_use(struct nccl_work *work, const void *handle) {
  uint32_t number = 0;
  if (hook_on()) {
    lock_take(&lock);
    for (size_t i = 0; i < live_count && number == 0; i++) number = live[i].handle == handle ? live[i].number : 0;
    lock_give(&lock);
  }
  enter(work, number);
}

// In a group the work is done at its end.
void nccl_leave(struct nccl_work *work) {
  if (work->number == 0) return;
  if (groups == 0) here = work->before;
  atomic_fetch_sub(&under_way, 1);
}

void nccl_forget(const void *handle) {
  lock_take(&lock);
  for (size_t i = 0; i < live_count; i++) {
    if (live[i].handle != handle) continue;
    memmove(live + i, live + i + 1, (live_count - i - 1) * sizeof *live);
    live_count--;
    break;
  }
  lock_give(&lock);
}

void nccl_group_begin(void) { groups++; }

void nccl_group_end(struct nccl_work *work) { enter(work, here); }

void nccl_group_ended(struct nccl_work *work) {
  if (groups > 0) groups--;
  if (groups == 0) work->before = 0;
  nccl_leave(work);
}

void communicators_describe(char *text, size_t size) {
  uint32_t number = here;
  if (number == 0 && atomic_load(&under_way) > 0) number = atomic_load(&anywhere);
  if (number == 0) number = atomic_load(&unfinished);
  if (number == 0) return;
  const size_t length = strlen(text);
  int more = snprintf(text + length, size - length, "\tcommunicator=%u", number);
  if (more > 0 && number <= MOST && ranks[number - 1] > 0) snprintf(text + length + more, size - length - (size_t)more, "\tranks=%u", ranks[number - 1]);
}

static void forget(void) { lock = (struct lock){0}; }

HOOK_PART(.order = HOOK_REST, .forget = forget);
