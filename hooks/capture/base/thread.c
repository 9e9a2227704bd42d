// thread.c - see thread.h.
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

int thread_start(void *(*run)(void *), size_t stack) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (stack > 0) pthread_attr_setstacksize(&attributes, stack);
  sigfillset(&all);  // the job's threads handle the job's signals
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, &attributes, run, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}
