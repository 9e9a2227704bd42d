// graph_memory.c - one memory for many shapes: as large as the largest in whatever order,
// shared in fact, and released.
#define _GNU_SOURCE
#include "random.h"
#include "shapes.h"

#define SMALL "MEMPROF_SIM_MEMORY", "1g"

enum { MOST_SHAPES = 500 };
static const uint64_t PAGE = (uint64_t)2 << 20;

TEST(one_memory_behind_two_ranges, SMALL) {
  begin(0);
  open_shape(1), open_shape(2);
  unsigned char *one = take(1, 5 * MiB), *two = take(2, 3 * MiB);
  CHECK(one != two);
  CHECK_EQUAL(usage().physical, 3 * PAGE);
  for (uint64_t i = 0; i < 3 * MiB; i += 4096) one[i] = (unsigned char)(i >> 12);
  for (uint64_t i = 0; i < 3 * MiB; i += 4096) CHECK_EQUAL(two[i], (unsigned char)(i >> 12));
  two[3 * MiB - 1] = 77;
  CHECK_EQUAL(one[3 * MiB - 1], 77);
  // A range that comes later sees what is there, and what comes later is seen by all.
  open_shape(3);
  unsigned char *three = take(3, 9 * MiB);
  CHECK_EQUAL(three[3 * MiB - 1], 77);
  unsigned char *rest = take(2, 5 * MiB);  // behind the 3 MiB
  CHECK(rest > two && rest + 5 * MiB <= two + 10 * MiB);
  three[rest - two] = 88;
  CHECK_EQUAL(rest[0], 88);
  audited(true);
}

// What one request leaves of its pages others get: no slack counts for all shapes.
TEST(ranges_are_tight, SMALL) {
  begin(0);
  open_shape(1);
  void *three = take(1, 3 * MiB), *one = take(1, MiB);
  CHECK((char *)one == (char *)three + 3 * MiB);
  drop(three);
  void *two = take(1, 2 * MiB);
  CHECK(two == three);
  CHECK(take(1, MiB) == (char *)two + 2 * MiB);
  CHECK_EQUAL(extent(1), 2 * PAGE);
  audited(true);
}

// Work of two streams may run at once: it shares no block, though it shares the range.
TEST(streams_of_a_shape, SMALL) {
  begin(0);
  open_shape(1);
  void *side = gpu_stream();
  void *a = take(1, 2 * MiB);
  void *b = memprof_malloc_in_pool(2 * MiB, 0, side, 0, 1);
  drop(a);
  void *c = memprof_malloc_in_pool(2 * MiB, 0, side, 0, 1);
  CHECK(b != NULL && c != NULL && c != a && b != c);
  void *d = take(1, 5 * MiB);  // cannot join a's place: the other stream's lie behind it
  CHECK(d > c);
  size_t provided;
  CHECK(memprof_owns(b, &provided) && memprof_owns(c, &provided) && memprof_owns(d, &provided));
  drop(b), drop(c), drop(d);
  release_shape(1);
  CHECK_EQUAL(usage().physical, 0);
  const struct trail trail = audited(true);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 2);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNALIAS), 3);  // a; b and c; d
}

static uint64_t greatest(const uint64_t *extents, int count) {
  uint64_t most = 0;
  for (int i = 0; i < count; i++)
    if (extents[i] > most) most = extents[i];
  return most;
}

// Captures of random sizes in random order, some of them released in between.
static void one_order(uint64_t seed) {
  enum { SHAPES = 12 };
  uint64_t state = seed, extents[SHAPES + 1] = {0};
  bool open[SHAPES + 1] = {0};
  for (int step = 0; step < 40; step++) {
    const uint64_t shape = 1 + random_below(&state, SHAPES);
    if (open[shape]) {
      release_shape(shape);
      open[shape] = false;
      extents[shape] = 0;
    } else {
      open_shape(shape);
      open[shape] = true;
      void *live[8] = {0};
      for (int i = 0; i < 24; i++) {
        void **place = &live[random_below(&state, 8)];
        if (*place != NULL) drop(*place);
        *place = take(shape, 1 + random_below(&state, 3 * MiB));
      }
      for (int i = 0; i < 8; i++)
        if (live[i] != NULL) drop(live[i]);
      extents[shape] = extent(shape);
    }
    CHECK_EQUAL(usage().physical, greatest(extents, SHAPES + 1));
    CHECK_EQUAL(GiB - gpu_free(), usage().physical);
  }
  for (uint64_t shape = 1; shape <= SHAPES; shape++)
    if (open[shape]) release_shape(shape);
  CHECK_EQUAL(usage().physical, 0);
}

