// graph_memory_waits.c - nothing of a graph memory is unmapped before the device is through with
// its work, and nothing waits for that.
#define _GNU_SOURCE
#include "shapes.h"

#define SMALL "MEMPROF_SIM_MEMORY", "1g"
#define REFUSED(rules) SMALL, "MEMPROF_SIM_FAIL", rules

static void capture_begins(void *stream) { CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), 0); }

static void capture_ends_well(void *stream) {
  void *graph = NULL;
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  CHECK(graph != NULL);
}

static uint64_t number(enum memprof_kind kind) {
  const struct trail trail = trail_read(getpid(), 0);
  return trail_number(&trail, kind);
}

// A shape that ends, or begins, while another stream is captured does not end that capture: the memory of an
// ended shape is released later.
TEST(a_release_spoils_no_capture, SMALL) {
  begin(0);
  void *stream = gpu_stream();
  open_shape(1), open_shape(2);
  drop(take(1, 6 * MiB)), drop(take(2, 4 * MiB));
  capture_begins(stream);
  release_shape(1);
  open_shape(3);
  CHECK_EQUAL(usage().ranges, 3);
  CHECK_EQUAL(usage().physical, 6 * MiB);
  capture_ends_well(stream);
  memprof_empty_cache(0);
  CHECK_EQUAL(usage().ranges, 2);
  CHECK_EQUAL(usage().physical, 4 * MiB);
  audited(true);
}

// The same of a memory that is closed. What the driver did not take back of the 2nd shape is
// there until it can be unmapped.
TEST(a_closing_spoils_no_capture, REFUSED("cuMemSetAccess:2,cuMemUnmap:1,cuMemUnmap:2")) {
  begin(0);
  void *stream = gpu_stream();
  open_shape(1);
  drop(take(1, 4 * MiB));
  CHECK_EQUAL(try_shape(2), MEMPROF_DEVICE_FAILED);
  CHECK_EQUAL(usage().ranges, 2);
  capture_begins(stream);
  memprof_graph_memory_close(0, memory);
  CHECK_EQUAL(usage().ranges, 2);
  capture_ends_well(stream);
  audited(true);
  release_shape(1);
  struct memprof_graph_usage gone;
  CHECK(!memprof_graph_usage(0, memory, &gone));
  CHECK_EQUAL(gpu_free(), GiB);
}

// One without a shape, on a device without pools, is freed by the next sweep.
TEST(a_closing_in_a_capture_is_made_up_for, "MEMPROF_SIM_MEMORY", "1g") {
  begin(0);
  void *stream = gpu_stream();
  struct memprof_graph_usage gone;
  capture_begins(stream);
  memprof_graph_memory_close(0, memory);
  CHECK(memprof_graph_usage(0, memory, &gone));
  capture_ends_well(stream);
  memprof_empty_cache(0);
  CHECK(!memprof_graph_usage(0, memory, &gone));
}

// Work that was queued before a shape's release may be at work on its memory until it is done. The next release finds that out.
TEST(a_released_shape_stays_for_the_work, SMALL) {
  begin(0);
  void *stream = gpu_stream();
  open_shape(1), open_shape(2), open_shape(3);
  unsigned char *first = take(1, 6 * MiB);
  drop(take(2, 4 * MiB));
  gpu_hold(stream);
  gpu_reads(stream, first, 6 * MiB);
  drop(first);
  release_shape(1);
  CHECK_EQUAL(gpu_waits(), 0);
  CHECK_EQUAL(gpu_free(), GiB - 6 * MiB);
  CHECK_EQUAL(number(MEMPROF_UNALIAS), 0);
  gpu_let_go(stream);
  release_shape(3);
  CHECK_EQUAL(usage().ranges, 1);
  CHECK_EQUAL(gpu_free(), GiB - 4 * MiB);
  CHECK_EQUAL(number(MEMPROF_UNALIAS), 1);
  audited(true);
}

// Where the device cannot be waited for, a released shape keeps its memory, mapped as it is,
// and its heap.
TEST(nothing_is_unmapped_unwaited, REFUSED("cuCtxRecordEvent:1+=999,cuCtxSynchronize:1+=999")) {
  begin(0);
  open_shape(1), open_shape(2);
  unsigned char *first = take(1, 6 * MiB);
  drop(first), drop(take(2, 4 * MiB));
  release_shape(1);
  memprof_empty_cache(0);
  CHECK_EQUAL(usage().ranges, 2);
  CHECK_EQUAL(usage().physical, 6 * MiB);
  memset(first, 1, 6 * MiB);
  CHECK_EQUAL(number(MEMPROF_UNALIAS), 0);
  CHECK_EQUAL(number(MEMPROF_POOL_RELEASE), 0);
  audited(true);
}

// Nor is a range unmapped that has no heap, as no memory was asked for of its shape.
TEST(an_unused_range_waits_too, REFUSED("cuCtxRecordEvent:1+=999,cuCtxSynchronize:1+=999")) {
  begin(0);
  open_shape(1);
  drop(take(1, 6 * MiB));
  open_shape(2);
  release_shape(2);
  CHECK_EQUAL(usage().ranges, 2);
  CHECK_EQUAL(usage().physical, 6 * MiB);
  audited(true);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
