// trim_once.c - the trimmer runs once for an iteration, however late it is started and woken.
//
// Of an iteration's end two things can come too late for its thread: the count of iterations, if the thread starts before, and the
// wake, if the thread waits by then for the next one. Here both do, by functions of libc that the linker wraps: trim_iteration goes on
// after making the thread when that has done its work and waits (pthread_attr_destroy, which comes next), and only then wakes it. A
// second run shows in what is mapped:
//
//   arena         at the end of the iteration   first run           second run
//   newest        16 MiB live                   -                   -
//   second        16 MiB to be mapped ahead     no room: as ever    room: mapped
//   oldest        16 MiB to be unmapped         unmapped            -
//
// Room is what the device has mapped below its peak. The newest arena is trimmed first.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "arena/reclaim.h"
#include "blocks.h"

static _Atomic bool late;                // the coming trimmer starts and wakes as above
static _Atomic(void *) word;             // that it waits on; NULL: it has not waited yet
static _Atomic(uint32_t) waits, wakes;   // how often it has waited, and was woken, there
static _Thread_local bool is_trimmer;

struct start {
  void *(*run)(void *);
  void *arg;
};
static struct start trimmer;

static void *run_trimmer(void *nothing) {
  (void)nothing;
  is_trimmer = true;
  return trimmer.run(trimmer.arg);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg) {
  if (!atomic_load(&late)) return __real_pthread_create(thread, attributes, run, arg);
  trimmer = (struct start){run, arg};
  return __real_pthread_create(thread, attributes, run_trimmer, NULL);
}

static void await_waits(uint32_t count) {
  for (int i = 0; i < 600000 && atomic_load(&waits) < count; i++) usleep(100);
  CHECK_EQUAL(atomic_load(&waits), count);
}

int __real_pthread_attr_destroy(pthread_attr_t *attributes);
int __wrap_pthread_attr_destroy(pthread_attr_t *attributes) {
  if (atomic_load(&late)) await_waits(1);
  return __real_pthread_attr_destroy(attributes);
}

// In place of a futex. The hook's locks, which the trimmer waits for, too, have the value 2 then.
static long wait_as_trimmer(void *address) {
  const uint32_t before = atomic_load(&wakes);
  atomic_store(&word, address);
  atomic_fetch_add(&waits, 1);
  while (atomic_load(&wakes) == before) usleep(100);
  return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long words[6];
  for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
  va_end(list);
  void *address = (void *)words[0];
  const int operation = number == SYS_futex ? (int)words[1] & ~FUTEX_PRIVATE_FLAG : -1;
  if (operation == FUTEX_WAIT && is_trimmer && (address == atomic_load(&word) || (uint32_t)words[2] < 2)) return wait_as_trimmer(address);
  if (operation == FUTEX_WAKE && address == atomic_load(&word)) return atomic_fetch_add(&wakes, 1), 1;
  return __real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// A block that an iteration takes and frees.
static void use(void *stream) {
  struct block block;
  begin(&block, 16 * MiB, stream);
  end(&block);
}

static void unmap_newest(void) {
  struct gpu *gpu = gpu_existing(0);
  bool retry;
  lock_take(&gpu->lock);
  CHECK_EQUAL(reclaim(gpu, NULL, 0, 16 * MiB, "test", &retry), 16 * MiB);
  lock_give(&gpu->lock);
}

static void test_once_however_late(void) {
  gpu_start();
  void *oldest = gpu_stream(), *second = gpu_stream(), *newest = gpu_stream();
  struct block block;
  use(oldest);
  for (int iteration = 0; iteration < 2; iteration++) {
    use(second);
    memprof_iteration(NULL);
  }
  use(second);
  unmap_newest();
  begin(&block, 16 * MiB, newest);
  CHECK_EQUAL(reserved(), 32 * MiB);  // the peak
  atomic_store(&late, true);
  memprof_iteration(NULL);
  await_waits(2);  // the wake is over, and what it led to
  CHECK_EQUAL(reserved(), 16 * MiB);
  CHECK(!memprof_trimming());
  audited();
}

// The next iteration's wake is not taken for the late one.
static void test_again_for_the_next(void) {
  test_once_however_late();
  memprof_iteration(NULL);
  await_waits(3);
  CHECK_EQUAL(reserved(), 32 * MiB);
  audited();
}

int main(int argc, char **argv) {
#define COMPACT "growth=needed,split=always,trim=iteration"
  static const struct test tests[] = {
      {"once, however late", test_once_however_late, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT}},
      {"again for the next", test_again_for_the_next, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT}},
  };
  return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
