// intern.h - a table that numbers items by their content: equal items have one number.
//
// Numbers are 1, 2, 3, ... in the order of adding; 0 says "none". Items are never removed, but may
// move when one is added. The caller has a lock.
//
//   struct intern table = {.item_bytes = sizeof(struct item)};
//   uint32_t number = intern_find(&table, hash, same, &key);
//   if (number == 0 && (item = intern_add(&table, hash)) != NULL) *item = ..., number = table.count;
#ifndef MEMPROF_INTERN_H
#define MEMPROF_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct intern_slot {
  uint32_t hash, number;  // number 0: empty
};

struct intern {
  size_t item_bytes;
  uint32_t count;             // of items
  void *items;                // item n at index n - 1
  size_t room;                // of items
  struct intern_slot *slots;  // open addressing
  uint32_t slot_count;        // 0, or a power of two of at least 2 * count
};

// The number of the item with that hash for which `same` is true; 0 if there is none.
uint32_t intern_find(const struct intern *table, uint32_t hash, bool (*same)(const void *item, const void *key), const void *key);

// A further item, to be filled in by the caller; its number is table->count. NULL: no host memory,
// and nothing has changed.
void *intern_add(struct intern *table, uint32_t hash);

// The item of a number from 1 to table->count.
void *intern_item(const struct intern *table, uint32_t number);

#endif
