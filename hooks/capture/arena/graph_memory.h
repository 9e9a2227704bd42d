// graph_memory.h - one physical memory, seen by many address ranges.
//
// A graph replays at the addresses that it was captured with. Graphs that never replay at the
// same time can do with one memory nevertheless: each shape gets a *range* of addresses of its
// own, and all ranges see the same pages of a *store*.
//
//   store     page 0 │ page 1 │ page 2 │ page 3          created: the largest extent
//               ▲ ▲ ▲    ▲ ▲ ▲
//   range "8" ──┘─┼─┼────┘─┼─┼── ...   extent 1 page     every range sees all four
//   range "64" ───┘─┼──────┘─┼── ...   extent 4 pages
//   range "16" ─────┘────────┘── ...   extent 2 pages
//
// A range hands out its addresses from its start; what was handed out is its *extent*. A page
// that the store lacks is created and mapped into every range, so the store is as large as the
// greatest extent, to the page, whatever the order of the captures. When a range is closed the
// store shrinks to the greatest extent of those that are left.
//
// graph_memory.c knows the driver only; graph_memory_heap.c puts a BFC into each range and
// writes the events; api_graph_memory.c has the functions of memprof.h. Everything needs the
// device's lock. Callers have waited for the device before anything is unmapped.
#ifndef MEMPROF_GRAPH_MEMORY_H
#define MEMPROF_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bfc/bfc.h"
#include "device/vmm.h"

struct arena;
struct gpu;
struct pool;

// What an arena was granted of its range.
struct graph_grant {
  const struct arena *arena;
  uint64_t addr, bytes;
};

struct graph_range {
  struct graph_memory *memory;
  char name[104];    // without blanks, cut where it is long
  uint64_t base;     // as many addresses as the memory's reservation has
  size_t mapped;     // pages that are mapped, from the first
  uint64_t extent;   // bytes handed out to arenas, from the start; whole pages, at most mapped
  bool abandoned;    // nobody has it: it is there until the driver lets it go
  bool segments;     // its blocks are segments of a watched allocator, which tells what is in them
  struct graph_grant *grants;  // by address
  size_t grant_count, grant_room;
  struct graph_range *next;  // of the memory, newest first
};

struct graph_memory {
  struct vmm_device *device;
  uint32_t number;       // of the process, from 1
  uint32_t arena;        // the number under which events tell of the store
  uint64_t base;         // addresses that name the pages in events; nothing is mapped there
  uint64_t reservation;  // bytes, of each range
  driver_handle *pages;
  size_t count, room;  // of pages, each of the device's granularity
  struct graph_range *ranges;
  bool closed;                // ends with its last range
  struct graph_memory *next;  // of the device
};

// Why something could not be had.
enum graph_result { GRAPH_OK, GRAPH_NO_ADDRESSES, GRAPH_NO_HOST_MEMORY, GRAPH_NO_MEMORY, GRAPH_DRIVER_FAILED };

// On every failure below, all is as it was before the call. Should the driver refuse to undo
// what it has just done, the next call that needs the place tries again.

// Reserves the addresses that name the store. `reservation` is rounded up to whole pages.
enum graph_result graph_memory_init(struct graph_memory *memory, struct vmm_device *device, uint64_t reservation);

// Returns them, and the memory's own parts. It has no range and no page any more.
void graph_memory_end(struct graph_memory *memory);

// A range that sees every page of the store.
enum graph_result graph_range_open(struct graph_memory *memory, struct graph_range **out);

// Unmaps a range and returns its addresses. False: the driver refused, and the range is there.
bool graph_range_close(struct graph_range *range);

// Creates pages until the store has `bytes`, and maps them into every range.
enum graph_result graph_memory_grow(struct graph_memory *memory, uint64_t bytes);

// Releases the pages behind the greatest extent. False: the driver refused.
bool graph_memory_shrink(struct graph_memory *memory);

// Has the range see at least `bytes` of the store, which has them.
enum graph_result graph_range_see(struct graph_range *range, uint64_t bytes);

uint64_t graph_memory_bytes(const struct graph_memory *memory);
uint64_t graph_memory_extent(const struct graph_memory *memory);  // the greatest of a range

// Whoever maps later is let in by vmm_device.peers; this is for what is mapped already.
bool graph_memory_allow_peer(const struct graph_memory *memory, int peer);

// Of graph_memory_heap.c.

// Has a heap grow out of its arena's range.
void graph_heap(struct bfc_memory *memory);

// Takes back what an arena had of its range; nothing of it is in use.
void graph_heap_leave(struct arena *arena);

// Ends a pool's range, of which no arena is left, and the memory if it was closed and this was
// its last one. Waits for the device. False: the driver refused, and the range is there.
bool graph_range_end(struct gpu *gpu, struct graph_range *range);

// Closes abandoned ranges, and ends closed memories without ranges.
void graph_memory_sweep(struct gpu *gpu);
bool graph_memory_waits(const struct gpu *gpu);  // for a sweep: it was closed in a capture

#endif
