// streams.c - what the arenas of other streams hold idle: how much a request takes of it, and which pages. See bfc.h.
#include "bfc/internal.h"

uint64_t bfc_streams_want(struct bfc_streams *streams, uint64_t bytes, uint64_t released, uint64_t mapped, uint64_t touched) {
  const uint64_t back = bfc_least(bytes, released), lack = bytes - back;
  streams->most = bfc_greatest(streams->most, touched + lack);
  const uint64_t allowed = streams->most + streams->most / BFC_SLACK_STEPS * streams->slack;
  return lack - bfc_least(lack, allowed - bfc_least(allowed, mapped + back));
}

void bfc_streams_took(struct bfc_streams *streams, uint64_t bytes) { streams->moved += bytes; }

void bfc_streams_end_iteration(struct bfc_streams *streams, uint64_t mapped) {
  if (streams->moved > mapped / BFC_MOVED_SHARE && streams->slack < BFC_MOST_SLACK) streams->slack++;
  streams->moved = 0;
}

uint64_t bfc_touched(const struct bfc *bfc) { return bfc->pager.live * bfc->memory.granularity; }

void bfc_spare(struct bfc *bfc, uint64_t pages, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes)) {
  bfc_list_free(bfc, pages, bfc->over, (struct bfc_range){0});
  for (int age = BFC_AGES; age-- > 0 && pages > 0;) {
    const struct bfc_victims *victims = &bfc->pager.victims[age];
    const size_t count = bfc_least(pages, victims->count);
    pages -= count;
    for (size_t i = 0; i < count;) {
      const struct bfc_range run = bfc_first_run(bfc, victims->items, count, &i);
      visit(self, run.from, run.to - run.from);
    }
  }
}
