// watch.c - a native allocator: what its decisions look like in the spool.
#define _GNU_SOURCE
#include <pthread.h>

#include "gpu.h"
#include "memprof.h"
#include "trail.h"
#include "watch/watch.h"

// A stand-in for the allocator that is observed: it has torch's lock and torch's order of
// telling and counting, and blocks of 512 bytes at addresses that the tests choose.
static pthread_mutex_t allocator_lock;
static struct memprof_watch_sums sums;
static struct memprof_watch *watch;
static int reads;

static void read_sums(int device, struct memprof_watch_sums *out) {
  CHECK_EQUAL(device, 0);
  pthread_mutex_lock(&allocator_lock);
  *out = sums;
  reads++;
  pthread_mutex_unlock(&allocator_lock);
}

static void start(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&allocator_lock, &recursive);
  watch = memprof_watch_device(0, "native", read_sums);
  CHECK(watch != NULL && memprof_watch_device(0, "native", read_sums) == watch);
}

static uint64_t rounded(uint64_t size) { return (size + 511) / 512 * 512; }

static void segment(uint64_t addr, uint64_t size, void *stream, uint64_t pool, int joins) {
  pthread_mutex_lock(&allocator_lock);
  sums.reserved += size;
  memprof_watch_map(watch, 0, addr, size, stream, 0, pool, joins);
  pthread_mutex_unlock(&allocator_lock);
}

static void segment_back(uint64_t addr, uint64_t size, void *stream, uint64_t pool, int joins) {
  pthread_mutex_lock(&allocator_lock);
  if (joins) sums.reserved -= size;
  memprof_watch_unmap(watch, 0, addr, size, stream, 0, pool, joins);
  if (!joins) sums.reserved -= size;
  pthread_mutex_unlock(&allocator_lock);
}

static void take(uint64_t addr, uint64_t size, void *stream, uint64_t pool) {
  pthread_mutex_lock(&allocator_lock);
  memprof_watch_alloc(watch, 0, addr, size, stream, 0, pool);
  sums.provided += rounded(size);
  sums.active += rounded(size);
  if (sums.provided > sums.provided_peak) sums.provided_peak = sums.provided;
  pthread_mutex_unlock(&allocator_lock);
}

static void complete(uint64_t addr, uint64_t size, void *stream, uint64_t pool) {
  memprof_watch_free_done(watch, 0, addr, size, stream, 0, pool);
  sums.active -= rounded(size);
}

// `shared` blocks wait for other streams after their free.
static void give(uint64_t addr, uint64_t size, void *stream, uint64_t pool, bool shared) {
  pthread_mutex_lock(&allocator_lock);
  sums.provided -= rounded(size);
  memprof_watch_free(watch, 0, addr, size, stream, 0, pool);
  if (!shared) complete(addr, size, stream, pool);
  pthread_mutex_unlock(&allocator_lock);
}

static void done(uint64_t addr, uint64_t size, void *stream, uint64_t pool) {
  pthread_mutex_lock(&allocator_lock);
  complete(addr, size, stream, pool);
  pthread_mutex_unlock(&allocator_lock);
}

struct expected {
  enum memprof_kind kind;
  uint64_t addr, requested, provided;
};

// The events are exactly these, strings and totals left out.
static struct trail expect(const struct expected *events, uint64_t count) {
  struct trail trail = trail_read(getpid(), 0);
  uint64_t at = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    const struct memprof_record *record = &trail.records[i];
    if (trail_kind(record) == MEMPROF_STRING || trail_kind(record) == MEMPROF_TOTALS) continue;
    CHECK(at < count);
    CHECK_EQUAL(trail_kind(record), events[at].kind);
    CHECK_EQUAL(record->addr, events[at].addr);
    CHECK_EQUAL(record->requested, events[at].requested);
    CHECK_EQUAL(record->provided, events[at].provided);
    at++;
  }
  CHECK_EQUAL(at, count);
  trail_audit(&trail);
  return trail;
}
#define EXPECT(events) expect(events, sizeof(events) / sizeof *(events))

static const uint64_t BASE = (uint64_t)0x7f00 << 32;

