// array.h - arrays that grow: a pointer to the elements, and how many it has room for.
//
//   struct entry *entries;
//   size_t count, room;
//   if (!array_reserve(&entries, &room, count + 1, sizeof *entries)) return false;
//   entries[count++] = ...;
//
// Both begin as zeros. The elements are freed with free.
#ifndef MEMPROF_ARRAY_H
#define MEMPROF_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Has room for `wanted` elements of `bytes` bytes each in the array that *array, a pointer to its
// first element, points to; the elements may move. Doubles, so that appending one at a time costs
// a constant each. False: no host memory, and nothing has changed.
static inline bool array_reserve(void *array, size_t *room, size_t wanted, size_t bytes) {
  if (wanted <= *room) return true;
  size_t larger = *room == 0 ? 16 : 2 * *room;
  if (larger < wanted) larger = wanted;
  void *elements;
  memcpy(&elements, array, sizeof elements);  // whatever the type that the pointer is declared with
  elements = realloc(elements, larger * bytes);
  if (elements == NULL) return false;
  memcpy(array, &elements, sizeof elements);
  *room = larger;
  return true;
}

#endif
