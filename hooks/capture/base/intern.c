// intern.c - see intern.h.
#include "base/intern.h"

#include <stdlib.h>

#include "base/array.h"

enum { LEAST_SLOTS = 128 };

void *intern_item(const struct intern *table, uint32_t number) { return (char *)table->items + (size_t)(number - 1) * table->item_bytes; }

uint32_t intern_find(const struct intern *table, uint32_t hash, bool (*same)(const void *item, const void *key), const void *key) {
  if (table->slot_count == 0) return 0;
  const uint32_t mask = table->slot_count - 1;
  for (uint32_t at = hash & mask; table->slots[at].number != 0; at = (at + 1) & mask) {
    const struct intern_slot slot = table->slots[at];
    if (slot.hash == hash && same(intern_item(table, slot.number), key)) return slot.number;
  }
  return 0;
}

static void place(struct intern *table, struct intern_slot slot) {
  uint32_t at = slot.hash & (table->slot_count - 1);
  while (table->slots[at].number != 0) at = (at + 1) & (table->slot_count - 1);
  table->slots[at] = slot;
}

// Slots for one more item. At least half of them stay empty, so that searches are short.
static bool reserve_slots(struct intern *table) {
  if (2 * (table->count + 1) <= table->slot_count) return true;
  const uint32_t old_count = table->slot_count, larger = old_count == 0 ? LEAST_SLOTS : 2 * old_count;
  struct intern_slot *old = table->slots, *slots = calloc(larger, sizeof *slots);
  if (slots == NULL) return false;
  table->slots = slots;
  table->slot_count = larger;
  for (uint32_t i = 0; i < old_count; i++) {
    if (old[i].number != 0) place(table, old[i]);
  }
  free(old);
  return true;
}

void *intern_add(struct intern *table, uint32_t hash) {
  if (!array_reserve(&table->items, &table->room, table->count + 1, table->item_bytes) || !reserve_slots(table)) return NULL;
  place(table, (struct intern_slot){hash, ++table->count});
  return intern_item(table, table->count);
}