TEST(life_of_a_segment) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  take(BASE, 1000, NULL, 0);
  take(BASE + 1024, 600, NULL, 0);
  give(BASE, 1000, NULL, 0, false);
  give(BASE + 1024, 600, NULL, 0, false);
  segment_back(BASE, 2 * MiB, NULL, 0, 0);
  const struct expected events[] = {
      {MEMPROF_ARENA, 0, 0, 0},
      {MEMPROF_MAP, BASE, 2 * MiB, 2 * MiB},
      {MEMPROF_STATISTICS, 0, 2 * MiB, 0},
      {MEMPROF_ALLOC, BASE, 1000, 1000},
      {MEMPROF_ALLOC, BASE + 1024, 600, 600},
      {MEMPROF_STATISTICS, 2048, 2 * MiB, 2048},  // before the first free: C at the top
      {MEMPROF_FREE, BASE, 1000, 1000},
      {MEMPROF_FREE, BASE + 1024, 600, 600},
      {MEMPROF_STATISTICS, 2048, 2 * MiB, 0},
      {MEMPROF_UNMAP, BASE, 0, 2 * MiB},
  };
  const struct trail trail = EXPECT(events);
  char text[4097];
  const struct memprof_record *arena = trail_event(&trail, MEMPROF_ARENA, 0);
  trail_text(&trail, arena->context, trail.count, text);
  CHECK(strstr(text, "allocator=native\tprovided=unknown\tcoalesces=0\tpool=0.0\tmain=1\tuuid=GPU-") == text);
  CHECK(strstr(text, "GPU-00000000-0000") == NULL);
  trail_text(&trail, trail_event(&trail, MEMPROF_STATISTICS, 0)->context, trail.count, text);
  CHECK(strcmp(text, "native") == 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STATISTICS, 0)->arena, MEMPROF_NO_ARENA);
}

static void check_settings(const char *expected) {
  char text[4097];
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  const struct trail trail = trail_read(getpid(), 0);
  trail_text(&trail, trail_event(&trail, MEMPROF_ARENA, 0)->context, trail.count, text);
  const char *conf = strstr(text, "\tconf=");
  CHECK(conf != NULL && strcmp(conf, expected) == 0);
}
TEST(settings, "PYTORCH_ALLOC_CONF", "max_split_size_mb:32") { check_settings("\tconf=max_split_size_mb:32"); }

// Where both are set, torch reads the older name only.
TEST(settings_by_two_names, "PYTORCH_ALLOC_CONF", "max_split_size_mb:32", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True") { check_settings("\tconf=expandable_segments:True"); }

// A free whose end does not follow at once waits for streams that nobody names.
TEST(free_that_waits) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  take(BASE, 512, NULL, 0);
  give(BASE, 512, NULL, 0, true);
  take(BASE + 512, 512, NULL, 0);
  give(BASE + 512, 512, NULL, 0, true);
  done(BASE, 512, NULL, 0);
  done(BASE + 512, 512, NULL, 0);
  const struct expected events[] = {
      {MEMPROF_ARENA, 0, 0, 0},
      {MEMPROF_MAP, BASE, 2 * MiB, 2 * MiB},
      {MEMPROF_STATISTICS, 0, 2 * MiB, 0},
      {MEMPROF_ALLOC, BASE, 512, 512},
      {MEMPROF_STATISTICS, 512, 2 * MiB, 512},
      {MEMPROF_STREAM_USE, BASE, 0, 0},
      {MEMPROF_FREE, BASE, 512, 512},
      {MEMPROF_ALLOC, BASE + 512, 512, 512},
      {MEMPROF_STREAM_USE, BASE + 512, 0, 0},
      {MEMPROF_FREE, BASE + 512, 512, 512},
      {MEMPROF_FREE_DONE, BASE, 512, 512},
      {MEMPROF_FREE_DONE, BASE + 512, 512, 512},
  };
  const struct trail trail = EXPECT(events);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STREAM_USE, 0)->stream, -1);
  CHECK(trail_event(&trail, MEMPROF_STREAM_USE, 0)->stream != trail_event(&trail, MEMPROF_ALLOC, 0)->stream);
}

