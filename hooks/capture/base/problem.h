// problem.h - troubles of the hook's own.
//
// Each becomes one line of the process's `problems` file, which `memprof record` shows when
// the job has ended. Nothing is ever printed into the job's own output. Before the spool
// exists lines are kept, and they are written when it does; a process that never uses CUDA
// therefore leaves no trace of itself.
#ifndef MEMPROF_PROBLEM_H
#define MEMPROF_PROBLEM_H

#include "base/directory.h"

// At most a hundred lines a process, so that a trouble in a loop cannot fill the disk.
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);

// The spool has its directory: lines kept so far, and later ones, go to a file in it, which
// stays mapped and ends with zeros.
void problem_start(const struct directory *directory);

#endif
