// pools.c - private pools: held, released and unmapped; checkpoints; memory of a source.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "agree.h"
#include "arena/arena.h"
#include "arena/pool.h"
#include "arena/source.h"
#include "device/captures.h"
#include "gpu.h"

enum { POOL = 7 };

static void *take(uint64_t bytes, void *stream) {
  void *ptr = memprof_malloc_in_pool(bytes, 0, stream, POOL, 0);
  CHECK(ptr != NULL);
  return ptr;
}

static void release(void *ptr) { memprof_free(ptr, 0, 0, NULL); }

TEST(held) {
  gpu_start();
  memprof_pool_begin(0, POOL, 0);
  void *ptr = take(8 * MiB, NULL);
  memprof_pool_end(0, POOL, 0);
  release(ptr);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 8 * MiB);
  CHECK(memprof_malloc(8 * MiB, 0, NULL) != ptr);  // and serves nobody else
  CHECK(take(8 * MiB, NULL) == ptr);
  trail_agrees();
}

TEST(ends) {
  gpu_start();
  const uint64_t before = gpu_free();
  memprof_pool_hold(0, POOL, 0);
  memprof_pool_hold(0, POOL, 0);
  release(take(8 * MiB, NULL));
  void *side = gpu_stream();
  release(take(4 * MiB, side));
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(memprof_pool_uses(0, POOL, 0), 1);
  CHECK_EQUAL(gpu_free(), before - 12 * MiB);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 2);
  memprof_release_pool(0, POOL, 0);  // once too often: nothing happens
}

// A graph's output may outlive the graph.
TEST(last_block) {
  gpu_start();
  memprof_pool_hold(0, POOL, 0);
  void *kept = take(8 * MiB, NULL);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 8 * MiB);
  void *start;
  size_t provided;
  CHECK(memprof_block_of((char *)kept + 100, &start, &provided) == 1 && start == kept);
  release(kept);
  CHECK_EQUAL(stats().reserved_bytes.current, 8 * MiB);  // a free does not wait for the device
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 1);
}

// Work may still run on memory that was freed in stream order: where the device cannot be waited
// for, the pool keeps it.
TEST(unwaited, "MEMPROF_SIM_FAIL", "cuCtxRecordEvent:1+=999,cuCtxSynchronize:1+=999") {
  gpu_start();
  memprof_pool_hold(0, POOL, 0);
  void *ptr = take(8 * MiB, NULL);
  release(ptr);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 8 * MiB);
  CHECK(take(8 * MiB, NULL) == ptr);
  memset(ptr, 1, 8 * MiB);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNMAP), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 0);
}

// A graph may go while another is captured: a wait would spoil that one, so its pool goes later.
TEST(captured) {
  gpu_start();
  void *stream = gpu_stream(), *graph = NULL;
  memprof_pool_hold(0, POOL, 0);
  release(take(8 * MiB, NULL));
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 8 * MiB);
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 1);
}

TEST(may_unmap) {
  gpu_start();
  memprof_pool_hold(0, POOL, 0);
  void *ptr = take(8 * MiB, NULL);
  release(ptr);
  memprof_pool_may_unmap(0, POOL, 0, 1);
  CHECK_EQUAL(memprof_empty_cache(0), 8 * MiB);
  CHECK(take(8 * MiB, NULL) == ptr);  // mapped again
  trail_agrees();
}

// More pools than there is room for addresses, were they not returned.
TEST(addresses) {
  ONE_THREAD();
  gpu_start();
  for (int i = 0; i < 10000; i++) {
    memprof_pool_hold(0, POOL, (uint64_t)i);
    void *ptr = memprof_malloc_in_pool(1000, 0, NULL, POOL, (uint64_t)i);
    size_t provided;
    CHECK(ptr != NULL && memprof_owns(ptr, &provided));
    release(ptr);
    memprof_release_pool(0, POOL, (uint64_t)i);
    CHECK(!memprof_owns(ptr, &provided));
  }
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
}

struct noted {
  struct memprof_restored blocks[64];
  size_t count, freed;
  void *stream;
  bool wanted;
};

static void note_segment(void *self, const struct memprof_segment *segment) {
  struct noted *noted = self;
  noted->stream = segment->stream;
  noted->wanted = segment->pool[0] == POOL;
}

static void note_chunk(void *self, const struct memprof_chunk *chunk) {
  struct noted *noted = self;
  if (!noted->wanted || chunk->state == MEMPROF_CHUNK_FREE) return;
  noted->blocks[noted->count++] = (struct memprof_restored){noted->stream, chunk->addr, chunk->size, chunk->requested};
}

static struct noted note_all(void) {
  struct noted noted = {0};
  const struct memprof_visitor visitor = {&noted, note_segment, note_chunk};
  memprof_walk(0, &visitor);
  return noted;
}