// Frees before a mark are written before it, and so are the sums.
TEST(mark_after_a_free_that_waits) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  take(BASE, 512, NULL, 0);
  take(BASE + 512, 100, NULL, 0);
  give(BASE, 512, NULL, 0, true);
  memprof_iteration("");
  memprof_iteration("");
  done(BASE, 512, NULL, 0);
  const struct expected events[] = {
      {MEMPROF_ARENA, 0, 0, 0},
      {MEMPROF_MAP, BASE, 2 * MiB, 2 * MiB},
      {MEMPROF_STATISTICS, 0, 2 * MiB, 0},
      {MEMPROF_ALLOC, BASE, 512, 512},
      {MEMPROF_ALLOC, BASE + 512, 100, 100},
      {MEMPROF_STATISTICS, 1024, 2 * MiB, 1024},
      {MEMPROF_STREAM_USE, BASE, 0, 0},
      {MEMPROF_FREE, BASE, 512, 512},
      {MEMPROF_STATISTICS, 1024, 2 * MiB, 512},
      {MEMPROF_ITERATION, 0, 0, 0},
      {MEMPROF_STATISTICS, 1024, 2 * MiB, 512},
      {MEMPROF_ITERATION, 0, 1, 0},
      {MEMPROF_FREE_DONE, BASE, 512, 512},
  };
  EXPECT(events);
}

// The end of a free that a mark has looked at is the end of a pending one, even when nothing
// lies between.
TEST(mark_makes_no_free_final) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  take(BASE, 512, NULL, 0);
  give(BASE, 512, NULL, 0, true);
  memprof_watch_sample();
  done(BASE, 512, NULL, 0);
  take(BASE, 512, NULL, 0);
  give(BASE, 512, NULL, 0, false);
  const struct trail trail = trail_read(getpid(), 0);
  trail_audit(&trail);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STREAM_USE), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE), 2);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE_DONE), 1);
}

// Decisions of a moment ago, as a history tells of them: their own times, and no sums meanwhile.
TEST(given_times) {
  start();
  sums.reserved = MEMPROF_SUMS_UNKNOWN;
  memprof_watch_map(watch, MEMPROF_AT | 1000000, BASE, 2 * MiB, NULL, 0, 0, 0);
  memprof_watch_alloc(watch, MEMPROF_AT | 2000000, BASE, 512, NULL, 0, 0);
  memprof_watch_free(watch, MEMPROF_AT | 3000000, BASE, 512, NULL, 0, 0);
  memprof_watch_free_done(watch, MEMPROF_AT | 4000000, BASE, 512, NULL, 0, 0);
  const struct expected events[] = {
      {MEMPROF_ARENA, 0, 0, 0},
      {MEMPROF_MAP, BASE, 2 * MiB, 2 * MiB},
      {MEMPROF_ALLOC, BASE, 512, 512},
      {MEMPROF_FREE, BASE, 512, 512},
  };
  const struct trail trail = EXPECT(events);
  uint64_t time = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    const enum memprof_kind kind = trail_kind(&trail.records[i]);
    if (kind == MEMPROF_MAP || kind == MEMPROF_ALLOC || kind == MEMPROF_FREE) CHECK_EQUAL(trail.records[i].time_ns, time += 1000000);
  }
}

// A mark was written since: the times of decisions before it fall by half a second at most, and stay in order.
TEST(given_times_before_a_mark) {
  start();
  sums.reserved = MEMPROF_SUMS_UNKNOWN;
  memprof_watch_map(watch, MEMPROF_AT | 1000000, BASE, 2 * MiB, NULL, 0, 0, 0);
  memprof_iteration("");
  const struct trail before = trail_read(getpid(), 0);
  const uint64_t marked = before.records[before.count - 1].time_ns;
  memprof_watch_alloc(watch, MEMPROF_AT | 2000000, BASE, 512, NULL, 0, 0);
  memprof_watch_alloc(watch, MEMPROF_AT | (marked - 499999999), BASE + 512, 512, NULL, 0, 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.records[trail.count - 2].time_ns, marked - 500000000);
  CHECK_EQUAL(trail.records[trail.count - 1].time_ns, marked - 499999999);
}