TEST(any_order_needs_the_largest, SMALL) {
  begin(0);
  for (uint64_t seed = 1; seed <= 20; seed++) one_order(seed);
  CHECK_EQUAL(usage().addresses, GiB);  // the store's own
  audited(true);
}

// A graph holds the pool that it was captured in; a block lives as long as it likes.
TEST(a_range_ends_when_nothing_needs_it, SMALL) {
  begin(0);
  open_shape(1), open_shape(2);
  drop(take(2, 4 * MiB));
  memprof_pool_begin(0, 0, 1);  // a capture, and its graph
  void *kept = take(1, 10 * MiB);
  drop(take(1, 2 * MiB));
  memprof_pool_end(0, 0, 1);
  release_shape(1);
  CHECK_EQUAL(usage().physical, 6 * PAGE);
  memprof_release_pool(0, 0, 1);  // the graph's
  CHECK_EQUAL(usage().physical, 6 * PAGE);
  CHECK_EQUAL(usage().ranges, 2);
  memset(kept, 1, 10 * MiB);
  drop(kept);
  memprof_empty_cache(0);
  CHECK_EQUAL(usage().physical, 2 * PAGE);
  CHECK_EQUAL(usage().ranges, 1);
  memprof_graph_memory_close(0, memory);
  CHECK(memprof_graph_shape(0, memory, "late", 0, 9) == MEMPROF_WRONG_STATE);
  CHECK_EQUAL(usage().ranges, 1);
  release_shape(2);
  struct memprof_graph_usage gone;
  CHECK(!memprof_graph_usage(0, memory, &gone));
  CHECK_EQUAL(gpu_free(), GiB);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_audit(&trail).reserved, 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 3);  // two ranges and the store
}

// Where no shape holds it, a memory that is closed is gone at once.
TEST(a_memory_without_shapes_ends_when_closed, SMALL) {
  begin(0);
  memprof_graph_memory_close(0, memory);
  struct memprof_graph_usage gone;
  CHECK(!memprof_graph_usage(0, memory, &gone));
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 1);
}

TEST(five_hundred_shapes, SMALL) {
  begin(0);
  for (uint64_t shape = 1; shape <= MOST_SHAPES; shape++) {
    open_shape(shape);
    for (uint64_t i = 0; i < 4; i++) drop(take(shape, (1 + (shape * 7 + i) % 13) * MiB));
  }
  CHECK_EQUAL(usage().physical, 7 * PAGE);
  CHECK_EQUAL(usage().ranges, MOST_SHAPES);
  unsigned char *first = take(1, 13 * MiB);
  for (uint64_t shape = 2; shape <= MOST_SHAPES; shape++) {
    first[12 * MiB] = (unsigned char)shape;
    unsigned char *same = take(shape, 13 * MiB);
    CHECK_EQUAL(same[12 * MiB], (unsigned char)shape);
    drop(same);
  }
  drop(first);
  for (uint64_t shape = 1; shape <= MOST_SHAPES; shape++) release_shape(shape);
  CHECK_EQUAL(usage().addresses, GiB);
  CHECK_EQUAL(gpu_free(), GiB);
}

TEST(no_addresses_is_an_error, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuMemAddressReserve:3") {
  begin(GiB);
  open_shape(1);
  void *one = take(1, 3 * MiB);
  CHECK_EQUAL(try_shape(2), MEMPROF_NO_MEMORY);  // the 3rd reservation of the memory is refused
  CHECK(strstr(memprof_graph_message(), "no address space for another range of 1.00 GiB: the graph memory has 1") != NULL);
  CHECK_EQUAL(usage().ranges, 1);
  memset(one, 1, 3 * MiB);
  open_shape(2);  // the refusal is over
  CHECK(take(2, 3 * MiB) != NULL);
  audited(true);
}

