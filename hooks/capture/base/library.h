// library.h - which library an address lies in.
#ifndef MEMPROF_LIBRARY_H
#define MEMPROF_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

enum { LIBRARY_NAME = 256 };

// The file name, without its folder, of the library or program at `address`, as a value of
// an event's context. False if there is none.
bool library_name(const void *address, char name[LIBRARY_NAME]);

// The last part of a path, as such a value.
void library_last_part(const char *path, char name[LIBRARY_NAME]);

#endif
