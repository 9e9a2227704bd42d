// random_readers.c - random programs of several streams, which free what other streams still read as torch lets them: no reader's byte changes,
// and nothing waits but what may.
//
// A program frees a block that other streams use in one of three ways: it tells so before (record_stream), it has the block's stream wait for
// them before the free, or only before that stream's next work. The simulated GPU knows what all work reads and writes, and ends a program
// that has a race (simcuda/work.c). Streams are held, so that work stays unfinished; where the hook waits for it, a thread lets them go.
//
// A process runs some programs under one policy; on one card with room for all of them nothing may wait but empty_cache and pauses. MEMPROF_TEST_JOBS is
// how many programs run, MEMPROF_TEST_SEED the seed of the first process.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gpu.h"
#include "quiet.h"
#include "random.h"

enum { STREAMS = 4, BLOCKS = 16, STEPS = 200, PROGRAMS = 10, CAPTURED = 8, LARGEST = 160 /* MiB */, PAGE = 2 << 20 };

int cuStreamDestroy_v2(void *stream);

struct block {
  unsigned char *start;
  uint64_t bytes, mark;  // what its first bytes and its pages' hold, 0: nothing yet
  int stream;            // that it was allocated on; -1: destroyed since, with all streams behind it
  unsigned readers, writers;  // streams with work on it that no other is behind
  bool tagged;
};

// What a graph has captured: its replays use all of it, freed or not.
struct graph {
  uint64_t pool;  // 0: there is none
  int stream, count;
  bool begun;
  struct {
    void *start;
    uint64_t bytes;
    bool live;
  } blocks[CAPTURED];
};

// A thread's program.
struct program {
  uint64_t random;
  void *_Atomic streams[STREAMS];
  bool held[STREAMS];
  unsigned owes_readers[STREAMS], owes_writers[STREAMS];  // streams whose work a stream has to wait for before its next
  struct block blocks[BLOCKS];
  struct graph graph;
  bool alone;  // no other thread runs one
  bool paused;
  const char *tag;
  int backed_up;  // whether what its blocks hold comes back with a resume
};

static bool roomy;          // the card has room for everything
static _Atomic bool ended;  // the program under way
static uint64_t before;     // waits before it
static uint64_t allowed;    // of its waits

static uint64_t below(struct program *p, uint64_t bound) { return random_below(&p->random, bound); }

// The driver may refuse one call, also of ours.
static void order(void *first, void *then) {
  int (*create)(void **, unsigned), (*record)(void *, void *), (*wait)(void *, void *, unsigned), (*destroy)(void *);
  void *event = NULL;
  GPU_CALL(create, "cuEventCreate");
  GPU_CALL(record, "cuEventRecord");
  GPU_CALL(wait, "cuStreamWaitEvent");
  GPU_CALL(destroy, "cuEventDestroy_v2");
  if (create(&event, 2) != 0) CHECK(create(&event, 2) == 0);
  CHECK(record(event, first) == 0 && wait(then, event, 0) == 0 && destroy(event) == 0);
}

static bool captures(const struct program *p, int stream) { return p->graph.begun && p->graph.stream == stream; }

// The stream waits for all in a set.
static void wait_for(struct program *p, unsigned set, int stream) {
  for (int i = 0; i < STREAMS; i++) {
    if (set >> i & 1 && i != stream) order(p->streams[i], p->streams[stream]);
  }
}

// Before a stream's next work, or its next write: the waits that were put off.
static void wait_owed(struct program *p, int stream, bool writes) {
  wait_for(p, p->owes_writers[stream] | (writes ? p->owes_readers[stream] : 0), stream);
  p->owes_writers[stream] = 0;
  if (writes) p->owes_readers[stream] = 0;
}

static void check_marks(const struct block *block) {
  for (uint64_t at = 0; block->mark != 0 && at + sizeof block->mark <= block->bytes; at += PAGE) CHECK(memcmp(block->start + at, &block->mark, sizeof block->mark) == 0);
}

