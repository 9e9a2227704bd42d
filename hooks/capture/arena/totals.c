// totals.c - see totals.h.
#define _GNU_SOURCE
#include "arena/totals.h"

#include <unistd.h>

#include "arena/gpu.h"
#include "base/hook.h"
#include "device/calls.h"
#include "device/devices.h"
#include "spool/spool.h"

static void write_total(int device, const char *of, uint64_t count, uint64_t sum, uint64_t waited) {
  spool_write(&(struct spool_event){
      .kind = MEMPROF_TOTALS,
      .device = device,
      .arena = MEMPROF_NO_ARENA,
      .addr = count,
      .requested = sum,
      .provided = waited,
      .context = spool_string(of),
  });
}

void totals_of_gpu(struct gpu *gpu) {
  const struct counters_totals now = counters_totals(&gpu->stats);
  const int device = gpu->vmm.device;
  if (now.requests == gpu->written.requests && now.frees == gpu->written.frees) return;
  gpu->written = now;
  write_total(device, "of=requests", (uint64_t)now.requests, (uint64_t)now.requested, 0);
  write_total(device, "of=frees", (uint64_t)now.frees, (uint64_t)now.freed, 0);
}

static void process(bool last) {
  const struct calls calls = calls_so_far();
  write_total(-1, "of=calls", calls.count, calls.ns, calls.waited_ns);
  spool_write_number((struct spool_event){
      .kind = MEMPROF_TOTALS,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = last,
      .context = spool_string("of=events"),
  });
}

void totals_of_process(void) { process(false); }

// Another thread may hold a lock for as long as the process lives: in a call of a source, which waits for Python's lock.
static bool take_soon(struct gpu *gpu) {
  enum { TRIES = 100, APART_US = 1000 };
  for (int i = 0; i < TRIES; i++) {
    if (lock_try(&gpu->lock)) return true;
    usleep(APART_US);
  }
  return false;
}

static void end(void) {
  if (!spool_owned()) return;
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL || !take_soon(gpu)) continue;
    totals_of_gpu(gpu);
    lock_give(&gpu->lock);
  }
  process(true);
}

HOOK_PART(.order = HOOK_REST, .end = end);
