// serve.h - other programs' memory out of our arenas (serve=1).
//
// cudaMalloc is answered from the main arena of the current device; calls in stream order
// from the arena of their stream, whose order is what lets a freed block be reused at once.
// Everything else goes to the real functions: memory of libraries that register it with
// network cards or map it into other processes (NCCL, NVSHMEM, UCX), of streams under
// capture, and whatever cannot be had here.
#ifndef MEMPROF_INTERPOSE_SERVE_H
#define MEMPROF_INTERPOSE_SERVE_H

#include "interpose/interpose.h"

// Each returns true if it has answered the call: memory in *ptr.
bool serve_alloc(const struct call *call, void **ptr, size_t bytes);
// `pool` may be NULL: the stream's own.
bool serve_alloc_async(const struct call *call, void **ptr, size_t bytes, void *pool, void *stream);

// True if `ptr` is ours, whatever came of it; then *error is the call's answer.
bool serve_free(const struct call *call, void *ptr, cuda_error *error);
bool serve_free_async(const struct call *call, void *ptr, void *stream, cuda_error *error);

// A stream is about to be destroyed.
void serve_stream_ends(void *stream);

// The live served block that contains an address, as the one who asked for it knows it.
struct served_block {
  uint64_t start;
  size_t bytes;  // asked for
  int device;
};
bool serve_block(uint64_t addr, struct served_block *out);

#endif
