// thread.h - threads of the hook.
#ifndef MEMPROF_THREAD_H
#define MEMPROF_THREAD_H

#include <stddef.h>

// Starts a thread that nobody joins and that handles none of the job's signals, with a stack of so many bytes; 0: as large as usual. 0, or an
// errno.
int thread_start(void *(*run)(void *), size_t stack);

#endif
