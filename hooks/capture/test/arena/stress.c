// stress.c - eight threads with a stream each, and one that empties the cache all the time.
//
// Every block carries a pattern at both ends, in the simulated device's real pages: two
// owners of one byte, or a block on pages that were unmapped, show at once.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"
#include "memprof.h"
#include "random.h"
#include "trail.h"

enum { THREADS = 8, LIVE = 16, OPERATIONS = 4000, PATTERN = 64 };

struct block {
  unsigned char *start;
  uint64_t bytes;
  unsigned char pattern;
};

static void *streams[THREADS];
static _Atomic int working;
static pthread_mutex_t mail = PTHREAD_MUTEX_INITIALIZER;
static struct block mailbox;  // a block on its way to be freed by another thread

static void end(struct block *block) {
  if (block->start == NULL) return;
  const uint64_t span = block->bytes < PATTERN ? block->bytes : PATTERN;
  for (uint64_t i = 0; i < span; i++) {
    CHECK_EQUAL(block->start[i], block->pattern);
    CHECK_EQUAL(block->start[block->bytes - 1 - i], block->pattern);
  }
  memprof_free(block->start, 0, 0, NULL);
  block->start = NULL;
}

static void begin(struct block *block, uint64_t bytes, void *stream, unsigned char pattern) {
  *block = (struct block){memprof_malloc(bytes, 0, stream), bytes, pattern};
  CHECK(block->start != NULL);
  const uint64_t span = bytes < PATTERN ? bytes : PATTERN;
  memset(block->start, pattern, span);
  memset(block->start + bytes - span, pattern, span);
}

static void exchange(struct block *block) {
  pthread_mutex_lock(&mail);
  const struct block other = mailbox;
  mailbox = *block;
  *block = other;
  pthread_mutex_unlock(&mail);
}

static void *work(void *argument) {
  const int self = (int)(intptr_t)argument;
  uint64_t random = 1 + (uint64_t)self;
  struct block blocks[LIVE] = {0};
  char name[32];
  for (int i = 0; i < OPERATIONS; i++) {
    struct block *block = &blocks[random_below(&random, LIVE)];
    if (i % 512 == 0) {
      snprintf(name, sizeof name, "thread %d step %d", self, i / 512);
      memprof_set_context(name);
    }
    if (block->start == NULL) {
      begin(block, 1 + random_below(&random, i % 64 == 0 ? 8 * MiB : 64 * KiB), streams[self], (unsigned char)random);
      if (i % 7 == 0) memprof_record_stream(block->start, streams[(self + 1) % THREADS]);
    } else if (i % 16 == 0) {
      exchange(block);
    } else {
      end(block);
    }
  }
  for (int i = 0; i < LIVE; i++) end(&blocks[i]);
  atomic_fetch_sub(&working, 1);
  return NULL;
}

static void *disturb(void *unused) {
  struct memprof_stats stats;
  for (uint64_t limit = GiB; atomic_load(&working) > 0; limit++) {
    memprof_empty_cache(0);
    memprof_get_stats(0, &stats);
    CHECK(stats.reserved_bytes.current >= stats.active_bytes.current);
    memprof_largest_free(0);
    memprof_set_limit(0, limit);
    memprof_iteration("step");
    usleep(200);
  }
  return unused;
}

// One thread for each stream, and one beside them for as long as any works.
static void run_threads(void *(*each)(void *), void *(*beside)(void *)) {
  pthread_t threads[THREADS], other;
  for (int i = 0; i < THREADS; i++) streams[i] = gpu_stream();
  atomic_store(&working, THREADS);
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, each, (void *)i) == 0);
  CHECK(pthread_create(&other, NULL, beside, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(pthread_join(other, NULL) == 0);
}

static void check_eight_streams(void) {
  gpu_start();
  run_threads(work, disturb);
  end(&mailbox);
  memprof_empty_cache(0);
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  CHECK_EQUAL(stats.allocation.current, 0);
  CHECK_EQUAL(stats.active_bytes.current, 0);
  CHECK_EQUAL(stats.reserved_bytes.current, 0);
  CHECK_EQUAL(stats.ooms, 0);
  const struct trail trail = trail_read(getpid(), 0);
  const struct audit audit = trail_audit(&trail);
  CHECK_EQUAL(audit.live + audit.pending + audit.reserved, 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), stats.allocation.allocated);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), THREADS);
}

TEST(eight_streams) { check_eight_streams(); }
TEST(eight_streams_trimmed, "MEMPROF_OPTIONS", "preset=compact,trim=iteration") { check_eight_streams(); }
TEST(eight_streams_trimmed_when_idle, "MEMPROF_OPTIONS", "trim=idle:200000") { check_eight_streams(); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
