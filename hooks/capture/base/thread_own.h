// thread_own.h - what a thread seldom needs, and is too large for static thread-local memory.
//
// Code of a process may load the hook long after the program has started (memprof.watch). The C library then has a few hundred
// bytes of static thread-local memory left, which the hook's faster variables take. What is here is allocated at its first use
// and freed when the thread ends.
#ifndef MEMPROF_THREAD_OWN_H
#define MEMPROF_THREAD_OWN_H

#include <limits.h>

enum { THREAD_REGIONS = 64 };

struct thread_own {
  char oom[1024], pause[768], graph[256];  // why the thread's last call failed
  char file[PATH_MAX + 200];
  char capture[128];                       // the name of captures that it begins
  void *regions[THREAD_REGIONS];           // tags of its regions
};

// The calling thread's; NULL: no host memory.
struct thread_own *thread_own(void);

// The same for texts: without host memory, one that all threads share.
struct thread_own *thread_texts(void);

#endif