// By one call where that is allowed: to touch the pages one after the other was a third of the time, a fault each.
static void mark(struct program *p, struct block *block) {
  struct iovec from[LARGEST * MiB / PAGE + 1], to[LARGEST * MiB / PAGE + 1];
  unsigned long count = 0;
  block->mark = 1 + below(p, UINT32_MAX);
  for (uint64_t at = 0; at + sizeof block->mark <= block->bytes; at += PAGE, count++) {
    from[count] = (struct iovec){&block->mark, sizeof block->mark};
    to[count] = (struct iovec){block->start + at, sizeof block->mark};
  }
  const ssize_t written = process_vm_writev(getpid(), from, count, to, count, 0);
  if (written < 0 && (errno == ENOSYS || errno == EPERM)) {
    for (unsigned long i = 0; i < count; i++) memcpy(to[i].iov_base, &block->mark, sizeof block->mark);
  } else {
    CHECK_EQUAL(written, count * sizeof block->mark);
  }
}

// Work of a stream on a block, behind what it has to be behind.
static void work(struct program *p, struct block *block, int stream, bool writes) {
  if (captures(p, stream) || captures(p, block->stream) || (block->tagged && p->paused)) return;
  if (block->stream >= 0) {
    wait_owed(p, block->stream, writes);
    if (stream != block->stream) order(p->streams[block->stream], p->streams[stream]);
  }
  wait_for(p, block->writers | (writes ? block->readers : 0), stream);
  if (writes) {
    gpu_writes(p->streams[stream], block->start, block->bytes);
    mark(p, block);
    block->writers = 1u << stream, block->readers = 0;
  } else {
    gpu_reads(p->streams[stream], block->start, block->bytes);
    block->readers |= 1u << stream;
  }
}

static uint64_t size(struct program *p) {
  const uint64_t kind = below(p, 8);
  return 1 + below(p, kind == 0 ? LARGEST * MiB : kind < 5 ? 40 * MiB : 2 * MiB);
}

// Others' waits count too, where there are others.
static void none_since(const struct program *p, uint64_t waits) {
  if (p->alone && roomy) CHECK_EQUAL(gpu_waits(), waits);
}

static void allocate(struct program *p, struct block *block) {
  const int stream = (int)below(p, STREAMS);
  if (captures(p, stream)) return;
  *block = (struct block){.bytes = size(p), .stream = stream, .tagged = p->tag != NULL && !p->paused && below(p, 4) == 0};
  if (block->tagged && p->backed_up) block->bytes = 1 + block->bytes % (below(p, 8) == 0 ? 4 * MiB : 256 * KiB);  // copies of large ones would take most of the time
  if (block->tagged) CHECK_EQUAL(memprof_region_begin(p->tag, p->backed_up), MEMPROF_OK);
  const uint64_t waits = gpu_waits();
  block->start = memprof_malloc(block->bytes, 0, p->streams[stream]);
  none_since(p, waits);
  if (block->tagged) memprof_region_end();
  if (block->start != NULL && below(p, 4) > 0) work(p, block, stream, true);
}

static void put_off(struct program *p, const struct block *block) {
  p->owes_readers[block->stream] |= block->readers;
  p->owes_writers[block->stream] |= block->writers;
}

static void release(struct program *p, struct block *block) {
  if (block->start == NULL || captures(p, block->stream)) return;
  const unsigned users = (block->readers | block->writers);
  const uint64_t drawn = below(p, 3), way = block->stream >= 0 ? drawn : 2;  // a new stream may have the handle of one that is gone
  if (!(block->tagged && p->paused)) check_marks(block);
  if (way == 0) wait_for(p, users, block->stream);
  if (way == 1) put_off(p, block);
  for (int i = 0; way == 2 && i < STREAMS; i++) {
    if (users >> i & 1) memprof_record_stream(block->start, p->streams[i]);
  }
  const uint64_t waits = gpu_waits();
  memprof_free(block->start, 0, 0, NULL);
  none_since(p, waits);
  block->start = NULL;
}

static void hold(struct program *p, int stream) {
  int (*call)(void *);
  GPU_CALL(call, "simcuda_hold_stream");
  if (!captures(p, stream)) call(p->streams[stream]);
}

// The other thread may have let it go.
static void let_go(void *stream) {
  int (*call)(void *);
  GPU_CALL(call, "simcuda_release_stream");
  call(stream);
}