TEST(sums_at_each_climb) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  const int first = reads;
  take(BASE, 1000, NULL, 0);
  give(BASE, 1000, NULL, 0, false);
  CHECK_EQUAL(reads, first + 1);
  for (int i = 0; i < 100; i++) {  // no higher than before
    take(BASE, 1000, NULL, 0);
    give(BASE, 1000, NULL, 0, false);
  }
  CHECK_EQUAL(reads, first + 1);
  take(BASE, 1001, NULL, 0);
  take(BASE + 1024, 1, NULL, 0);
  give(BASE, 1001, NULL, 0, false);
  CHECK_EQUAL(reads, first + 2);
  memprof_iteration("");
  CHECK_EQUAL(reads, first + 3);
  for (int i = 0; i < 2; i++) {  // the top of a new iteration, lower than that of the first
    take(BASE, 700, NULL, 0);
    give(BASE, 700, NULL, 0, false);
  }
  CHECK_EQUAL(reads, first + 4);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STATISTICS, 4)->provided, 1024 + 512);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STATISTICS, 4)->addr, 1536);
}

// Streams, pools and the two manners of mapping each have an arena of their own.
TEST(arenas) {
  void *stream = (void *)0x100;
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  segment(BASE + 2 * MiB, 2 * MiB, stream, 0, 0);
  segment(BASE + 4 * MiB, 2 * MiB, NULL, 7, 0);
  segment(BASE + 6 * MiB, 2 * MiB, NULL, 0, 1);
  segment(BASE + 8 * MiB, 2 * MiB, NULL, 0, 1);
  const struct {
    uint64_t addr, bytes;
    void *stream;
    uint64_t pool;
    uint32_t arena;
  } blocks[] = {
      {BASE + MiB, MiB, NULL, 0, 0},
      {BASE + 2 * MiB, MiB, stream, 0, 1},
      {BASE + 4 * MiB, MiB, NULL, 7, 2},
      {BASE + 7 * MiB, 2 * MiB, NULL, 0, 3},  // spans two mappings
  };
  for (size_t i = 0; i < 4; i++) take(blocks[i].addr, blocks[i].bytes, blocks[i].stream, blocks[i].pool);
  for (size_t i = 0; i < 4; i++) give(blocks[i].addr, blocks[i].bytes, blocks[i].stream, blocks[i].pool, false);
  segment_back(BASE + 8 * MiB, 2 * MiB, NULL, 0, 1);
  segment_back(BASE, 2 * MiB, NULL, 0, 0);
  const struct trail trail = trail_read(getpid(), 0);
  trail_audit(&trail);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 4);
  for (uint32_t i = 0; i < 4; i++) {
    CHECK_EQUAL(trail_event(&trail, MEMPROF_ARENA, i)->arena, i);
    CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, i)->arena, blocks[i].arena);
    CHECK_EQUAL(trail_event(&trail, MEMPROF_FREE, i)->arena, blocks[i].arena);
  }
  CHECK_EQUAL(trail_event(&trail, MEMPROF_UNMAP, 0)->arena, 3);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_UNMAP, 1)->arena, 0);
  char text[4097];
  trail_text(&trail, trail_event(&trail, MEMPROF_ARENA, 2)->context, trail.count, text);
  CHECK(strstr(text, "\tpool=0.7\tmain=0\t") != NULL);
  trail_text(&trail, trail_event(&trail, MEMPROF_ARENA, 3)->context, trail.count, text);
  CHECK(strstr(text, "\tcoalesces=1\tpool=0.0\tmain=1\t") != NULL);
}

TEST(out_of_memory) {
  start();
  memprof_watch_oom(watch, 0, 5 * GiB, NULL, 0, 0);
  segment(BASE, 2 * MiB, NULL, 0, 0);
  memprof_watch_oom(watch, 0, 6 * GiB, NULL, 0, 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_OOM, 0)->requested, 5 * GiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_OOM, 0)->arena, MEMPROF_NO_ARENA);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_OOM, 1)->requested, 6 * GiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_OOM, 1)->arena, 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STATISTICS), 3);
}

