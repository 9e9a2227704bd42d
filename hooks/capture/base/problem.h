// problem.h - errors of the hook that the job does not see.
//
// Each becomes one line of the process's `problems` file, which `memprof record` prints when the
// job has ended. The hook never prints into the job's own output. Lines from before the spool
// exists are kept and written when it does, so a process that never uses CUDA makes no file.
#ifndef MEMPROF_PROBLEM_H
#define MEMPROF_PROBLEM_H

#include "base/directory.h"

// Adds a line; the newline is added here. At most a hundred a process, so that an error in a loop
// cannot fill the disk. Keeps errno.
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);

// The spool has made its directory: the lines so far, and later ones, go to a file in it. The file
// stays mapped and is filled with zeros behind the last line.
void problem_start(const struct directory *directory);

#endif
