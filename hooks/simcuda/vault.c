// vault.c - keeps the devices' memfds where the program cannot close them.
//
// Some programs close all descriptors that they do not know, or reuse their numbers. A real
// driver does not survive that; the simulation must, to test that the hook does. A thread with a
// descriptor table of its own holds the memfds, and they are opened again through that thread.
// Without such a thread a closed memfd is lost: calls that need it fail, and never use another
// file in its place.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ALL_OF_ITS_OWN = 2 };  // CLOSE_RANGE_UNSHARE
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static struct {
  pthread_mutex_t lock;
  pthread_cond_t ready;
  bool started, answered;
  pid_t thread;                // 0 if there is none
  int numbers[SIM_MAX_DEVICES];  // descriptors in the thread's table
} vault = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};

static void *hold(void *nothing) {
  const bool apart = syscall(SYS_close_range, 0, ~0u, ALL_OF_ITS_OWN) == 0;
  pthread_mutex_lock(&vault.lock);
  for (int i = 0; apart && i < sim_settings()->devices; i++) vault.numbers[i] = memfd_create("simcuda", MFD_CLOEXEC);
  vault.thread = apart ? (pid_t)syscall(SYS_gettid) : 0;
  vault.answered = true;
  pthread_cond_signal(&vault.ready);
  pthread_mutex_unlock(&vault.lock);
  while (apart) pause();
  return nothing;
}

static void start(void) {
  sigset_t all, before;
  pthread_t thread;
  if (vault.started) return;
  vault.started = true;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool made = pthread_create(&thread, NULL, hold, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!made) return;
  pthread_detach(thread);
  pthread_mutex_lock(&vault.lock);
  while (!vault.answered) pthread_cond_wait(&vault.ready, &vault.lock);
  pthread_mutex_unlock(&vault.lock);
}

static int open_again(int device) {
  char path[64];
  if (vault.thread == 0 || vault.numbers[device] < 0) return -1;
  snprintf(path, sizeof path, "/proc/self/task/%d/fd/%d", (int)vault.thread, vault.numbers[device]);
  return open(path, O_RDWR | O_CLOEXEC);
}

static bool is_there(const struct CUctx_st *device) {
  struct stat about;
  return device->memfd >= 0 && fstat(device->memfd, &about) == 0 && about.st_dev == device->file_system && about.st_ino == device->inode;
}

int sim_memfd(struct CUctx_st *device) {
  struct stat about;
  if (is_there(device)) return device->memfd;
  start();
  const bool first = device->inode == 0;
  int file = open_again(device->ordinal);
  if (file < 0 && first) file = memfd_create("simcuda", MFD_CLOEXEC);
  if (file < 0 || fstat(file, &about) != 0) return -1;
  device->memfd = file;
  device->file_system = about.st_dev;
  device->inode = about.st_ino;
  return file;
}