TEST(a_range_has_an_end, SMALL) {
  begin(16 * MiB);
  open_shape(1);
  void *most = take(1, 16 * MiB);
  CHECK(memprof_malloc_in_pool(1, 0, NULL, 0, 1) == NULL);
  CHECK(strstr(memprof_oom_message(), " has 16.00 MiB of addresses (its `reserve`), of which 0 bytes are left") != NULL);
  CHECK_EQUAL(usage().physical, 8 * PAGE);
  drop(most);
  take(1, 1);
  audited(true);
}

// The growths of two streams take turns, so that each is a piece of addresses of its own; of
// these a process can have no more than some thousands.
TEST(too_many_pieces, "MEMPROF_SIM_MEMORY", "80g") {
  begin(0);
  open_shape(1);
  void *side = gpu_stream();
  uint64_t pieces = 0;
  while (memprof_malloc_in_pool(PAGE, 0, pieces % 2 == 0 ? NULL : side, 0, 1) != NULL) pieces++;
  CHECK(pieces > 1000);
  CHECK_EQUAL(extent(1), pieces * PAGE);
  CHECK_EQUAL(usage().physical, pieces * PAGE);
}

TEST(limits_and_full_devices, SMALL) {
  begin(0);
  open_shape(1), open_shape(2);
  memprof_set_limit(0, 64 * MiB);
  void *one = take(1, 60 * MiB);
  CHECK(memprof_malloc_in_pool(66 * MiB, 0, NULL, 0, 2) == NULL);
  CHECK_EQUAL(usage().physical, 60 * MiB);
  take(2, 60 * MiB);  // nothing more is needed for it
  memprof_set_limit(0, 0);
  CHECK(memprof_malloc_in_pool(2 * GiB, 0, NULL, 0, 2) == NULL);
  drop(one);
  audited(true);
}

TEST(wrong_uses, SMALL) {
  gpu_start();
  CHECK_EQUAL(memprof_graph_shape(0, 1, "early", 0, 1), MEMPROF_NOT_ACTIVE);
  begin(0);
  CHECK_EQUAL(memprof_graph_shape(0, memory + 1, "nobody's", 0, 1), MEMPROF_WRONG_STATE);
  open_shape(1);
  CHECK_EQUAL(try_shape(1), MEMPROF_WRONG_STATE);
  drop(memprof_malloc_in_pool(MiB, 0, NULL, 0, 5));
  CHECK_EQUAL(try_shape(5), MEMPROF_WRONG_STATE);
  CHECK_EQUAL(usage().ranges, 1);
  CHECK_EQUAL(memprof_graph_memory_open(7, 0), 0);
}

TEST(two_memories_side_by_side, SMALL) {
  begin(0);
  open_shape(1);
  const uint32_t prefill = memory;
  take(1, 10 * MiB);
  memory = memprof_graph_memory_open(0, 0);
  CHECK(memory == prefill + 1);
  open_shape(2);
  unsigned char *other = take(2, 4 * MiB);
  memset(other, 5, 4 * MiB);
  CHECK_EQUAL(usage().physical, 2 * PAGE);
  CHECK_EQUAL(GiB - gpu_free(), 7 * PAGE);
}

TEST(a_memory_on_each_device, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_DEVICES", "2") {
  static const uint64_t large[2] = {10 * MiB, 4 * MiB}, small[2] = {6 * MiB, 2 * MiB};
  uint32_t memories[2];
  unsigned char *blocks[2];
  gpu_start();
  for (int device = 0; device < 2; device++) {
    memories[device] = memprof_graph_memory_open(device, 0);
    CHECK(memories[device] != 0);
    CHECK_EQUAL(memprof_graph_shape(device, memories[device], "small", 0, 1), 0);
    CHECK(memprof_malloc_in_pool(small[device], device, NULL, 0, 1) != NULL);
    CHECK_EQUAL(memprof_graph_shape(device, memories[device], "large", 0, 2), 0);
    CHECK((blocks[device] = memprof_malloc_in_pool(large[device], device, NULL, 0, 2)) != NULL);
    memset(blocks[device], 1 + device, large[device]);
  }
  for (int device = 0; device < 2; device++) {
    struct memprof_graph_usage usage;
    CHECK(memprof_graph_usage(device, memories[device], &usage));
    CHECK_EQUAL(usage.physical, large[device]);
    CHECK_EQUAL(blocks[device][0], 1 + device);
    memprof_release_pool(device, 0, 2);
  }
}

