// observe.h - reports to the framework changes of an arena's memory that no call of the framework made.
#ifndef MEMPROF_OBSERVE_H
#define MEMPROF_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

// Memory was mapped or unmapped; a block that was freed earlier can be reused. The device's lock is held.
void observe_mapping(const struct arena *arena, uint64_t addr, uint64_t bytes, bool mapped);
void observe_reusable(const struct arena *arena, uint64_t addr);

#endif
