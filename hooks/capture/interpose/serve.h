// serve.h - serves the job's CUDA allocations from arenas, by --serve.
//
// cudaMalloc gets memory of the main arena of the current device. Allocations in stream order get memory of
// the arena of their stream: its order allows a freed block to be reused at once. All other calls go to the
// real functions: of communication libraries, which register memory with network cards or map it into other
// processes (NCCL, NVSHMEM, UCX), of streams that are captured, and those that arenas have no memory for.
#ifndef MEMPROF_INTERPOSE_SERVE_H
#define MEMPROF_INTERPOSE_SERVE_H

#include "interpose/interpose.h"

// Each serves an allocation and returns true; false: the wrapper makes the real call. `pool` is the driver's
// memory pool, NULL: the default one of the stream's device.
bool serve_alloc(const struct call *call, void **ptr, size_t bytes);
bool serve_alloc_async(const struct call *call, void **ptr, size_t bytes, void *pool, void *stream);

// Each frees a served pointer, sets *error to the result of the call, and returns true; false: `ptr` was not
// served, and the wrapper makes the real call.
bool serve_free(const struct call *call, void *ptr, cuda_error *error);
bool serve_free_async(const struct call *call, void *ptr, void *stream, cuda_error *error);

// A stream is about to be destroyed: waits for its work if an arena has served it.
void serve_stream_ends(void *stream);

// The live served block that contains an address. False: there is none.
struct served_block {
  uint64_t start;
  size_t bytes;  // requested
  int device;    // ordinal
};
bool serve_block(uint64_t addr, struct served_block *out);

#endif
