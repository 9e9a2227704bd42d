// memprof.h - what the capture hook offers to the code inside the profiled process:
// the torch shim, the Python package, `memprof rerun`, and anyone's plug-in.
//
// Every function may be called from any thread. None of them ends the process,
// prints on stdout, or fails the job for trouble of the hook's own.
#ifndef MEMPROF_H
#define MEMPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { MEMPROF_ABI = 1 };

// The ABI of the loaded hook; the shim refuses another one.
int memprof_abi(void);

// 1 while this process is recorded or served by the hook, 0 in a forked child,
// outside `memprof record`, and after the hook has given up before its first allocation.
int memprof_active(void);

// Device memory from the arena of (device, stream). NULL when `size` is 0 or
// nothing could be found; memprof_oom_message() then says why.
void *memprof_malloc(size_t size, int device, void *stream);

// The same from the private arena of (device, stream, pool): what is freed there is reused
// only there. A pool is named by two numbers, as torch does.
void *memprof_malloc_in_pool(size_t size, int device, void *stream, uint64_t pool0, uint64_t pool1);

// The graphs captured into the pool are gone: until then its memory stays mapped, whether
// free or not, since a replay uses it without asking.
void memprof_release_pool(int device, uint64_t pool0, uint64_t pool1);

// Gives `ptr` back; `size`, `device` and `stream` are there for the plug-in
// signature and are not looked at. NULL is ignored. Returns nothing, as the plug-in
// signature demands; a pointer that is not ours goes to the problems file.
void memprof_free(void *ptr, size_t size, int device, void *stream);

// 1 if `ptr` is the start of a live block of ours; its chunk size in *provided.
int memprof_owns(void *ptr, size_t *provided);

// The live block that contains `ptr`: start and chunk size. 0 if there is none.
int memprof_block_of(void *ptr, void **start, size_t *provided);

// `ptr` is also used on `stream`: after its free it is reused only when the
// work queued there by then has finished.
void memprof_record_stream(void *ptr, void *stream);

// Gives the physical memory of wholly free handles back to the device, after
// waiting for it. Returns the bytes given back.
size_t memprof_empty_cache(int device);

// Upper bound, in bytes, for what all arenas of a device map together; 0 = none.
void memprof_set_limit(int device, uint64_t bytes);
uint64_t memprof_limit(int device);

// Largest free chunk of any arena of the device, bytes.
uint64_t memprof_largest_free(int device);

// Mappings, existing and later, of `device` become readable and writable from `peer`.
int memprof_enable_peer(int device, int peer);

// One counter with its history, as torch's Stat: bytes or blocks.
struct memprof_stat {
  int64_t current, peak, allocated, freed;
};

struct memprof_stats {
  struct memprof_stat allocation;       // live blocks
  struct memprof_stat requested_bytes;  // T
  struct memprof_stat allocated_bytes;  // C
  struct memprof_stat active;           // live and pending blocks
  struct memprof_stat active_bytes;
  struct memprof_stat segment;          // mapped handles
  struct memprof_stat reserved_bytes;   // R
  struct memprof_stat inactive_bytes;   // R - C - pending
  int64_t retries;                      // requests that needed a reclaim
  int64_t ooms;
  int64_t device_allocs, device_frees;  // handles created, released
  int64_t syncs;
};

void memprof_get_stats(int device, struct memprof_stats *stats);
void memprof_reset_peak(int device);
void memprof_reset_accumulated(int device);

// The last out-of-memory of the calling thread in one line: asked, free, largest
// free, verdict, where the rest is. Never NULL.
const char *memprof_oom_message(void);

// Marks. An empty or NULL label is allowed.
void memprof_iteration(const char *label);
void memprof_phase_begin(const char *name);
void memprof_phase_end(const char *name);

// What the allocations of the calling thread belong to from now on; NULL clears.
void memprof_set_context(const char *context);

// Adds to the frameworks line of the trace ("torch 2.11.0+cu130").
void memprof_note_framework(const char *text);

// A trouble of our own: one line in the problems file, shown by `record` at the end.
void memprof_problem(const char *text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
