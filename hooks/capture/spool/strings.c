// strings.c - texts of events, numbered and written once.
//
// A text gets the next id at its first use, and is written before any event can name it. The table never
// shrinks. It holds 2^20 texts at most, so that a job with ever new texts does not exhaust the host's
// memory: later ones get id 0.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/intern.h"
#include "base/problem.h"
#include "base/text.h"
#include "spool/internal.h"
#include "spool/spool.h"

enum { LONGEST = 4096, MOST = 1 << 20 };

struct entry {
  char *text;  // not ended by a zero
  uint32_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct intern entries = {.item_bytes = sizeof(struct entry)};  // the ids are its numbers
static uint64_t pieces;  // slots that texts have taken
static bool spooling;  // there is a spool: new texts are written at once

static uint32_t hash_of(const char *text, uint32_t length) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (uint32_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
  return hash;
}

static bool same(const void *item, const void *key) {
  const struct entry *entry = item, *wanted = key;
  return entry->length == wanted->length && memcmp(entry->text, wanted->text, wanted->length) == 0;
}

static void spool_text(uint32_t id) {
  const struct entry *entry = intern_item(&entries, id);
  for (uint32_t offset = 0; offset < entry->length;) {
    struct memprof_string *piece = (struct memprof_string *)spool_claim();
    if (piece == NULL) return;
    pieces++;
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

static uint32_t add(struct entry wanted, uint32_t hash) {
  if (entries.count == MOST) return 0;
  char *copy = malloc(wanted.length);
  struct entry *entry = copy == NULL ? NULL : intern_add(&entries, hash);
  if (entry == NULL) {
    free(copy);
    return 0;
  }
  memcpy(copy, wanted.text, wanted.length);
  *entry = (struct entry){copy, wanted.length};
  if (entries.count == MOST) problem("more than %d different texts: later ones are not recorded", MOST);
  if (spooling) spool_text(entries.count);
  return entries.count;
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
  const struct entry wanted = {(char *)(uintptr_t)text, length};
  pthread_mutex_lock(&lock);
  uint32_t id = intern_find(&entries, hash, same, &wanted);
  if (id == 0) id = add(wanted, hash);
  pthread_mutex_unlock(&lock);
  return id;
}

size_t spool_string_text(uint32_t id, char *text, size_t size) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  if (id > 0 && id <= entries.count && size > 0) {
    const struct entry *entry = intern_item(&entries, id);
    length = entry->length > size - 1 ? text_trim(entry->text, size - 1) : entry->length;
    memcpy(text, entry->text, length);
  }
  pthread_mutex_unlock(&lock);
  if (size > 0) text[length] = '\0';
  return length;
}

void spool_write_strings(void) {
  pthread_mutex_lock(&lock);
  for (uint32_t id = 1; id <= entries.count; id++) spool_text(id);
  spooling = true;
  pthread_mutex_unlock(&lock);
}

// No text takes a slot meanwhile: all other slots before this one are events.
void spool_write_number(struct spool_event event) {
  uint64_t slot;
  pthread_mutex_lock(&lock);
  struct memprof_record *record = spool_claim_slot(&slot);
  event.addr = slot - pieces;
  if (record != NULL) spool_fill(record, &event, clock_now());
  pthread_mutex_unlock(&lock);
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

// The next recording has all texts again, under the same ids.
static void stop(void) {
  pthread_mutex_lock(&lock);
  spooling = false;
  pieces = 0;
  pthread_mutex_unlock(&lock);
}

HOOK_PART(.forget = forget, .stop = stop);