// Every stream is behind the one that goes.
static void destroy(struct program *p, int stream) {
  if (captures(p, stream) || p->graph.pool != 0) return;
  for (int i = 0; i < STREAMS; i++) wait_owed(p, i, true);  // first: the new stream waits for stream 0 alone
  for (int i = 0; i < STREAMS; i++) {
    if (i != stream) order(p->streams[stream], p->streams[i]);
  }
  let_go(p->streams[stream]);  // a handle that is given out again has the same arena
  while (cuStreamDestroy_v2(p->streams[stream]) != 0) continue;
  p->streams[stream] = gpu_stream();
  order(p->streams[0], p->streams[stream]);
  for (int i = 0; i < BLOCKS; i++) {
    struct block *block = &p->blocks[i];
    block->readers &= ~(1u << stream), block->writers &= ~(1u << stream);
    if (block->start != NULL && block->stream == stream) block->stream = -1;
  }
}

static void begin_capture(struct program *p) {
  static _Atomic uint64_t pools;
  const int stream = 1 + (int)below(p, STREAMS - 1), mode = (int)below(p, 3);
  wait_owed(p, stream, true);
  let_go(p->streams[stream]);
  p->graph = (struct graph){.pool = 1 + atomic_fetch_add(&pools, 1), .stream = stream, .begun = true};
  memprof_pool_begin(0, p->graph.pool, 1);
  CHECK_EQUAL(cuStreamBeginCapture_v2(p->streams[stream], mode), 0);
}

static void in_capture(struct program *p) {
  struct graph *graph = &p->graph;
  if (graph->count < CAPTURED && below(p, 2) == 0) {
    const uint64_t bytes = size(p), waits = gpu_waits();
    void *start = memprof_malloc_in_pool(bytes, 0, p->streams[graph->stream], graph->pool, 1);
    none_since(p, waits);
    if (start == NULL) return;
    graph->blocks[graph->count].start = start, graph->blocks[graph->count].bytes = bytes, graph->blocks[graph->count].live = true;
    graph->count++;
  } else if (graph->count > 0) {
    const uint64_t at = below(p, (uint64_t)graph->count);
    if (graph->blocks[at].live) memprof_free(graph->blocks[at].start, 0, 0, NULL);
    graph->blocks[at].live = false;
  }
}

static void end_capture(struct program *p) {
  void *graph = NULL;
  CHECK_EQUAL(cuStreamEndCapture(p->streams[p->graph.stream], &graph), 0);  // the hook has not invalidated it
  CHECK(graph != NULL);
  memprof_pool_end(0, p->graph.pool, 1);
  p->graph.begun = false;
}

// A launch, or the last one: its work may go on while the pool is released.
static void replay(struct program *p, bool last) {
  struct graph *graph = &p->graph;
  for (int i = 0; i < graph->count; i++) gpu_writes(p->streams[graph->stream], graph->blocks[i].start, graph->blocks[i].bytes);
  if (!last) return;
  for (int i = 0; i < graph->count; i++) {
    if (graph->blocks[i].live) memprof_free(graph->blocks[i].start, 0, 0, NULL);
  }
  const uint64_t waits = gpu_waits();
  memprof_release_pool(0, graph->pool, 1), memprof_release_pool(0, graph->pool, 1);
  none_since(p, waits);
  graph->pool = 0;
}

static void step_of_graph(struct program *p) {
  if (p->graph.begun) {
    if (below(p, 4) == 0)
      end_capture(p);
    else
      in_capture(p);
  } else if (p->graph.pool != 0) {
    replay(p, below(p, 3) == 0);
  } else if (below(p, 3) == 0) {
    begin_capture(p);
  }
}

// What the program asks for at once may wait.
static void empty_cache(struct program *p) {
  if (!p->alone) return;
  const uint64_t waits = gpu_waits();
  memprof_empty_cache(0);
  allowed += gpu_waits() - waits;
}

