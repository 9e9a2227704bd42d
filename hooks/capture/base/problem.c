// problem.c - see problem.h.
#define _GNU_SOURCE
#include "base/problem.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/hook.h"
#include "base/text.h"

enum { LONGEST_LINE = 1024, KEPT_BYTES = 4096, FILE_BYTES = 65536, MOST_LINES = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int lines;
static char kept[KEPT_BYTES];  // whole lines, until there is a file
static char *text = kept;
static size_t length, room = sizeof kept;

void problem(const char *format, ...) {
  const int saved = errno;
  char given[2 * LONGEST_LINE], line[LONGEST_LINE];
  va_list arguments;
  va_start(arguments, format);
  const int formatted = vsnprintf(given, sizeof given, format, arguments);
  va_end(arguments);
  if (formatted < 0) return;
  size_t end = text_copy(line, sizeof line - 1, given, strlen(given));
  for (size_t i = 0; i < end; i++) {
    if (line[i] == '\n') line[i] = ' ';
  }
  line[end++] = '\n';

  pthread_mutex_lock(&lock);
  if (lines++ < MOST_LINES && end <= room - length) {
    memcpy(text + length, line, end);
    length += end;
  }
  pthread_mutex_unlock(&lock);
  errno = saved;
}

// Whether the limit of file sizes (RLIMIT_FSIZE) allows the file. Beyond it the kernel ends the job by a signal.
static bool has_room(void) {
  struct rlimit size;
  return getrlimit(RLIMIT_FSIZE, &size) != 0 || size.rlim_cur >= FILE_BYTES;
}

void problem_start(const struct directory *directory) {
  struct own_file file;
  if (!has_room() || !directory_create(directory, "problems", FILE_BYTES, &file)) return;
  char *mapped = own_file_map(&file, FILE_BYTES);
  own_file_close(&file);
  if (mapped == NULL) return;
  if (own_file_populate(mapped, FILE_BYTES) != 0) {
    munmap(mapped, FILE_BYTES);
    return;
  }
  pthread_mutex_lock(&lock);
  memcpy(mapped, kept, length);
  text = mapped;
  room = FILE_BYTES;
  pthread_mutex_unlock(&lock);
}

static void clear(void) {
  lines = 0;
  text = kept;
  length = 0;
  room = sizeof kept;
}

static void forget(void) {
  // Only the forking thread exists here, and the lock may have been another's.
  pthread_mutex_init(&lock, NULL);
  clear();
}

static void stop(void) {
  pthread_mutex_lock(&lock);
  if (text != kept) munmap(text, FILE_BYTES);
  clear();
  pthread_mutex_unlock(&lock);
}

HOOK_PART(.forget = forget, .stop = stop);