static void count_freed(void *self, void *ptr) {
  struct noted *noted = self;
  CHECK(ptr != NULL);
  noted->freed++;
}

TEST(restore) {
  gpu_start();
  void *side = gpu_stream();
  memprof_pool_hold(0, POOL, 0);
  void *a = take(1000, NULL), *b = take(3 * MiB, NULL), *c = take(5000, NULL), *d = take(70000, side);
  release(b);
  struct noted then = note_all();
  CHECK_EQUAL(then.count, 3);
  memprof_checkpoint(0, POOL, 0, then.count, 0);
  // Another history: what was live dies, other blocks take its places, one used elsewhere.
  release(a), release(c);
  void *e = take(2 * MiB, NULL), *f = take(400, NULL);
  memprof_record_stream(f, side);
  CHECK(e == a && f != NULL);
  CHECK_EQUAL(memprof_restore(0, POOL, 0, then.blocks, then.count, &then, count_freed), 1);
  CHECK_EQUAL(then.freed, 3);  // d, e and f
  const struct noted now = note_all();
  CHECK_EQUAL(now.count, then.count);
  CHECK(memcmp(now.blocks, then.blocks, then.count * sizeof *then.blocks) == 0);
  CHECK(take(3 * MiB, NULL) == b);  // the free chunks are those of then
  release(a), release(c), release(d);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_RESTORE), 3);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_CHECKPOINT), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE_DONE), 1);
}

TEST(restore_refused) {
  gpu_start();
  memprof_pool_hold(0, POOL, 0);
  void *a = take(1000, NULL);
  struct noted then = note_all();
  then.blocks[then.count] = then.blocks[0];
  CHECK_EQUAL(memprof_restore(0, POOL, 0, then.blocks, then.count + 1, &then, count_freed), 0);
  size_t provided;
  CHECK(memprof_owns(a, &provided));
  trail_agrees();
}

// A source that hands out parts of one array, one of them not at a granule's border.
struct array {
  char *memory;
  size_t used, skew;
  int taken, returned;
  size_t most;
};

static void *array_take(void *self, size_t bytes) {
  struct array *source = self;
  if (source->used + bytes + source->skew > source->most) return NULL;
  char *ptr = source->memory + source->used + source->skew;
  source->used += (bytes + 4 * MiB - 1) / (2 * MiB) * (2 * MiB);
  source->taken++;
  return ptr;
}

static void array_return(void *self, void *ptr) {
  struct array *source = self;
  CHECK(ptr != NULL);
  source->returned++;
}

// It may wait for what other threads do.
static void array_return_alone(void *self, void *ptr) {
  CHECK(lock_try(&gpu_existing(0)->lock));
  lock_give(&gpu_existing(0)->lock);
  captures_begin();
  captures_end();
  array_return(self, ptr);
}

// Starts the device, and has the pool take its memory from the source.
static void begin_source(struct array *source, void *(*allocate)(void *, size_t)) {
  gpu_start();
  source->most = 64 * MiB;
  CHECK(posix_memalign((void **)&source->memory, 2 * MiB, source->most) == 0);
  memprof_pool_hold(0, POOL, 0);
  CHECK_EQUAL(memprof_pool_source(0, POOL, 0, source, allocate, array_return), 1);
}

static void with_source(size_t skew) {
  struct array source = {.skew = skew};
  begin_source(&source, array_take);
  const uint64_t before = gpu_free();
  char *a = take(1000, NULL), *b = take(MiB, NULL), *c = take(10 * MiB, NULL);
  CHECK(a >= source.memory && c < source.memory + source.most);
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(stats().reserved_bytes.current, 12 * MiB);
  CHECK_EQUAL(source.taken, skew == 0 ? 2 : 4);
  CHECK_EQUAL(memprof_pool_source(0, POOL, 0, &source, array_take, array_return), 0);  // too late
  CHECK(memprof_malloc_in_pool(60 * MiB, 0, NULL, POOL, 0) == NULL);
  size_t provided;
  CHECK(memprof_owns(b, &provided));
  release(b), release(c);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK(take(10 * MiB, NULL) == c);
  release(a), release(c);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  CHECK_EQUAL(source.returned, source.taken);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 1);
  free(source.memory);
}

TEST(source) { with_source(0); }
TEST(source_skewed) { with_source(4096); }

