// communicators.c - see communicators.h. The wrappers of NCCL's functions are in nccl.c.
#define _GNU_SOURCE
#include "interpose/communicators.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "arena/selection.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/real_dlsym.h"
#include "device/captures.h"
#include "interpose/interpose.h"
#include "interpose/nccl.h"
#include "memprof.h"

// Live communicators, in the order of making. The ranks of one process that have the same unique id (a
// process may have many devices) are one communicator with one number.
enum { MOST = 512, SUSPEND_MEMORY = 1, IN_PROGRESS = 7 };
static struct communicator {
  void *handle;
  struct nccl_key key;
  uint32_t number;
  bool suspended;
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

static int change(struct communicator *each, int (*suspend)(void *, int), int (*resume)(void *), bool back) {
  struct nccl_work work;
  enter(&work, each->number);
  const int result = back ? resume(each->handle) : suspend(each->handle, SUSPEND_MEMORY);
  nccl_leave(&work);
  if (result == 0) each->suspended = !back;
  return result;
}

// Copies the communicators that are suspended, or are not: NCCL waits for other ranks, so no lock is held meanwhile.
static size_t selected(struct communicator *out, bool suspended) {
  size_t count = 0;
  lock_take(&lock);
  for (size_t i = 0; i < live_count; i++) {
    if (live[i].suspended == suspended) out[count++] = live[i];
  }
  lock_give(&lock);
  return count;
}

static void keep(const struct communicator *changed) {
  lock_take(&lock);
  for (size_t i = 0; i < live_count; i++) {
    if (live[i].handle == changed->handle) live[i].suspended = changed->suspended;
  }
  lock_give(&lock);
}

static int cannot(void) {
  int version = 0;
  int (*ask)(int *) = nccl_real("ncclGetVersion");
  if (ask != NULL) ask(&version);
  return pause_fail(MEMPROF_COMMUNICATION, "NCCL %d.%d.%d cannot suspend communicators (ncclCommSuspend): use 2.29.7 or later, or pause without communicators=True", version / 10000,
                    version / 100 % 100, version % 100);
}

// Resumes the first `count` again, since a later one could not be suspended. Returns how many cannot be resumed.
static size_t undo(struct communicator *all, size_t count, int (*resume)(void *)) {
  size_t stay = 0;
  for (size_t k = count; k-- > 0;) {
    stay += change(&all[k], NULL, resume, true) != 0;
    keep(&all[k]);
  }
  return stay;
}

static int change_all(bool back) {
  static struct communicator all[MOST];
  int (*suspend)(void *, int) = nccl_real("ncclCommSuspend");
  int (*resume)(void *) = nccl_real("ncclCommResume");
  const size_t count = selected(all, back);
  if (count == 0) return pause_fail(MEMPROF_WRONG_STATE, back ? "no communicator is suspended" : "there is no communicator of NCCL that is not suspended");
  if (suspend == NULL || resume == NULL) return cannot();
  for (size_t i = 0; i < count; i++) {
    const int error = change(&all[i], suspend, resume, back);
    keep(&all[i]);
    if (error == 0) continue;
    const size_t stay = back ? 0 : undo(all, i, resume);
    if (stay > 0) {
      return pause_fail(MEMPROF_COMMUNICATION, "NCCL could not suspend communicator %u (error %d), nor resume %zu that it had suspended before: free memory, and resume with communicators=True",
                        all[i].number, error, stay);
    }
    return pause_fail(MEMPROF_COMMUNICATION, "NCCL could not %s communicator %u (error %d)%s", back ? "resume" : "suspend", all[i].number, error,
                      back ? ": it stays suspended, and cannot be used before a resume succeeds" : ": nothing was suspended");
  }
  return MEMPROF_OK;
}

int memprof_communicators(int suspend) {
  static struct lock one_at_a_time;
  pause_clear_message();
  if (!hook_on()) return pause_fail(MEMPROF_NOT_ACTIVE, "memprof does not serve this process: run it under `memprof record`");
  if (!captures_hold()) return pause_fail(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  lock_take(&one_at_a_time);
  const int result = change_all(suspend == 0);
  lock_give(&one_at_a_time);
  captures_let();
  return result;
}

static void forget(void) { lock = (struct lock){0}; }

HOOK_PART(.order = HOOK_REST, .forget = forget);
