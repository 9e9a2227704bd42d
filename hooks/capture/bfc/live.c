// live.c - chunks in use, by the address of their start.
//
// Open addressing with linear probing, and a removal that shifts back what had been
// displaced, so that the table never needs cleaning. A slot is 8 bytes: host memory is proportional to
// the chunks in use, whatever the size of the device.
#include "bfc/internal.h"

#include <stdlib.h>

enum { LEAST_SLOTS = 64 };

// Spreads addresses, which differ in few bits, by Fibonacci hashing.
static uint32_t tag_of(uint64_t addr) {
  return (uint32_t)((addr >> BFC_GRANULE_BITS) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static void put(struct bfc_live *table, struct bfc_live_slot slot) {
  uint32_t mask = table->capacity - 1, at = slot.tag >> table->shift;
  while (table->slots[at].chunk != 0) at = (at + 1) & mask;
  table->slots[at] = slot;
}

bool bfc_live_reserve(struct bfc_live *table) {
  if (table->count < table->capacity / 4 * 3) return true;
  struct bfc_live grown = {.capacity = table->capacity == 0 ? LEAST_SLOTS : 2 * table->capacity, .count = table->count};
  grown.slots = calloc(grown.capacity, sizeof *grown.slots);
  if (grown.slots == NULL) return false;
  grown.shift = 32 - (unsigned)__builtin_ctz(grown.capacity);
  for (uint32_t i = 0; i < table->capacity; i++)
    if (table->slots[i].chunk != 0) put(&grown, table->slots[i]);
  free(table->slots);
  *table = grown;
  return true;
}

void bfc_live_insert(struct bfc_live *table, uint64_t addr, uint32_t chunk) {
  put(table, (struct bfc_live_slot){tag_of(addr), chunk});
  table->count++;
}

// The slot of the chunk that starts at addr, or UINT32_MAX.
static uint32_t slot_of(const struct bfc *bfc, uint64_t addr) {
  const struct bfc_live *table = &bfc->live;
  if (table->capacity == 0) return UINT32_MAX;
  uint32_t mask = table->capacity - 1, tag = tag_of(addr);
  for (uint32_t at = tag >> table->shift;; at = (at + 1) & mask) {
    struct bfc_live_slot slot = table->slots[at];
    if (slot.chunk == 0) return UINT32_MAX;
    if (slot.tag == tag && bfc->chunks[slot.chunk].addr == addr) return at;
  }
}

uint32_t bfc_live_find(const struct bfc *bfc, uint64_t addr) {
  uint32_t slot = slot_of(bfc, addr);
  return slot == UINT32_MAX ? 0 : bfc->live.slots[slot].chunk;
}

uint32_t bfc_live_remove(struct bfc *bfc, uint64_t addr) {
  struct bfc_live *table = &bfc->live;
  uint32_t hole = slot_of(bfc, addr);
  if (hole == UINT32_MAX) return 0;
  uint32_t mask = table->capacity - 1, chunk = table->slots[hole].chunk;
  for (uint32_t at = (hole + 1) & mask; table->slots[at].chunk != 0; at = (at + 1) & mask) {
    // The entry here moves to the hole unless its home lies between the hole and here.
    uint32_t home = table->slots[at].tag >> table->shift;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    table->slots[hole] = table->slots[at];
    hole = at;
  }
  table->slots[hole] = (struct bfc_live_slot){0, 0};
  table->count--;
  return chunk;
}
