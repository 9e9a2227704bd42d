// problem.c - see problem.h.
#define _GNU_SOURCE
#include "problem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_LINES = 100, LONGEST_LINE = 1024, KEPT_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;
static int lines;
static char kept[KEPT_BYTES];  // whole lines, until there is a file
static size_t kept_length;

static void write_all(const char *text, size_t length) {
  while (length > 0) {
    const ssize_t n = write(file, text, length);
    if (n <= 0) return;  // nowhere left to complain
    text += n;
    length -= (size_t)n;
  }
}

void problem(const char *format, ...) {
  char line[LONGEST_LINE];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  for (int i = 0; i < length; i++) {
    if (line[i] == '\n') line[i] = ' ';
  }
  line[length++] = '\n';

  pthread_mutex_lock(&lock);
  if (lines++ < MOST_LINES) {
    if (file >= 0) {
      write_all(line, (size_t)length);
    } else if (kept_length + (size_t)length <= sizeof kept) {
      memcpy(kept + kept_length, line, (size_t)length);
      kept_length += (size_t)length;
    }
  }
  pthread_mutex_unlock(&lock);
}

// A line that crosses RLIMIT_FSIZE would be answered with a signal that ends the job.
static bool has_room(void) {
  struct rlimit size;
  return getrlimit(RLIMIT_FSIZE, &size) != 0 || size.rlim_cur >= (rlim_t)MOST_LINES * LONGEST_LINE;
}

void problem_open(int directory_fd) {
  pthread_mutex_lock(&lock);
  if (has_room()) file = openat(directory_fd, "problems", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file >= 0 && kept_length > 0) write_all(kept, kept_length);
  kept_length = 0;
  pthread_mutex_unlock(&lock);
}

void problem_forget(void) {
  // Only the forking thread exists here, and the lock may have been another's.
  pthread_mutex_init(&lock, NULL);
  if (file >= 0) close(file);
  file = -1;
  lines = 0;
  kept_length = 0;
}