// An engine's allocator unmaps its memory and maps it again: interpose/ tells the arena.
TEST(source_that_unmaps) {
  struct array source = {0};
  begin_source(&source, array_take);
  char *passing = take(4 * MiB, NULL), *weights = take(8 * MiB, NULL), *cache = take(8 * MiB, NULL);
  const uint64_t at = (uintptr_t)weights, other = (uintptr_t)cache;
  release(passing);
  CHECK(source_holds(at) && !source_holds(at + 64 * MiB));

  source_unmaps((uintptr_t)passing, 4 * MiB);  // without a block: it leaves
  CHECK_EQUAL(stats().reserved_bytes.current, 16 * MiB);
  source_unmaps(at, 4 * MiB);  // in two parts
  source_unmaps(other, 8 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, 16 * MiB);
  source_unmaps(at + 4 * MiB, 4 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, 16 * MiB);  // paused: torch does not know
  CHECK_EQUAL(stats().allocated_bytes.current, 16 * MiB);
  CHECK_EQUAL(memprof_resume(NULL, 0, 0), MEMPROF_WRONG_STATE);  // its own allocator alone can do that
  release(cache);

  source_mapped((uintptr_t)passing, 4 * MiB);
  source_mapped(at, 8 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, 16 * MiB);
  source_mapped(other, 8 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, 20 * MiB);
  CHECK_EQUAL(stats().allocated_bytes.current, 8 * MiB);
  CHECK(take(4 * MiB, NULL) == passing && take(8 * MiB, NULL) == cache);
  struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PAUSE), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_RESUME), 1);

  release(passing);
  source_unmaps((uintptr_t)passing, 4 * MiB);
  char *more = take(4 * MiB, NULL);
  CHECK(more != passing);  // what has left is not handed out
  release(weights), release(cache);
  const int taken = source.taken;
  source_unmaps(at, 8 * MiB);
  release(more);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(source.returned, taken - 2);  // not what it has unmapped itself
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  trail_agrees();
  free(source.memory);
}

// An engine with tags: its pools are entered in regions, and its pauses name the tag. memprof_pause without names leaves
// them alone.
TEST(source_of_a_tag) {
  struct array source = {0};
  begin_source(&source, array_take);
  CHECK_EQUAL(memprof_region_begin("the weights", MEMPROF_RESTORE_NONE), MEMPROF_OK);
  const uint64_t at = (uintptr_t)take(8 * MiB, NULL);
  memprof_region_end();
  CHECK_EQUAL(memprof_region_begin("ours", MEMPROF_RESTORE_NONE), MEMPROF_OK);
  CHECK(memprof_malloc(4 * MiB, 0, NULL) != NULL);
  memprof_region_end();

  struct memprof_tag_usage usage;
  memprof_tag_usage("the weights", &usage);
  CHECK_EQUAL(usage.mapped, 8 * MiB);
  memprof_tag_offloaded("the weights", 1);
  source_unmaps(at, 8 * MiB);
  memprof_tag_usage("the weights", &usage);
  CHECK(usage.mapped == 0 && usage.paused == 8 * MiB && usage.live == 8 * MiB);
  source_mapped(at, 8 * MiB);
  CHECK_EQUAL(memprof_pause(NULL, 0, 0), MEMPROF_OK);  // ours alone
  CHECK_EQUAL(memprof_resume(NULL, 0, 0), MEMPROF_OK);
  const char *const named[] = {"the weights"};
  CHECK_EQUAL(memprof_pause(named, 1, 0), MEMPROF_WRONG_STATE);

  const struct trail trail = trail_agrees();
  char text[4097];
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PAUSE), 3);  // the last one failed
  const struct memprof_record *first = trail_event(&trail, MEMPROF_PAUSE, 0);
  CHECK(first->requested == 8 * MiB && first->provided == 8 * MiB && first->addr > 0);
  trail_text(&trail, first->context, trail.count, text);
  CHECK(strcmp(text, "tag=the_weights\tby=source") == 0);
  free(source.memory);
}

// A library that replaces cudaMalloc: pools without a source take their memory from it.
TEST(source_usual) {
  gpu_start();
  struct array usual = {.most = 16 * MiB}, own = {.most = 16 * MiB};
  CHECK(posix_memalign((void **)&usual.memory, 2 * MiB, usual.most) == 0);
  CHECK(posix_memalign((void **)&own.memory, 2 * MiB, own.most) == 0);
  pool_set_usual_source((struct source){&usual, array_take, array_return_alone});
  memprof_pool_hold(0, POOL, 0);
  memprof_pool_hold(0, POOL, 1);
  CHECK_EQUAL(memprof_pool_source(0, POOL, 1, &own, array_take, array_return), 1);
  char *a = take(MiB, NULL), *b = memprof_malloc_in_pool(MiB, 0, NULL, POOL, 1), *c = memprof_malloc(MiB, 0, NULL);
  CHECK(a >= usual.memory && a < usual.memory + usual.most && b >= own.memory && b < own.memory + own.most);
  CHECK_EQUAL(usual.taken + own.taken, 2);
  release(a), release(b), release(c);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(usual.returned, 1);
  trail_agrees();
  free(usual.memory), free(own.memory);
}

