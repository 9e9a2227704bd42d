// library.h - the name of the library that an address lies in.
#ifndef MEMPROF_LIBRARY_H
#define MEMPROF_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

enum { LIBRARY_NAME = 256 };

// Writes the file name, without its folder, of the library or program that has `address`, as a value
// of an event's context: tabs and newlines are blanks. False: no library has it.
bool library_name(const void *address, char name[LIBRARY_NAME]);

// Writes the last part of a path, as such a value.
void library_last_part(const char *path, char name[LIBRARY_NAME]);

#endif
