// apart.c - jobs whose memory is in arenas of its own for a reason: under tags that are paused and resumed, and in pools of
// captured graphs, which are kept, released with live blocks, and used again.
#include <stdio.h>
#include <stdlib.h>

#include "memprof.h"
#include "served.h"

enum { MODES = 3 };  // of captures: global, of the thread, relaxed

static bool under_capture[STREAMS];  // by stream
static uint64_t pool_of[STREAMS];    // of the graph that is captured there

int captured(void) {
  int count = 0;
  for (int i = 0; i < STREAMS; i++) count += under_capture[i];
  return count;
}

static void begin_capture(int stream, uint64_t pool, int mode) {
  if (stream == 0 || under_capture[stream]) return;  // the default stream cannot be captured
  if (cu_capture(streams[stream], mode) != 0) exit(3);
  under_capture[stream] = true;
  pool_of[stream] = pool;
}

// Nothing that the hook does may end a capture before that.
static void end_capture(int stream) {
  void *graph;
  if (!under_capture[stream]) return;
  if (cu_end_capture(streams[stream], &graph) != 0) {
    fprintf(stderr, "served: a capture was invalidated\n");
    exit(3);
  }
  under_capture[stream] = false;
  if (captured() == 0) rest();
}

// A capture does not allow the driver to free what the hook refused to serve.
static bool can_give(const struct block *block) { return block->own || captured() == 0 || hook_owns((void *)(uintptr_t)block->addr, &(size_t){0}); }

// Two tags: blocks of pools have the second, whose content nobody needs after a pause.
static const char *const tags[] = {"first", "second"};

static void take_tagged(struct block *block, uint64_t bytes, int stream, uint64_t which, uint64_t pool) {
  hook_region_begin(tags[which], which == 0 ? MEMPROF_RESTORE_NONE : MEMPROF_RESTORE_DISCARD);
  if (which == 1 && pool != 0)
    take_pooled(block, bytes, stream, pool);
  else
    take_direct(block, bytes, stream, 0);
  hook_region_end();
}

// A request of the graph that its stream is captured into, or one of another kind.
static void take_apart(struct block *block, uint64_t *random, int what) {
  const uint64_t bytes = size_of(random, 0), how = below(random, 8), which = below(random, 2), pool = below(random, POOLS + 1);
  const int stream = (int)below(random, STREAMS);
  if (under_capture[stream] && how < 6)
    take_pooled(block, bytes, stream, pool_of[stream]);
  else if ((what & TAGS) && how < 4)
    take_tagged(block, bytes, stream, which, pool);
  else if (how == 4 && pool != 0)
    take_pooled(block, bytes, stream, pool);
  else if (how == 5 && captured() == 0)
    take(block, bytes, -1);  // a capture would not allow it
  else
    take_direct(block, bytes, stream, 0);
}

// What a job does now and then between two requests. Pauses of what is paused, and resumes of what is not, are refused.
static void occasion(uint64_t *random, int what) {
  const uint64_t kind = below(random, 60), which = below(random, 3), pool = below(random, POOLS) + 1, mode = below(random, MODES);
  const size_t count = which < 2;  // or all tags
  if (kind == 0) mark();
  if (kind == 1) hook_empty_cache(0);
  if (kind == 2) release_pool(pool);
  if ((what & TAGS) && kind >= 3 && kind < 6) hook_pause(&tags[which % 2], count, 0);
  if ((what & TAGS) && kind >= 6 && kind < 9) hook_resume(&tags[which % 2], count, mode == 0 ? MEMPROF_MAP_FREE : 0);
  if ((what & CAPTURES) && kind >= 9 && kind < 12) begin_capture((int)which, pool, (int)mode);
  if ((what & CAPTURES) && kind >= 12 && kind < 18) end_capture((int)which);
}

void apart(uint64_t seed, int what) {
  uint64_t random = seed;
  for (int round = 0; round < 10; round++) {
    uint64_t changes = below(&random, 3) == 0 ? next_random(&random) : seed;
    for (int i = 0; i < 120; i++) {
      struct block *block = &blocks[below(&changes, BLOCKS)];
      const uint64_t stream = below(&changes, STREAMS), kind = below(&changes, 6);
      if (block->bytes == 0)
        take_apart(block, &changes, what);
      else if (kind == 0 && block->addr != 0 && block->own)
        hook_use((void *)(uintptr_t)block->addr, streams[stream]);
      else if (can_give(block))
        give_any(block);
      occasion(&changes, what);
    }
    mark();
  }
  for (int i = 0; i < STREAMS; i++) end_capture(i);
  for (int i = 0; i < BLOCKS; i++) give_any(&blocks[i]);
}
