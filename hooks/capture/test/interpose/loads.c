// loads.c - used memory is read where code may be loaded, and only there.
#include "program.h"

#include "calls.h"

static const char *const IMAGE = "simcuda:4194304+2097152";

// How often the driver was asked how much is in use.
static uint64_t readings(void) { return calls_of("cuMemGetInfo"); }

#define CHECK_READINGS(more, call)          \
  do {                                      \
    const uint64_t before = readings();     \
    CHECK((call) == 0);                     \
    CHECK_EQUAL(readings() - before, more); \
  } while (0)

// A reading costs more than most calls: what has been loaded is asked for without.
TEST(asked_again, CARD) {
  void *module, *library, *kernel, *function, *stream, *graph;
  log_calls();
  start();
  CHECK_READINGS(2, cuModuleLoadData(&module, IMAGE));
  CHECK_READINGS(2, cuModuleGetFunction(&function, module, "f"));
  CHECK_EQUAL(overhead(2, named("module")), 2 * MiB);
  CHECK_READINGS(0, cuModuleGetFunction(&function, module, "f"));
  CHECK_READINGS(2, cuModuleGetFunction(&function, module, "g"));
  CHECK_READINGS(0, cuModuleGetFunction(&function, module, "g"));
  CHECK_READINGS(2, cuFuncLoad(function));
  CHECK_READINGS(0, cuFuncLoad(function));
  CHECK_READINGS(2, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CHECK_READINGS(0, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  CHECK(cuLibraryLoadData(&library, IMAGE, NULL, NULL, 0, NULL, NULL, 0) == 0);
  CHECK_READINGS(0, cuLibraryGetKernel(&kernel, library, "f"));
  // In a capture nothing is read, and the first call after it is the first.
  stream = new_stream();
  CHECK(cudaStreamBeginCapture(stream, 0) == 0);
  CHECK_READINGS(0, cuKernelGetFunction(&function, kernel));
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  CHECK_READINGS(2, cuKernelGetFunction(&function, kernel));
  CHECK_READINGS(0, cuKernelGetFunction(&function, kernel));
  CHECK_READINGS(2, cuLibraryGetModule(&module, library));
  CHECK_READINGS(0, cuLibraryGetModule(&module, library));
}

// A module that lies where another was has loaded nothing yet.
TEST(asked_of_another, CARD) {
  void *module, *another, *function;
  log_calls();
  start();
  for (int i = 0; i < 32; i++) {
    CHECK(cuModuleLoadData(&module, IMAGE) == 0 && cuModuleGetFunction(&function, module, "f") == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
    CHECK(cuModuleUnload(module) == 0 && cuModuleLoadData(&another, IMAGE) == 0);
    if (another != module) continue;
    CHECK_READINGS(2, cuModuleGetFunction(&function, another, "f"));
    CHECK_READINGS(2, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    return;
  }
  CHECK(getenv("BEFORE") != NULL || getenv("AFTER") != NULL);  // AddressSanitizer keeps what is freed from being used again
}

// Each device loads for itself.
TEST(asked_on_two_devices, CARD, "MEMPROF_SIM_DEVICES", "2") {
  void *context[2], *library, *kernel, *function;
  log_calls();
  CHECK(cuInit(0) == 0);
  for (int device = 0; device < 2; device++) CHECK(cuDevicePrimaryCtxRetain(&context[device], device) == 0);
  CHECK(cuCtxSetCurrent(context[0]) == 0);
  CHECK(cuLibraryLoadData(&library, IMAGE, NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
  for (int turn = 0; turn < 2; turn++) {
    for (int device = 0; device < 2; device++) {
      CHECK(cuCtxSetCurrent(context[device]) == 0);
      CHECK_READINGS(turn == 0 ? 2 : 0, cuKernelGetFunction(&function, kernel));
    }
  }
}

// A kernel of a library is another one's on each device.
TEST(launched_on_two_devices, CARD, "MEMPROF_SIM_DEVICES", "2") {
  void *context[2], *library, *kernel;
  log_calls();
  CHECK(cuInit(0) == 0);
  CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
  for (int device = 0; device < 2; device++) CHECK(cuDevicePrimaryCtxRetain(&context[device], device) == 0);
  for (int turn = 0; turn < 2; turn++) {
    for (int device = 0; device < 2; device++) {
      CHECK(cuCtxSetCurrent(context[device]) == 0);
      CHECK_READINGS(turn == 0 ? 2 : 0, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    }
  }
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OVERHEAD), 4);  // two contexts before
  for (uint64_t device = 0; device < 2; device++) {
    const struct memprof_record *event = trail_event(&trail, MEMPROF_OVERHEAD, 2 + device);
    CHECK_EQUAL(event->device, device);
    CHECK_EQUAL(event->provided, 6 * MiB);
    CHECK_CONTEXT(&trail, event, named("library"));
  }
}

// A library that was loaded again has kernels that have loaded nothing yet, wherever they lie.
TEST(library_loaded_again, CARD) {
  void *library, *kernel, *function, *before = NULL;
  int again = 0;
  start();
  for (int i = 0; i < 32; i++) {
    const uint64_t count = overheads();
    CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
    CHECK(i % 2 == 0 ? cuKernelGetFunction(&function, kernel) == 0 : cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
    CHECK_EQUAL(overheads(), count + 1);
    CHECK_EQUAL(overhead(count, named("library")), 6 * MiB);
    again += kernel == before;
    before = kernel;
    CHECK(cuLibraryUnload(library) == 0);
  }
  CHECK(again > 4 || getenv("BEFORE") != NULL || getenv("AFTER") != NULL);  // AddressSanitizer keeps what is freed from being used again
}

// A device that was reset has lost what was loaded; a library and its kernels live on.
TEST(reset, CARD) {
  void *library, *kernel, *function;
  log_calls();
  CHECK(cuInit(0) == 0);
  CHECK(cuLibraryLoadData(&library, IMAGE, NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
  for (int i = 0; i < 2; i++) {
    start();
    CHECK_READINGS(2, cuKernelGetFunction(&function, kernel));
    CHECK_READINGS(0, cuKernelGetFunction(&function, kernel));
    CHECK_READINGS(2, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuDevicePrimaryCtxReset_v2(0) == 0);
  }
}

// What failed for want of memory has loaded nothing: the next call is the first.
TEST(failed_first, CARD) {
  void *module, *function, *library, *kernel;
  device_address hog;
  start();
  CHECK(cuModuleLoadData(&module, "simcuda:0+104857600") == 0);
  CHECK(cuLibraryLoadData(&library, "simcuda:0+104857600", NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
  CHECK(cuMemAlloc_v2(&hog, 700 * MiB) == 0);
  CHECK_EQUAL(cuModuleGetFunction(&function, module, "f"), 2);
  CHECK_EQUAL(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 2);
  CHECK_EQUAL(overheads(), 1);
  CHECK(cuMemFree_v2(hog) == 0);
  CHECK(cuModuleGetFunction(&function, module, "f") == 0);
  CHECK_EQUAL(overhead(1, named("module")), 100 * MiB);
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
  CHECK_EQUAL(overhead(2, named("library")), 100 * MiB);
}

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
