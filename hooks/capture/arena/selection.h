// selection.h - the arenas that one pause or resume is about, and what both report.
#ifndef MEMPROF_SELECTION_H
#define MEMPROF_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/devices.h"
#include "spool/record.h"

struct arena;
struct gpu;

// The arenas of one call's tags, by address, with the locks of all devices held.
struct selection {
  struct arena **arenas;
  size_t count, room;
  struct gpu *gpus[MOST_DEVICES];
  int gpu_count;
};

// Locks all devices, and selects the arenas of the named tags (all if `count` is 0) that are paused, or
// that are not. An error, with its message, if a name has none. selection_end is due in either case.
int selection_begin(struct selection *selection, const char *const *names, size_t count, bool paused);
void selection_end(struct selection *selection);

// The message of the calling thread's call (memprof_pause_message): set, with `result` returned; cleared; made longer.
__attribute__((format(printf, 2, 3))) int pause_fail(int result, const char *format, ...);
__attribute__((format(printf, 1, 2))) void pause_add_message(const char *format, ...);
void pause_clear_message(void);
double pause_gib(uint64_t bytes);

// Writes the event of an arena's pause or resume, with a field beside the tag unless `field` is NULL; and for all arenas that have
// something to pause or to resume that it failed, with the message. So an event of 0 bytes is a failure only where there was something.
void pause_event(const struct arena *arena, enum memprof_kind kind, uint64_t started, uint64_t bytes, const char *field, const char *value);
void pause_write_failures(const struct selection *selection, enum memprof_kind kind, uint64_t started);

// Adds (1) all that the arena has to the statistics, or subtracts it (-1): they count neither paused memory nor
// its blocks.
void pause_count(struct arena *arena, int sign);

// Frees the list of what a resume maps.
void pause_forget_ranges(struct arena *arena);

#endif
