// work.c - the detector of races: what must end the program, and what must not.
#define _GNU_SOURCE
#include "check.h"
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 2 << 20 };

static CUdeviceptr base;  // two addresses of one page, then a page of its own
static CUstream one, two;

static void set_up(void) {
  CUmemGenericAllocationHandle shared, own;
  CUmemAllocationProp prop = on_device(0);
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  start();
  CHECK(cuMemCreate(&shared, PAGE, &prop, 0) == CUDA_SUCCESS && cuMemCreate(&own, PAGE, &prop, 0) == CUDA_SUCCESS);
  CHECK(cuMemAddressReserve(&base, 3 * PAGE, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(base, PAGE, 0, shared, 0) == CUDA_SUCCESS && cuMemMap(base + PAGE, PAGE, 0, shared, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(base + 2 * PAGE, PAGE, 0, own, 0) == CUDA_SUCCESS);
  CHECK(cuMemSetAccess(base, 3 * PAGE, &access, 1) == CUDA_SUCCESS);
  CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && cuStreamCreate(&two, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
}

// Whether the simulator ends a process that does so.
static bool is_race(void (*run)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    set_up();
    run();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

static void read_held(void) { CHECK(simcuda_hold_stream(one) == 0 && simcuda_reads(one, base, PAGE) == 0); }

static void wait_for_one(void) {
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventRecord(event, one) == CUDA_SUCCESS && cuStreamWaitEvent(two, event, 0) == CUDA_SUCCESS);
}

static void unmap_under_reader(void) {
  read_held();
  cuMemUnmap(base, PAGE);
}

static void unmap_of_other_address(void) {
  read_held();
  CHECK(cuMemUnmap(base + PAGE, 2 * PAGE) == CUDA_SUCCESS);
}

static void unmap_after_reader(void) {
  read_held();
  CHECK(simcuda_release_stream(one) == 0 && cuMemUnmap(base, PAGE) == CUDA_SUCCESS);
}

static void write_at_second_address(void) {
  read_held();
  simcuda_writes(two, base + PAGE + 100, 1);
}

static void read_at_second_address(void) {
  read_held();
  CHECK(simcuda_reads(two, base + PAGE, PAGE) == 0);
}

static void write_of_other_page(void) {
  read_held();
  CHECK(simcuda_writes(two, base + 2 * PAGE, PAGE) == 0);
}

static void write_of_other_bytes(void) {
  CHECK(simcuda_hold_stream(one) == 0 && simcuda_reads(one, base, 100) == 0);
  CHECK(simcuda_writes(two, base + PAGE + 100, 100) == 0);
}

static void write_behind_reader(void) {
  read_held();
  wait_for_one();
  CHECK(simcuda_writes(two, base + PAGE, PAGE) == 0);
}

// The event was recorded before the reader was queued: it orders nothing.
static void write_behind_older_event(void) {
  CHECK(simcuda_hold_stream(one) == 0);
  wait_for_one();
  CHECK(simcuda_reads(one, base, PAGE) == 0);
  simcuda_writes(two, base, PAGE);
}

static void write_on_same_stream(void) {
  read_held();
  CHECK(simcuda_writes(one, base + PAGE, PAGE) == 0);
}

static void read_under_writer(void) {
  CHECK(simcuda_hold_stream(one) == 0 && simcuda_writes(one, base, PAGE) == 0);
  simcuda_reads(two, base + PAGE, 1);
}

static void fill_under_reader(void) {
  read_held();
  cuMemsetD8Async(base + PAGE, 1, 8, two);
}

static void unmap_under_copy(void) {
  static char host[64];
  CHECK(simcuda_hold_stream(one) == 0 && cuMemcpyDtoHAsync_v2(host, base, sizeof host, one) == CUDA_SUCCESS);
  cuMemUnmap(base, PAGE);
}

static void unmap_under_destroyed_stream(void) {
  read_held();
  CHECK(cuStreamDestroy_v2(one) == CUDA_SUCCESS);
  cuMemUnmap(base, PAGE);
}

TEST(races_end_the_program) {
  void (*const races[])(void) = {unmap_under_reader, write_at_second_address, write_behind_older_event, read_under_writer,
                                 fill_under_reader,  unmap_under_copy,        unmap_under_destroyed_stream};
  for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
    if (!is_race(races[i])) fprintf(stderr, "race %zu is not seen\n", i), exit(1);
  }
}

TEST(ordered_work_is_no_race) {
  void (*const fine[])(void) = {unmap_of_other_address, unmap_after_reader,   read_at_second_address, write_of_other_page,
                                write_of_other_bytes,   write_behind_reader, write_on_same_stream};
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    if (is_race(fine[i])) fprintf(stderr, "row %zu is taken for a race\n", i), exit(1);
  }
}

TEST(a_context_has_one_event) {
  CUevent event;
  CUgraph graph;
  CUcontext context;
  set_up();
  CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS && cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuCtxRecordEvent(context, event) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(simcuda_hold_stream(one) == 0 && simcuda_hold_stream(two) == 0);
  CHECK(cuStreamDestroy_v2(two) == CUDA_SUCCESS);
  CHECK(cuCtxRecordEvent(context, event) == CUDA_SUCCESS && cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(simcuda_release_stream(one) == 0 && cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(simcuda_release_stream(two) == 0 && cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(simcuda_waits() == 0);
  CHECK(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cuCtxRecordEvent(context, event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void note(void *data) { ++*(int *)data; }

TEST(host_functions_run_in_order) {
  int runs = 0;
  set_up();
  CHECK(cuLaunchHostFunc(one, note, &runs) == CUDA_SUCCESS && runs == 1);
  CHECK(simcuda_hold_stream(one) == 0 && cuLaunchHostFunc(one, note, &runs) == CUDA_SUCCESS);
  CHECK(cuLaunchHostFunc(two, note, &runs) == CUDA_SUCCESS && runs == 2);
  CHECK(simcuda_release_stream(one) == 0 && runs == 3);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
