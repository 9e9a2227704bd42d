// graph_memory.h - graph memory: one physical memory that many address ranges map.
//
// A graph replays at the addresses that it was captured with. Graphs that never replay at the same
// time can share physical memory nevertheless: each shape gets a *range* of addresses, and all ranges
// map the same pages, those of the *store*:
//
//   store     page 0 │ page 1 │ page 2 │ page 3          as many as the largest extent needs
//               ▲ ▲ ▲    ▲ ▲ ▲
//   range "8" ──┘─┼─┼────┘─┼─┼── ...   extent 1 page     every range maps all four
//   range "64" ───┘─┼──────┘─┼── ...   extent 4 pages
//   range "16" ─────┘────────┘── ...   extent 2 pages
//
// A range hands out its addresses from its start; the part handed out is its *extent*. A page that the
// store lacks is created and mapped into every range. So the store is as large as the largest extent,
// rounded up to pages, whatever the order of the captures. When a range is closed, the store shrinks to
// the largest extent that is left.
//
// graph_memory.c knows the driver only; graph_memory_heap.c puts an allocator into each range and writes
// the events; api_graph_memory.c has the functions of memprof.h. All need the device's lock, and callers
// have waited for the device before anything is unmapped.
#ifndef MEMPROF_GRAPH_MEMORY_H
#define MEMPROF_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/vmm.h"

struct arena;
struct gpu;
struct pool;

// A part of a range that an arena has.
struct graph_grant {
  const struct arena *arena;
  uint64_t addr, bytes;
};

struct graph_range {
  struct graph_memory *memory;
  char name[104];    // of the shape: its blanks are underscores, cut to fit
  uint64_t base;     // of memory->reservation bytes of addresses
  size_t mapped;     // pages of the store that are mapped, from the first
  uint64_t extent;   // bytes handed out to arenas, from the start: whole pages, at most those mapped
  uint64_t fence;    // the fence that it waits for to be closed; 0: it waits for none so far
  bool abandoned;    // its opening failed, and the driver refused to undo it; closed by the next sweep
  struct graph_grant *grants;  // by address; together they are the extent
  size_t grant_count, grant_room;
  struct graph_range *next;  // of the memory, newest first
};

struct graph_memory {
  struct vmm_device *device;
  uint32_t number;       // unique in the process, from 1
  uint32_t arena;        // the id of the store in events
  uint64_t base;         // reserved addresses that name the pages in events; nothing is mapped there
  uint64_t reservation;  // bytes of addresses of each range
  driver_handle *pages;  // each of the device's granularity
  size_t count, room;    // of pages
  struct graph_range *ranges;
  bool closed;                // it ends when its last range does
  struct graph_memory *next;  // of the device
};

// Why a call failed.
enum graph_result { GRAPH_OK, GRAPH_NO_ADDRESSES, GRAPH_NO_HOST_MEMORY, GRAPH_NO_MEMORY, GRAPH_DRIVER_FAILED };

// A call that fails leaves everything as it was before. If the driver refuses to undo what it has just
// done, the next call that needs the addresses tries again.

// Reserves the addresses that name the store. `reservation` is rounded up to whole pages.
enum graph_result graph_memory_init(struct graph_memory *memory, struct vmm_device *device, uint64_t reservation);

// Frees the addresses and the lists of a memory without ranges and pages.
void graph_memory_end(struct graph_memory *memory);

// Reserves a range and maps every page of the store into it.
enum graph_result graph_range_open(struct graph_memory *memory, struct graph_range **out);

// Unmaps a range, frees its addresses and the range. False: the driver refused, and the range stays.
bool graph_range_close(struct graph_range *range);

// Creates pages until the store has `bytes`, and maps them into every range.
enum graph_result graph_memory_grow(struct graph_memory *memory, uint64_t bytes);

// Releases the pages behind the largest extent. False: the driver refused.
bool graph_memory_shrink(struct graph_memory *memory);

// Maps the store's first `bytes`, which it has, into the range if they are not mapped yet.
enum graph_result graph_range_see(struct graph_range *range, uint64_t bytes);

uint64_t graph_memory_bytes(const struct graph_memory *memory);
uint64_t graph_memory_extent(const struct graph_memory *memory);  // the largest of its ranges

// Lets device `peer` read and write what is mapped already; vmm_device.peers does so for what is mapped
// later. False: the driver refused.
bool graph_memory_allow_peer(const struct graph_memory *memory, int peer);

// Of graph_memory_heap.c.

// The range that an arena's memory is of, or NULL.
const struct graph_range *graph_range_of(const struct arena *arena);

// Closes a pool's range that no arena uses any more, after waiting for the device. False: the driver
// refused, and the range stays.
bool graph_range_end(struct gpu *gpu, struct graph_range *range);

// Closes abandoned ranges, and ends closed memories without ranges.
void graph_memory_sweep(struct gpu *gpu);
bool graph_memory_waits(const struct gpu *gpu);  // whether a sweep would end a memory: it was closed during a capture

#endif