TEST(names, SMALL) {
  begin(0);
  CHECK_EQUAL(memprof_graph_shape(0, memory, "decode of 8", 0, 1), 0);
  memprof_pool_begin(0, 0, 1);
  drop(take(1, MiB));
  memprof_pool_end(0, 0, 1);
  const struct trail trail = trail_read(getpid(), 0);
  char store[4097], range[4097], alias[4097], want[64];
  trail_text(&trail, trail_event(&trail, MEMPROF_ARENA, 0)->context, trail.count, store);
  trail_text(&trail, trail_event(&trail, MEMPROF_ARENA, 1)->context, trail.count, range);
  const struct memprof_record *event = trail_event(&trail, MEMPROF_ALIAS, 0);
  trail_text(&trail, event->context, trail.count, alias);
  CHECK(strcmp(store, "graph_memory=1\tstore=1\tgranularity=2097152\tcoalesces=1") == 0);
  CHECK(strstr(range, "\tgraph_memory=1\tshape=decode_of_8") != NULL && strstr(range, "growth=needed") != NULL);
  snprintf(want, sizeof want, "store=%u", trail_event(&trail, MEMPROF_ARENA, 0)->arena);
  CHECK(strcmp(alias, want) == 0);
  CHECK_EQUAL(event->requested, 0);
  CHECK_EQUAL(event->provided, PAGE);
  CHECK_EQUAL(event->addr, trail_event(&trail, MEMPROF_ARENA, 1)->addr);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 0)->arena, trail_event(&trail, MEMPROF_ARENA, 0)->arena);
}

// Each capture says what it is: its name where one was given, and the pool.
TEST(names_of_captures, SMALL) {
  begin(0);
  void *stream = gpu_stream(), *graph = NULL;
  open_shape(1);
  memprof_capture_name("of\teight", 0, 1, 4096);
  CHECK(cuStreamBeginCapture_v2(stream, 0) == 0);
  memprof_capture_name(NULL, 0, 0, 0);
  CHECK(cuStreamEndCapture(stream, &graph) == 0);
  memprof_pool_begin(0, 0, 77);
  CHECK(cuStreamBeginCapture_v2(stream, 0) == 0 && cuStreamEndCapture(stream, &graph) == 0);
  memprof_pool_end(0, 0, 77);
  CHECK(cuStreamBeginCapture_v2(stream, 0) == 0 && cuStreamEndCapture(stream, &graph) == 0);
  const struct trail trail = trail_read(getpid(), 0);
  static const char *const want[] = {"name=of eight\tpool=0.1\tinputs=4096", "pool=0.4d", ""};
  for (uint64_t i = 0; i < 3; i++) {
    char at_begin[4097], at_end[4097];
    trail_text(&trail, trail_event(&trail, MEMPROF_CAPTURE_BEGIN, i)->context, trail.count, at_begin);
    trail_text(&trail, trail_event(&trail, MEMPROF_CAPTURE_END, i)->context, trail.count, at_end);
    CHECK(strcmp(at_begin, want[i]) == 0 && strcmp(at_end, want[i]) == 0);
  }
}

TEST(peers, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_DEVICES", "2") {
  begin(0);
  open_shape(1);
  void *before = take(1, 3 * MiB);
  CHECK(memprof_enable_peer(0, 1));
  open_shape(2);
  void *after = take(2, 9 * MiB);
  CHECK_EQUAL(gpu_access(before, 1), 3);
  CHECK_EQUAL(gpu_access((char *)after + 8 * MiB, 1), 3);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
