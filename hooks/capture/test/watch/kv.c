// kv.c - marks of an engine's KV cache, as they reach the spool.
#define _GNU_SOURCE
#include "gpu.h"
#include "memprof.h"
#include "trail.h"

static void expect(const struct trail *trail, uint64_t slot, enum memprof_kind kind, uint64_t cache, int64_t sequence, uint64_t requested, uint64_t provided) {
  CHECK(slot < trail->count);
  const struct memprof_record *record = &trail->records[slot];
  CHECK_EQUAL(trail_kind(record), kind);
  CHECK_EQUAL(record->stream, (int64_t)cache);
  CHECK_EQUAL(record->addr, (uint64_t)sequence);
  CHECK_EQUAL(record->requested, requested);
  CHECK_EQUAL(record->provided, provided);
  CHECK_EQUAL(record->arena, MEMPROF_NO_ARENA);
}

static void expect_context(const struct trail *trail, uint64_t slot, const char *want) {
  char text[4097];
  trail_text(trail, trail->records[slot].context, slot, text);
  CHECK(strcmp(text, want) == 0);
}

// The next slot from `slot` on that is an event, not a piece of a text.
static uint64_t event_at(const struct trail *trail, uint64_t slot) {
  while (slot < trail->count && trail_kind(&trail->records[slot]) == MEMPROF_STRING) slot++;
  return slot;
}

TEST(every_mark) {
  gpu_start();
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  const uint64_t begin = trail_read(getpid(), 0).count;
  const uint64_t paged = memprof_kv_cache(0, 1024, 256, "layout=paged\tblock=16\tnull=1");
  const uint64_t plain = memprof_kv_cache(0, 0, 128, "layout=contiguous");
  CHECK_EQUAL(paged, 1);
  CHECK_EQUAL(plain, 2);
  memprof_kv_reserve(paged, 7, 3, 48, 40);
  memprof_kv_share(paged, 8, 3, 32, -1);
  memprof_kv_share(paged, 8, 5, 16, 2);
  memprof_kv_append(paged, 7, 40);
  memprof_kv_append_many(paged, 2, (int64_t[]){7, 8}, (uint64_t[]){1, 2});
  memprof_kv_append(paged, MEMPROF_KV_ALL, 1);
  memprof_kv_swap_out(paged, 8);
  memprof_kv_swap_in(paged, 8, 9, 48);
  memprof_kv_free(paged, 7, 32);
  memprof_kv_drop(paged, 3, 16);
  memprof_kv_reserve(plain, MEMPROF_KV_ALL, 0, 1, 0);
  memprof_kv_append(plain, 0, 0);
  memprof_kv_end(plain);

  const struct trail trail = trail_read(getpid(), 0);
  const struct {
    enum memprof_kind kind;
    uint64_t cache;
    int64_t sequence;
    uint64_t requested, provided;
    const char *context;
  } want[] = {
      {MEMPROF_KV_CACHE, paged, 0, 1024, 256, "layout=paged\tblock=16\tnull=1"},
      {MEMPROF_KV_CACHE, plain, 0, 0, 128, "layout=contiguous"},
      {MEMPROF_KV_RESERVE, paged, 7, 3, 48, "prompt=40"},
      {MEMPROF_KV_SHARE, paged, 8, 3, 32, ""},
      {MEMPROF_KV_SHARE, paged, 8, 5, 16, "position=2"},
      {MEMPROF_KV_APPEND, paged, 7, 40, 0, ""},
      {MEMPROF_KV_APPEND, paged, 7, 1, 0, ""},
      {MEMPROF_KV_APPEND, paged, 8, 2, 0, ""},
      {MEMPROF_KV_APPEND, paged, -1, 1, 0, ""},
      {MEMPROF_KV_FREE, paged, 8, 0, 0, "swap=out"},
      {MEMPROF_KV_RESERVE, paged, 8, 9, 48, "swap=in"},
      {MEMPROF_KV_FREE, paged, 7, 32, 0, ""},
      {MEMPROF_KV_FREE, paged, -1, 3, 16, ""},
      {MEMPROF_KV_RESERVE, plain, -1, 0, 1, ""},
      {MEMPROF_KV_APPEND, plain, 0, 0, 0, ""},
      {MEMPROF_KV_FREE, plain, -1, 0, 0, ""},
  };
  uint64_t slot = begin;
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    slot = event_at(&trail, slot);
    expect(&trail, slot, want[i].kind, want[i].cache, want[i].sequence, want[i].requested, want[i].provided);
    expect_context(&trail, slot, want[i].context);
    CHECK_EQUAL(trail.records[slot].device, want[i].kind == MEMPROF_KV_CACHE ? 0 : MEMPROF_NO_DEVICE);
    slot++;
  }
  CHECK_EQUAL(slot, trail.count);
}

// Before CUDA is used there is no trace that could describe the cache: it has no number, and
// what is said of it later is passed over.
TEST(nothing_before_the_first_use) {
  const uint64_t early = memprof_kv_cache(0, 1024, 256, "layout=contiguous");
  CHECK_EQUAL(early, 0);
  memprof_kv_reserve(early, 1, 0, 16, 3);
  char path[600];
  CHECK(!trail_find(getpid(), path, sizeof path));
  gpu_start();
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_kv_append(early, 1, 3);
  memprof_kv_free(early, 1, 0);
  memprof_kv_end(early);
  const struct trail trail = trail_read(getpid(), 0);
  for (uint64_t i = 0; i < trail.count; i++) CHECK(trail_kind(&trail.records[i]) < MEMPROF_KV_RESERVE || trail_kind(&trail.records[i]) > MEMPROF_KV_CACHE);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
