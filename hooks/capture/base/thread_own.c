// thread_own.c - see thread_own.h.
#include "base/thread_own.h"

#include <pthread.h>
#include <stdlib.h>

static __thread struct thread_own *mine;
static pthread_key_t ending;

static void end_thread(void *own) {
  mine = NULL;  // a later destructor of the thread may make a new one
  free(own);
}

static void make_key(void) { pthread_key_create(&ending, end_thread); }

struct thread_own *thread_own(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (mine != NULL) return mine;
  pthread_once(&once, make_key);
  mine = calloc(1, sizeof *mine);
  pthread_setspecific(ending, mine);
  return mine;
}

struct thread_own *thread_texts(void) {
  static struct thread_own shared;
  struct thread_own *own = thread_own();
  return own != NULL ? own : &shared;
}
