// files.h - the files in a folder that this process has mapped. None of a backup's has a name.
#ifndef MEMPROF_TEST_FILES_H
#define MEMPROF_TEST_FILES_H

#include <stdio.h>
#include <string.h>

#include "check.h"

static inline size_t files_mapped(const char *folder) {
  size_t count = 0;
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    if (strstr(line, folder) == NULL) continue;
    CHECK(strstr(line, "(deleted)") != NULL);
    count++;
  }
  fclose(maps);
  return count;
}

#endif