// Another thread allocates while a reclaim returns memory to its source: all unmaps of the reclaim come before that.
static void *take_small(void *unused) {
  (void)unused;
  return memprof_malloc(1000, 0, NULL);
}

static void array_return_beside(void *self, void *ptr) {
  pthread_t other;
  void *taken;
  CHECK(pthread_create(&other, NULL, take_small, NULL) == 0 && pthread_join(other, &taken) == 0);
  CHECK(taken != NULL);
  array_return(self, ptr);
}

TEST(source_in_a_reclaim, "MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "headroom=0") {
  gpu_start();
  struct array source = {.most = 8 * MiB};
  CHECK(posix_memalign((void **)&source.memory, 2 * MiB, source.most) == 0);
  pool_set_usual_source((struct source){&source, array_take, array_return_beside});
  void *one = gpu_stream(), *two = gpu_stream();
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_pool_hold(0, POOL, 0);
  release(take(MiB, NULL));
  void *freed = memprof_malloc(40 * MiB, 0, one);
  gpu_hold(one);
  gpu_reads(one, freed, 40 * MiB);
  memprof_release_pool(0, POOL, 0);
  memprof_free(freed, 0, 0, one);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, let_go_later, one) == 0);
  CHECK(memprof_malloc(50 * MiB, 0, two) != NULL);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(source.returned, 1);
  const struct trail trail = trail_agrees();
  enum memprof_kind before = MEMPROF_ALLOC;
  for (uint64_t i = 0; i < trail.count; i++) {
    const enum memprof_kind kind = trail_kind(&trail.records[i]);
    if (kind == MEMPROF_UNMAP) CHECK_EQUAL(before, MEMPROF_RECLAIM);
    if (kind == MEMPROF_ALLOC || kind == MEMPROF_RECLAIM) before = kind;
  }
  free(source.memory);
}

// Python code runs in such an allocator: its collector may free tensors, and it may ask and allocate.
static void *garbage, *nested;

static void *busy_take(void *self, size_t bytes) {
  CHECK(stats().allocated_bytes.current > 0);
  if (garbage != NULL) release(garbage);
  garbage = NULL;
  if (nested == NULL) nested = memprof_malloc(MiB, 0, NULL);  // from CUDA, if at all
  return array_take(self, bytes);
}

TEST(source_that_calls_back) {
  struct array source = {0};
  begin_source(&source, busy_take);
  garbage = memprof_malloc(6 * MiB, 0, NULL);
  char *a = take(8 * MiB, NULL);
  CHECK(garbage == NULL);
  CHECK_EQUAL(stats().allocated_bytes.current, 8 * MiB);
  release(a), release(nested);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE), 2);
  free(source.memory);
}

// A thread that unmaps memory may hold a lock that the source waits for, in another thread: it does not
// wait for that thread for ever, and the change is seen later.
static pthread_mutex_t engine = PTHREAD_MUTEX_INITIALIZER;
static atomic_int in_source;

static void *waiting_take(void *self, size_t bytes) {
  if (atomic_fetch_add(&in_source, 1) > 0) {
    pthread_mutex_lock(&engine);
    pthread_mutex_unlock(&engine);
  }
  return array_take(self, bytes);
}

static void *take_more(void *unused) {
  (void)unused;
  return take(4 * MiB, NULL);
}

TEST(source_that_waits) {
  struct array source = {0};
  begin_source(&source, waiting_take);
  char *weights = take(8 * MiB, NULL);
  pthread_t other;
  pthread_mutex_lock(&engine);
  CHECK(pthread_create(&other, NULL, take_more, NULL) == 0);
  while (atomic_load(&in_source) < 2) sched_yield();
  source_unmaps((uintptr_t)weights, 8 * MiB);
  source_mapped((uintptr_t)weights, 8 * MiB);
  source_unmaps((uintptr_t)weights, 8 * MiB);
  pthread_mutex_unlock(&engine);
  void *more;
  CHECK(pthread_join(other, &more) == 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 12 * MiB);
  source_unmaps((uintptr_t)more, 4 * MiB);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PAUSE), 1);
  free(source.memory);
}

static void *kept;
static int asked;

static int give_up(void) {
  asked++;
  release(kept);
  return 1;
}

TEST(last_resort, "MEMPROF_SIM_MEMORY", "67108864", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0") {
  gpu_start();
  memprof_set_last_resort(give_up);
  kept = memprof_malloc(50 * MiB, 0, NULL);
  CHECK(kept != NULL);
  CHECK(memprof_malloc(40 * MiB, 0, NULL) == kept);
  CHECK_EQUAL(asked, 1);
  kept = NULL;
  CHECK(memprof_malloc(40 * MiB, 0, NULL) == NULL);  // asked in vain
  CHECK_EQUAL(asked, 2);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OOM), 1);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
