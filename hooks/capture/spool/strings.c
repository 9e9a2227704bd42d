// strings.c - texts of events, interned and spooled once.
//
// A text gets the next number at its first use and is written into the spool before any
// event can name it. The table only grows; it is bounded, since a job that makes up
// endless texts must not eat the host's memory: past the bound every new text is id 0.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"
#include "base/problem.h"
#include "base/text.h"
#include "spool/internal.h"
#include "spool/spool.h"

enum { LONGEST = 4096, MOST = 1 << 20 };

struct entry {
  char *text;
  uint32_t length;
  uint32_t hash;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;  // entries[id - 1]
static uint32_t count, capacity;
static uint32_t *slots;  // open addressing: id, or 0; a power of two of at least 2 * count
static uint32_t slot_count;
static bool spooling;  // the spool exists: new texts are written at once

static uint32_t hash_of(const char *text, uint32_t length) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
  return hash;
}

static uint32_t find(const char *text, uint32_t length, uint32_t hash) {
  if (slot_count == 0) return 0;
  for (uint32_t at = hash & (slot_count - 1); slots[at] != 0; at = (at + 1) & (slot_count - 1)) {
    const struct entry *entry = &entries[slots[at] - 1];
    if (entry->hash == hash && entry->length == length && memcmp(entry->text, text, length) == 0) return slots[at];
  }
  return 0;
}

static void place(uint32_t id) {
  uint32_t at = entries[id - 1].hash & (slot_count - 1);
  while (slots[at] != 0) at = (at + 1) & (slot_count - 1);
  slots[at] = id;
}

static bool make_room(void) {
  if (count == capacity) {
    const uint32_t larger = capacity == 0 ? 64 : 2 * capacity;
    struct entry *moved = realloc(entries, larger * sizeof *moved);
    if (moved == NULL) return false;
    entries = moved;
    capacity = larger;
  }
  if (2 * (count + 1) > slot_count) {
    const uint32_t larger = slot_count == 0 ? 128 : 2 * slot_count;
    uint32_t *cleared = calloc(larger, sizeof *cleared);
    if (cleared == NULL) return false;
    free(slots);
    slots = cleared;
    slot_count = larger;
    for (uint32_t id = 1; id <= count; id++) place(id);
  }
  return true;
}

static void spool_text(uint32_t id) {
  const struct entry *entry = &entries[id - 1];
  for (uint32_t offset = 0; offset < entry->length;) {
    struct memprof_string *piece = (struct memprof_string *)spool_claim();
    if (piece == NULL) return;
    const uint32_t rest = entry->length - offset;
    piece->offset = (uint16_t)offset;
    piece->length = (uint16_t)(rest < sizeof piece->text ? rest : sizeof piece->text);
    piece->id = id;
    piece->total = entry->length;
    memcpy(piece->text, entry->text + offset, piece->length);
    offset += piece->length;
    spool_commit((struct memprof_record *)piece, MEMPROF_STRING);
  }
}

static uint32_t add(const char *text, uint32_t length, uint32_t hash) {
  if (count == MOST || !make_room()) return 0;
  char *copy = malloc(length);
  if (copy == NULL) return 0;
  memcpy(copy, text, length);
  entries[count++] = (struct entry){.text = copy, .length = length, .hash = hash};
  if (count == MOST) problem("more than %d different texts: later ones are not recorded", MOST);
  place(count);
  if (spooling) spool_text(count);
  return count;
}

uint32_t spool_string(const char *text) {
  if (text == NULL || *text == '\0') return 0;
  char copy[LONGEST + 1];
  uint32_t length = (uint32_t)strnlen(text, LONGEST + 1);
  if (length > LONGEST || !text_is_valid(text, length)) {
    length = (uint32_t)text_copy(copy, sizeof copy, text, strnlen(text, 2 * LONGEST));
    text = copy;
  }
  const uint32_t hash = hash_of(text, length);
  pthread_mutex_lock(&lock);
  uint32_t id = find(text, length, hash);
  if (id == 0) id = add(text, length, hash);
  pthread_mutex_unlock(&lock);
  return id;
}

size_t spool_string_text(uint32_t id, char *text, size_t size) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  if (id > 0 && id <= count && size > 0) {
    length = entries[id - 1].length;
    if (length > size - 1) length = text_trim(entries[id - 1].text, size - 1);
    memcpy(text, entries[id - 1].text, length);
  }
  pthread_mutex_unlock(&lock);
  if (size > 0) text[length] = '\0';
  return length;
}

void spool_write_strings(void) {
  pthread_mutex_lock(&lock);
  for (uint32_t id = 1; id <= count; id++) spool_text(id);
  spooling = true;
  pthread_mutex_unlock(&lock);
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

HOOK_PART(.forget = forget);