static void pause_or_resume(struct program *p) {
  if (!p->alone || p->tag == NULL || p->graph.begun) return;
  const uint64_t waits = gpu_waits();
  const int result = p->paused ? memprof_resume(&p->tag, 1, 0) : memprof_pause(&p->tag, 1, 0);
  allowed += gpu_waits() - waits;
  if (result != MEMPROF_OK && result != MEMPROF_LEAKED) return;
  p->paused = !p->paused;
  for (int i = 0; i < BLOCKS; i++) {
    if (p->blocks[i].tagged && !p->backed_up) p->blocks[i].mark = 0;
  }
}

static void step(struct program *p) {
  struct block *block = &p->blocks[below(p, BLOCKS)];
  const int stream = (int)below(p, STREAMS);
  switch (below(p, 24)) {
    case 0: hold(p, stream); return;
    case 1: hold(p, stream); return;
    case 2: if (!captures(p, stream)) let_go(p->streams[stream]); return;
    case 3: if (p->alone) memprof_iteration("step"); return;
    case 4: if (below(p, 4) == 0) destroy(p, 1 + (int)below(p, STREAMS - 1)); return;
    case 5: if (below(p, 4) == 0) empty_cache(p); return;
    case 6: if (below(p, 3) == 0) pause_or_resume(p); return;
    case 7: if (below(p, 16) == 0) usleep(2000); return;  // for trim idle
    case 8: case 9: step_of_graph(p); return;
    default: break;
  }
  if (block->start == NULL)
    allocate(p, block);
  else if (below(p, 3) == 0)
    release(p, block);
  else
    work(p, block, stream, below(p, 3) == 0);
}

static void *run(void *self) {
  struct program *p = self;
  gpu_start();
  for (int i = 0; i < STREAMS; i++) {
    if (i > 0 || !p->alone) p->streams[i] = gpu_stream();
  }
  for (int i = 0; i < STEPS; i++) step(p);
  if (p->graph.begun) end_capture(p);
  if (p->graph.pool != 0) replay(p, true);
  if (p->paused) {
    for (int i = 0; i < STREAMS; i++) let_go(p->streams[i]);
    pause_or_resume(p);
  }
  for (int i = 0; i < BLOCKS; i++) release(p, &p->blocks[i]);
  if (p->paused) pause_or_resume(p);  // there may have been no memory, and now it needs none
  for (int i = 0; i < STREAMS; i++) let_go(p->streams[i]);
  for (int i = 1; i < STREAMS; i++) {
    while (cuStreamDestroy_v2(p->streams[i]) != 0) continue;
  }
  return NULL;
}

// The GPU finishes what somebody waits for.
static void *finish(void *self) {
  struct program *programs = self;
  uint64_t seen = before;
  while (!ended) {
    usleep(200);
    const uint64_t now = gpu_waits();
    if (now == seen) continue;
    seen = now;
    for (int i = 0; i < 2 * STREAMS; i++) let_go(programs[i / STREAMS].streams[i % STREAMS]);
  }
  return NULL;
}

// Another user has so much of the device.
static uint64_t take_from_device(uint64_t bytes) {
  int (*get)(uint64_t *, size_t);
  uint64_t addr = 0;
  GPU_CALL(get, "cuMemAlloc_v2");
  return get(&addr, bytes) == 0 ? addr : 0;
}

static void give_to_device(uint64_t addr) {
  int (*give)(uint64_t);
  GPU_CALL(give, "cuMemFree_v2");
  CHECK(addr == 0 || give(addr) == 0);
}

// One program, or two threads. A tag that has been backed up once always is, so what is lost has another one.
static void run_one(uint64_t seed, uint64_t number) {
  uint64_t random = seed * 1000 + number;
  const bool two = random_below(&random, 5) == 0;
  struct program programs[2] = {{.random = random, .alone = !two, .tag = number % 4 == 0 ? "weights" : number % 2 == 0 ? "cache" : NULL, .backed_up = number % 4 == 0}, {.random = ~random}};
  pthread_t other, gpu;
  before = gpu_waits();
  allowed = 0;
  ended = false;
  const uint64_t others = number % 3 == 2 ? take_from_device(200 * MiB) : 0;
  CHECK(pthread_create(&gpu, NULL, finish, programs) == 0);
  if (two) CHECK(pthread_create(&other, NULL, run, &programs[1]) == 0);
  run(&programs[0]);
  if (two) CHECK(pthread_join(other, NULL) == 0);
  ended = true;
  CHECK(pthread_join(gpu, NULL) == 0);
  give_to_device(others);
  if (roomy) CHECK_EQUAL(gpu_waits() - before, allowed);
}