TEST(contexts_and_labels) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  memprof_set_context("module=net.fc");
  take(BASE, 512, NULL, 0);
  memprof_label((void *)(uintptr_t)BASE, "category=weights\tname=fc.weight");
  const struct trail trail = trail_read(getpid(), 0);
  char text[4097];
  trail_text(&trail, trail_event(&trail, MEMPROF_ALLOC, 0)->context, trail.count, text);
  CHECK(strcmp(text, "module=net.fc") == 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_LABEL, 0)->addr, BASE);
  trail_text(&trail, trail_event(&trail, MEMPROF_LABEL, 0)->context, trail.count, text);
  CHECK(strcmp(text, "category=weights\tname=fc.weight") == 0);
}

TEST(calls_of_the_allocator_itself) {
  CHECK(watch_is_of("libc10_cuda.so") && !watch_is_of("libc10_cuda_extension.so") && !watch_is_of("libnccl.so.2"));
  CHECK(!watch_reports());
  start();
  CHECK(watch_reports());
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  CHECK(!watch_reports());
  memprof_watch_sample();  // of a device that was never used
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STATISTICS), 0);
}

TEST(memory_from_before) {
  start();
  memprof_watch_adopt(watch, BASE, 0);
  segment(BASE, 2 * MiB, NULL, 0, 0);
  const struct trail trail = trail_read(getpid(), 0);
  const struct memprof_record *end = trail_event(&trail, MEMPROF_EXTERNAL_FREE, 0);
  CHECK(end != NULL && end->addr == BASE && end < trail_event(&trail, MEMPROF_MAP, 0));
}

TEST(forked_child) {
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  take(BASE, 512, NULL, 0);
  const pid_t child = fork();
  if (child == 0) {
    give(BASE, 512, NULL, 0, true);
    memprof_watch_sample();
    memprof_iteration("");
    done(BASE, 512, NULL, 0);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ITERATION), 0);
}

// Threads allocate and free under the allocator's lock, now and then blocks that wait, while
// another marks all the time: every free is written once and in its place.
enum { THREADS = 4, ROUNDS = 4000, SLOTS = 64 };
static _Atomic int working = THREADS;

static void *work(void *number) {
  const uint64_t base = BASE + (uint64_t)(intptr_t)number * SLOTS * 512;
  bool live[SLOTS] = {0}, waits[SLOTS] = {0};
  uint64_t state = (uint64_t)(intptr_t)number + 1;
  for (int i = 0; i < ROUNDS; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int slot = (int)(state >> 33) % SLOTS;
    const uint64_t addr = base + (uint64_t)slot * 512, size = 1 + (uint64_t)slot;
    if (waits[slot]) {
      done(addr, size, NULL, 0);
      waits[slot] = false;
    } else if (live[slot]) {
      waits[slot] = state >> 62 == 0;
      give(addr, size, NULL, 0, waits[slot]);
      live[slot] = false;
    } else {
      take(addr, size, NULL, 0);
      live[slot] = true;
    }
  }
  for (int slot = 0; slot < SLOTS; slot++) {
    const uint64_t addr = base + (uint64_t)slot * 512, size = 1 + (uint64_t)slot;
    if (waits[slot]) done(addr, size, NULL, 0);
    if (live[slot]) give(addr, size, NULL, 0, false);
  }
  working--;
  return NULL;
}

TEST(marks_among_threads) {
  pthread_t threads[THREADS];
  start();
  segment(BASE, 2 * MiB, NULL, 0, 0);
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  while (working > 0) memprof_iteration("");
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  memprof_iteration("");
  const struct trail trail = trail_read(getpid(), 0);
  const struct audit audit = trail_audit(&trail);
  CHECK_EQUAL(audit.live, 0);
  CHECK_EQUAL(audit.pending, 0);
  CHECK_EQUAL(audit.reserved, 2 * MiB);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), trail_number(&trail, MEMPROF_FREE));
  CHECK(trail_number(&trail, MEMPROF_FREE_DONE) > 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE_DONE), trail_number(&trail, MEMPROF_STREAM_USE));
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
