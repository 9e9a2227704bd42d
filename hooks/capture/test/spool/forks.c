// forks.c - children of a process whose other threads are inside the hook.
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"
#include "memprof.h"
#include "spool/spool.h"
#include "trail.h"

enum { CHILDREN = 300, STUCK_S = 60 };  // so long that a child of a loaded machine has run

static _Atomic bool done;

static void *note_over_and_over(void *nothing) {
  while (!done) spool_note_libraries();
  return nothing;
}

static int look(struct dl_phdr_info *info, size_t size, void *self) {
  (void)info, (void)size, (void)self;
  return 0;
}

// As dlopen and C++ exceptions do, a child takes the loader's lock.
TEST(child_uses_the_loader) {
  pthread_t thread;
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  CHECK(pthread_create(&thread, NULL, note_over_and_over, NULL) == 0);
  for (int i = 0; i < CHILDREN; i++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(STUCK_S);
      dl_iterate_phdr(look, NULL);
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
  }
  done = true;
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
