// log.c - one line for each call, for tests.
//
//   4711 cuMemCreate size=2097152 device=0 handle=4294967297 = 0
//
// The process id, the name without the _v2 of the ABI, arguments and results as key=value,
// and the CUresult. A line is one write to a file opened for appending, so several
// processes can share the file.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int log_file = -1;

void sim_log_init(const char *path) {
  if (path == NULL || *path == '\0') return;
  log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_file < 0) fprintf(stderr, "simcuda: MEMPROF_SIM_LOG: cannot open %s: %m\n", path);
}

void sim_log(const char *name, CUresult result, const char *arguments) {
  if (log_file < 0) return;
  char line[512];
  int length = snprintf(line, sizeof line, "%d %s%s%s = %d\n", (int)getpid(), name, *arguments != '\0' ? " " : "",
                        arguments, (int)result);
  if (length >= (int)sizeof line) length = (int)sizeof line - 1;
  // Errors of writing the log are ignored: they must not affect the program under test.
  ssize_t written = write(log_file, line, (size_t)length);
  (void)written;
}
