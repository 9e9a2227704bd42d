// api_oom.c - the text of an out-of-memory error.
//
// Programs look for torch's words in it: "CUDA out of memory", the size after "Tried to allocate", the
// device's total and free memory, and how much is allocated and unallocated. So the text begins with them,
// in torch's order and units, and what memprof knows besides follows after "memprof:".
//
// Once work on the GPU has failed, as by an illegal address, the driver refuses all calls with that error. Such a request does not lack memory, and a
// trainer that halves its batch would go on for ever: its text has the driver's error, and none of torch's words.
#include <inttypes.h>
#include <stdio.h>

#include "api.h"
#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "base/problem.h"
#include "base/thread_own.h"
#include "memprof.h"

enum { SIZE_TEXT = 32, TEXT = sizeof((struct thread_own *)0)->oom };

static __thread driver_result error;  // of the request that the message is about; 0: it lacks memory

const char *memprof_oom_message(void) {
  const char *message = thread_texts()->oom;
  return message[0] != '\0' ? message : "CUDA out of memory: the device could not be reached";
}

int memprof_oom_error(void) { return error; }

// A size as torch writes it: two decimals of the largest unit that it exceeds.
static const char *size_text(char text[SIZE_TEXT], uint64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB"};
  int unit = 0;
  if (bytes <= 1024) {
    snprintf(text, SIZE_TEXT, "%" PRIu64 " bytes", bytes);
    return text;
  }
  double size = (double)bytes / 1024;
  for (; unit < 2 && size > 1024; unit++) size /= 1024;
  snprintf(text, SIZE_TEXT, "%.2f %s", size, units[unit]);
  return text;
}

// Why the shape of a graph memory has no room, or nothing: its addresses are used up.
static int shape_text(char *text, size_t room, const struct arena *arena, uint64_t size) {
  const struct graph_range *range = graph_range_of(arena);
  if (range == NULL || size <= range->memory->reservation - range->extent) return 0;
  char all[SIZE_TEXT], left[SIZE_TEXT];
  return snprintf(text, room, "the shape %s of a graph memory has %s of addresses (its `reserve`), of which %s are left; ", range->name,
                  size_text(all, range->memory->reservation), size_text(left, range->memory->reservation - range->extent));
}

static void greater(void *self, uint64_t addr, uint64_t bytes) {
  uint64_t *most = self;
  (void)addr;
  if (bytes > *most) *most = bytes;
}

static void explain_lack(const struct arena *arena, uint64_t size) {
  char *message = thread_texts()->oom;
  const struct gpu *gpu = arena->gpu;
  uint64_t free_bytes, total;
  char asked[SIZE_TEXT], all[SIZE_TEXT], left[SIZE_TEXT], tensors[SIZE_TEXT], unused[SIZE_TEXT], allowed[SIZE_TEXT + 10] = "", shape[256] = "";
  if (size >= (uint64_t)1 << 60) {
    snprintf(message, TEXT, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    return;
  }
  driver_memory(gpu->vmm.device, &free_bytes, &total);
  const uint64_t mapped = bfc_reserved(arena->bfc), in_use = bfc_in_use(arena->bfc), idle = mapped > in_use ? mapped - in_use : 0;
  uint64_t largest = 0;  // of free chunks without their unmapped pages
  bfc_free_mapped(arena->bfc, &largest, greater);
  const uint64_t live = (uint64_t)gpu->stats.torch_bytes.current, others = total - free_bytes > gpu->mapped ? total - free_bytes - gpu->mapped : 0;
  if (gpu->limit != 0) snprintf(allowed, sizeof allowed, "%s allowed; ", size_text(asked, gpu->limit));
  const int length = snprintf(message, TEXT,
                              "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %s"
                              "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated. ",
                              size_text(asked, size), gpu->vmm.device, size_text(all, total), size_text(left, free_bytes), allowed,
                              size_text(tensors, live), size_text(unused, gpu->mapped > live ? gpu->mapped - live : 0));
  shape_text(shape, sizeof shape, arena, size);
  snprintf(message + length, TEXT - (size_t)length, "memprof: %s%s of the request's arena are free, the largest chunk %s (%s); others use %s of the device.", shape,
           size_text(unused, idle), size_text(left, largest), idle >= size ? "fragmentation" : "capacity", size_text(all, others));
}

void oom_text(int device, const char *why) {
  error = DRIVER_OK;
  snprintf(thread_texts()->oom, TEXT, "CUDA out of memory on GPU %d: %s", device, why);
}

// What the driver refuses, where that is not memory. False: it is.
static bool explain_fault(const struct gpu *gpu, uint64_t size) {
  char *message = thread_texts()->oom, asked[SIZE_TEXT];
  error = gpu->vmm.fault != DRIVER_OK ? gpu->vmm.fault : driver_fault(gpu->vmm.device);
  if (error == DRIVER_OK) return false;
  snprintf(message, TEXT, "GPU %d: CUDA error %d for a request of %s; the request does not lack memory", gpu->vmm.device, error, size_text(asked, size));
  problem("%s", message);
  return true;
}

bool oom_explain(const struct gpu *gpu, const struct arena *arena, uint64_t size) {
  if (explain_fault(gpu, size)) return false;
  if (arena == NULL)
    oom_text(gpu->vmm.device, "no address space for another arena");
  else
    explain_lack(arena, size);
  return true;
}
