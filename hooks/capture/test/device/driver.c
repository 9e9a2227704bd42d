// driver.c - no call of the driver table comes back into the hook: what the hook exports under
// the names of CUDA takes locks that the caller of the table may hold, and would book the
// hook's own memory as another library's.
#define _GNU_SOURCE
#include "device/driver.h"

#include <dlfcn.h>

#include "device/calls.h"
#include "gpu.h"

// All functions of the table, by place: one that is new is looked at, too.
TEST(driver_is_called_directly) {
  enum { MEMBERS = offsetof(struct driver, attributes) / sizeof(void *) };
  void *functions[MEMBERS];
  CHECK(driver_get() != NULL);
  memcpy(functions, calls_uncounted(), sizeof functions);
  for (int i = 0; i < MEMBERS; i++) {
    Dl_info info;
    CHECK(functions[i] != NULL);  // the simulated driver has them all
    CHECK(dladdr(functions[i], &info) != 0);
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash != NULL && strcmp(slash, "/libcuda.so.1") == 0) continue;
    fprintf(stderr, "call %d of the driver table is %s of %s\n", i, info.dli_sname, info.dli_fname);
    CHECK(!"a call of the driver table comes back into the hook");
  }
}

// The test means something only where the hook would answer for the driver.
TEST(lookups_of_the_job_are_exchanged) {
  Dl_info info;
  CHECK(dladdr(gpu_symbol("cuStreamDestroy_v2"), &info) != 0);
  CHECK(strstr(info.dli_fname, "libcuda") == NULL);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