// The trail agrees with the counters, and these with the device, but for what the driver did not take back.
static void check_sums(uint64_t device) {
  if (strchr(getenv("MEMPROF_SIM_FAIL"), '+') != NULL) return;  // what is refused for good may never be over
  rest();
  const struct trail trail = audited();
  free(trail.records);
  if (gpu_fails("cuMemUnmap") || gpu_fails("cuMemRelease")) return;
  for (int i = 0; device - gpu_free() != (uint64_t)reserved() && i < 60000; i++) usleep(1000);  // trim idle goes on
  CHECK_EQUAL(device - gpu_free(), reserved());
}

TEST(programs) {
  const uint64_t seed = strtoull(getenv("MEMPROF_TEST_SEED"), NULL, 10);
  roomy = getenv("MEMPROF_SIM_MEMORY")[0] == '6' && gpu_fails("none");
  alarm(300);  // a program that hangs: under TSan on a busy machine one takes a minute
  gpu_start();
  const uint64_t device = gpu_free();
  if (!roomy && seed % 3 == 0) memprof_set_limit(0, 300 * MiB);
  for (uint64_t i = 0; i < PROGRAMS; i++) run_one(seed, i);
  check_sums(device);
}

// The processes' policies and cards. Every fourth is refused a call.
static bool passes(uint64_t seed) {
  static const char *const policies[] = {"preset=compact", "preset=classic", "preset=compact,trim=iteration", "preset=classic,trim=iteration,headroom=0", "preset=compact,trim=idle:1000000", "preset=classic,trim=idle:1000000,headroom=0"};
  static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventCreate", "cuEventQuery", "cuEventSynchronize", "cuCtxRecordEvent", "cuCtxSynchronize", "cuMemAddressReserve"};
  char number[24], rule[48];
  uint64_t random = seed;
  snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
  const uint64_t failing = random_below(&random, 4), call = random_below(&random, sizeof calls / sizeof *calls);
  snprintf(rule, sizeof rule, "%s:%llu%s", failing == 0 ? calls[call] : "none", (unsigned long long)(1 + random_below(&random, 200)), failing == 0 && call >= 6 && random_below(&random, 8) == 0 ? "+" : "");
  // The driver may give a destroyed stream's handle to a new stream. The simulation does where ASan does not keep freed memory.
  char sanitizer[256];
  const char *given = getenv("ASAN_OPTIONS");
  snprintf(sanitizer, sizeof sanitizer, "%s%s", given == NULL ? "" : given, seed % 2 == 0 ? "" : ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0");
  const char *const environment[] = {"MEMPROF_TEST_SEED", number, "MEMPROF_OPTIONS", policies[random_below(&random, sizeof policies / sizeof *policies)],
                                     "MEMPROF_SIM_MEMORY", random_below(&random, 2) == 0 ? "64g" : "512m", "MEMPROF_SIM_FAIL", rule, "ASAN_OPTIONS", sanitizer, NULL};
  if (run_alone("programs", environment) == 0) return true;
  printf("FAIL MEMPROF_TEST_SEED=%s %s=%s %s=%s %s=%s\n", number, environment[2], environment[3], environment[4], environment[5], environment[6], environment[7]);
  return false;
}

int main(int argc, char **argv) {
  if (argc > 1) return run_tests(argc, argv);
#ifdef __SANITIZE_THREAD__
  const char *first = "100000", *jobs = "100";
#else
  const char *first = getenv("MEMPROF_TEST_SEED"), *jobs = getenv("MEMPROF_TEST_JOBS");
#endif
  const uint64_t from = first == NULL ? 1 : strtoull(first, NULL, 10), count = (jobs == NULL ? 2000 : strtoull(jobs, NULL, 10)) / PROGRAMS;
  int failed = 0;
  for (uint64_t i = 0; i < count; i++) failed += !passes(from + i);
  printf("%s %llu random programs\n", failed == 0 ? "ok  " : "FAIL", (unsigned long long)(count * PROGRAMS));
  return failed != 0;
}
