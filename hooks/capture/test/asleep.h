// asleep.h - waits until a thread of this process is in a system call that sleeps.
#ifndef MEMPROF_TEST_ASLEEP_H
#define MEMPROF_TEST_ASLEEP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

// The number of the system call that a thread is in; -1: none.
static inline long call_of(const char *thread) {
  char path[300];
  long number = -1;
  snprintf(path, sizeof path, "/proc/self/task/%s/syscall", thread);
  FILE *file = fopen(path, "r");
  if (file == NULL) return -1;  // the thread has ended
  if (fscanf(file, "%ld", &number) != 1) number = -1;
  fclose(file);
  return number;
}

// Whether a thread is in the call. 0 stands for any thread.
static inline bool in_call(pid_t thread, long number) {
  char name[16];
  bool found = false;
  if (thread != 0) {
    snprintf(name, sizeof name, "%d", (int)thread);
    return call_of(name) == number;
  }
  DIR *threads = opendir("/proc/self/task");
  CHECK(threads != NULL);
  for (struct dirent *each; !found && (each = readdir(threads)) != NULL;) found = each->d_name[0] != '.' && call_of(each->d_name) == number;
  closedir(threads);
  return found;
}

// A minute at most. qemu's threads are in other calls than the threads it emulates: there a while has to do.
static inline void await_call(pid_t thread, long number) {
  if (emulated_without("system calls of threads")) {
    usleep(200000);
    return;
  }
  for (int i = 0; i < 600000 && !in_call(thread, number); i++) usleep(100);
  CHECK(in_call(thread, number));
}

#endif
