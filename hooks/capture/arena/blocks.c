// blocks.c - requests and frees.
#include <stdlib.h>

#include "arena/arena.h"
#include "arena/observe.h"

// The note of a chunk whose block is pending: it was freed, and another free of it is an error. Other
// notes are pointers to struct stream_uses, or 0.
#define FREED ((uint64_t)1)

static void count_live(struct arena *arena, const struct bfc_block *block) { counters_live(&arena->gpu->stats, block->requested, block->size); }

bool arena_whole(struct arena *arena) {
  struct vmm *vmm = &arena->memory.vmm;
  return arena->paused || vmm->detached == 0 || vmm_attach(vmm);
}

bool arena_alloc(struct arena *arena, uint64_t size, uint32_t context, struct bfc_block *out) {
  if (arena->pending.count > 0) pending_poll(arena, false);
  exchange_begin(arena);
  if (!bfc_alloc(arena->bfc, size, out)) return false;
  count_live(arena, out);
  arena_event(arena, MEMPROF_ALLOC, out->addr, out->requested, out->size, context);
  exchange_end(arena);
  return true;
}

bool arena_restore(struct arena *arena, uint64_t addr, uint64_t size, uint64_t requested) {
  struct bfc_block block;
  if (!arena_whole(arena) || !bfc_restore(arena->bfc, addr, size, requested, &block)) return false;
  count_live(arena, &block);
  arena_event(arena, MEMPROF_RESTORE, addr, requested, size, 0);
  return true;
}

// Whether statistics leave the arena out: memprof paused it.
static bool left_out(const struct arena *arena) { return arena->paused && !arena->memory.kind->foreign; }

// The block is freed: its chunk can be reused at once, or when the block is no longer pending.
static void count_freed(struct arena *arena, const struct bfc_block *block, bool pending) {
  if (left_out(arena)) {
    counters_freed_apart(&arena->gpu->stats, block->requested);
  } else {
    counters_freed(&arena->gpu->stats, block->requested, block->size);
    if (pending)
      counters_pend(&arena->gpu->stats, block->requested, block->size, 1);
    else
      counters_note_inactive(&arena->gpu->stats);
  }
  arena->gpu->frees++;
  arena_event(arena, MEMPROF_FREE, block->addr, block->requested, block->size, 0);
}

static void count_done(struct arena *arena, const struct bfc_block *block) {
  if (left_out(arena)) return;
  counters_pend(&arena->gpu->stats, block->requested, block->size, -1);
  counters_note_inactive(&arena->gpu->stats);
}

bool arena_live(const struct arena *arena, const struct bfc_block *block) {
  return bfc_note(arena->bfc, block->chunk) != FREED;
}

struct arena *arena_block(uint64_t addr, struct bfc_block *out) {
  struct arena *arena = arena_of(addr);
  if (arena == NULL) return NULL;
  const bool taken = gpu_take(arena->gpu);
  const bool found = bfc_containing(arena->bfc, addr, out) && arena_live(arena, out);
  gpu_give(arena->gpu, taken);
  return found ? arena : NULL;
}

bool arena_free(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (arena->noted == 0) {  // no chunk has a note: the usual case
    if (!bfc_free(arena->bfc, addr, &block)) return false;
    count_freed(arena, &block, false);
    return true;
  }
  if (!bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note == FREED) return false;
  if (note != 0 && left_out(arena)) return arena_free_now(arena, addr);  // the pause has waited for all streams
  count_freed(arena, &block, note != 0);
  if (note == 0) return bfc_free(arena->bfc, addr, &block);
  bfc_set_note(arena->bfc, block.chunk, FREED);
  struct stream_uses *uses = (struct stream_uses *)(uintptr_t)note;
  pending_add(arena, addr, uses);
  return true;
}

bool arena_free_now(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (!bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note == 0) return arena_free(arena, addr);
  if (note == FREED) return false;
  count_freed(arena, &block, true);
  pending_forget_uses((struct stream_uses *)(uintptr_t)note);
  bfc_set_note(arena->bfc, block.chunk, FREED);
  arena_free_done(arena, addr);
  return true;
}

void arena_free_done(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (!bfc_free(arena->bfc, addr, &block)) return;
  arena->noted--;
  arena->gpu->frees++;
  count_done(arena, &block);
  arena_event(arena, MEMPROF_FREE_DONE, addr, block.requested, block.size, 0);
  observe_reusable(arena, addr);
}
