// twin.c - the native BFC driven from outside, to be compared with the one in Go.
//
// Standard input is a sequence of records of 64-bit little-endian words: heaps, each a
// header (struct header) and operations (struct operation) up to OP_END. Every call the
// allocator makes of its memory and every result goes to standard output as records of six
// words (kind and five values), in the order they happen. The memory is the model of
// bfc/device.go, with a part of the device that others hold.
//
// `twin policies` compares the policy table instead: see policies().
#define _GNU_SOURCE
#include "bfc/bfc.h"

#include "bfc/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation_kind { OP_END, OP_ALLOC, OP_FREE, OP_FREE_ADDRESS, OP_UNMAP, OP_HELD, OP_CONTAINING, OP_STATS, OP_WALK, OP_RESTORE, OP_ITERATION, OP_TRIM, OP_UNMAP_FREE, OP_SHORTAGE, OP_SHRINK, OP_REGISTER, OP_DEREGISTER, OP_SPARE, OP_WANT, OP_OVER };

enum record_kind {
  DID_ALLOC = 100, DID_FREE, DID_UNMAP, DID_CONTAINING, DID_STATS, DID_CHUNK, DID_RESTORE, DID_TRIM, DID_SHRINK, DID_SPARE, DID_WANT, DID_CLEAR,
  MEMORY_GROW = 200, MEMORY_MAP = 202, MEMORY_UNMAP, MEMORY_FREE, MEMORY_TRY_UNMAP,
};

struct header {
  uint64_t limit, headroom, growth, vmm, granularity, physical, reservation, refuse_grow, refuse_map, always_split, trims, refuse_unmap;
};

struct operation {
  uint64_t kind, a, b;
};

struct range {
  uint64_t from, to;
};

struct device {
  struct header h;
  uint64_t base, next, end, used, held;
  uint64_t grows, maps, takes;
  struct range *unmapped;  // in no order
  size_t unmapped_count, unmapped_capacity;
};

static void *must(void *pointer) {
  if (pointer != NULL) return pointer;
  fprintf(stderr, "twin: out of host memory\n");
  exit(3);
}

static void put(uint64_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
  uint64_t record[6] = {kind, a, b, c, d, e};
  if (fwrite(record, sizeof record, 1, stdout) != 1) exit(3);
}

static uint64_t round_up(uint64_t x, uint64_t unit) {
  return x > (uint64_t)0 - unit ? (uint64_t)0 - unit : (x + unit - 1) & ~(unit - 1);
}

static void add_unmapped(struct device *d, uint64_t from, uint64_t to) {
  if (d->unmapped_count == d->unmapped_capacity) {
    d->unmapped_capacity = 2 * d->unmapped_capacity + 64;
    d->unmapped = must(realloc(d->unmapped, d->unmapped_capacity * sizeof *d->unmapped));
  }
  d->unmapped[d->unmapped_count++] = (struct range){from, to};
}

// Takes [from, to) out of the unmapped ranges and returns how many bytes of it were there.
static uint64_t remove_unmapped(struct device *d, uint64_t from, uint64_t to) {
  uint64_t bytes = 0;
  for (size_t i = d->unmapped_count; i-- > 0;) {
    struct range r = d->unmapped[i];
    if (r.to <= from || to <= r.from) continue;
    d->unmapped[i] = d->unmapped[--d->unmapped_count];
    bytes += (r.to < to ? r.to : to) - (r.from > from ? r.from : from);
    if (r.from < from) add_unmapped(d, r.from, from);
    if (r.to > to) add_unmapped(d, to, r.to);
  }
  return bytes;
}

static uint64_t free_bytes(const struct device *d) {
  uint64_t left = d->h.physical - d->used;
  return left > d->held ? left - d->held : 0;
}

static bool reserve(struct device *d, uint64_t bytes) {
  if (bytes <= d->end - d->next) return true;
  uint64_t base = d->end, unit = d->h.granularity > 2 << 20 ? d->h.granularity : 2 << 20;
  if (base != d->base) {
    base = round_up(base, unit);
    if (base > UINT64_MAX - unit) return false;
    base += unit;
  }
  uint64_t last = (uint64_t)0 - d->h.granularity;
  if (base > last || bytes > last - base) return false;
  d->next = base;
  uint64_t wanted = bytes;
  if (d->h.vmm != 0 && d->h.reservation == 0) wanted = last - base;
  if (d->h.vmm != 0 && d->h.reservation != 0) {
    uint64_t whole = round_up(d->h.reservation, d->h.granularity);
    if (whole > wanted) wanted = whole;
    if (wanted > last - base) wanted = last - base;
  }
  d->end = base + wanted;
  return true;
}

static bool adjoins(void *self, uint64_t bytes) {
  const struct device *d = self;
  return round_up(bytes, d->h.granularity) <= d->end - d->next;
}

static bool refuses(uint64_t every, uint64_t call) { return every != 0 && call % every == 0; }

static bool try_grow(struct device *d, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  if (refuses(d->h.refuse_grow, ++d->grows)) return false;
  *granted = round_up(bytes, d->h.granularity);
  if (*granted == 0 || *granted < bytes || *granted > free_bytes(d) || !reserve(d, *granted)) return false;
  *addr = d->next;
  d->next += *granted;
  d->used += *granted;
  return true;
}

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  *addr = *granted = 0;
  bool ok = try_grow(self, bytes, addr, granted);
  if (!ok) *addr = *granted = 0;
  put(MEMORY_GROW, bytes, ok, *addr, *granted, 0);
  return ok;
}

static bool map(void *self, uint64_t addr, uint64_t bytes) {
  struct device *d = self;
  bool ok = !refuses(d->h.refuse_map, ++d->maps) && bytes <= free_bytes(d);
  if (ok) {
    d->used += bytes;
    remove_unmapped(d, addr, addr + bytes);
  }
  put(MEMORY_MAP, addr, bytes, ok, d->used, 0);
  return ok;
}

static void unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct device *d = self;
  d->used -= bytes;
  add_unmapped(d, addr, addr + bytes);
  put(MEMORY_UNMAP, addr, bytes, d->used, 0, 0);
}

static bool try_unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct device *d = self;
  bool ok = !refuses(d->h.refuse_unmap, ++d->takes);
  if (ok) {
    d->used -= bytes;
    add_unmapped(d, addr, addr + bytes);
  }
  put(MEMORY_TRY_UNMAP, addr, bytes, ok, d->used, 0);
  return ok;
}

static uint64_t device_free(void *self) {
  uint64_t bytes = free_bytes(self);
  put(MEMORY_FREE, bytes, 0, 0, 0, 0);
  return bytes;
}

struct heap {
  struct bfc *bfc;
  struct device device;
  struct bfc_streams streams;
  uint64_t *live;  // addresses, in an order both twins keep
  size_t count, capacity;
};

static void keep(struct heap *heap, const struct bfc_block *block) {
  if (heap->count == heap->capacity) {
    heap->capacity = 2 * heap->capacity + 1024;
    heap->live = must(realloc(heap->live, heap->capacity * sizeof *heap->live));
  }
  heap->live[heap->count++] = block->addr;
  bfc_set_note(heap->bfc, block->chunk, ~block->addr);
}

static void request(struct heap *heap, uint64_t size) {
  struct bfc_block block = {0};
  bool ok = bfc_alloc(heap->bfc, size, &block);
  if (ok) keep(heap, &block);
  put(DID_ALLOC, ok, block.addr, block.size, block.requested, bfc_next_region(heap->bfc));
}

static void give(struct heap *heap, uint64_t addr) {
  struct bfc_block block = {0}, found = {0};
  bool there = bfc_find(heap->bfc, addr, &found);
  uint64_t note = there ? bfc_note(heap->bfc, found.chunk) : ~addr;
  bool ok = bfc_free(heap->bfc, addr, &block);
  put(DID_FREE, ok, block.addr, block.size, block.requested,
      there == ok && note == ~addr && memcmp(&found, &block, sizeof block) == 0);
}

static void add_bytes(void *self, uint64_t addr, uint64_t bytes) {
  (void)addr;
  *(uint64_t *)self += bytes;
}

static void add_pages(void *self, uint64_t addr, uint64_t bytes) {
  const struct heap *heap = ((void **)self)[0];
  const uint64_t unit = heap->device.h.granularity, from = round_up(addr, unit), to = (addr + bytes) & ~(unit - 1);
  if (to > from) *(uint64_t *)((void **)self)[1] += to - from;
}

static void put_stats(struct heap *heap) {
  uint64_t mapped = 0, clear = 0;
  bfc_free_mapped(heap->bfc, &mapped, add_bytes);
  bfc_clear_mapped(heap->bfc, &(void *[]){heap, &clear}, add_pages);
  put(DID_STATS, bfc_in_use(heap->bfc), bfc_reserved(heap->bfc), bfc_largest_free(heap->bfc), bfc_next_region(heap->bfc), mapped);
  put(DID_CLEAR, clear, bfc_frees(heap->bfc), heap->count, 0, 0);
}

static void put_chunk(void *self, const struct bfc_chunk_info *chunk) {
  (void)self;
  put(DID_CHUNK, chunk->addr, chunk->size, chunk->requested, chunk->free, chunk->region_start);
}

// Ranges, collected before anything is changed.
struct list {
  struct range *items;
  size_t count, capacity;
};

static void collect(void *self, uint64_t addr, uint64_t bytes) {
  struct list *list = self;
  if (list->count == list->capacity) {
    list->capacity = 2 * list->capacity + 64;
    list->items = must(realloc(list->items, list->capacity * sizeof *list->items));
  }
  list->items[list->count++] = (struct range){addr, addr + bytes};
}

static uint64_t give_back(struct heap *heap, uint64_t addr, uint64_t bytes) {
  if (!try_unmap(&heap->device, addr, bytes)) return 0;
  if (bfc_unmap(heap->bfc, addr, bytes)) return bytes;
  fprintf(stderr, "twin: what was listed cannot be unmapped\n");
  exit(2);
}

static void unmap_excess(struct heap *heap) {
  struct list excess = {0};
  uint64_t given = 0;
  bfc_excess(heap->bfc, bfc_ended(heap->bfc), &excess, collect);
  for (size_t i = 0; i < excess.count; i++) given += give_back(heap, excess.items[i].from, excess.items[i].to - excess.items[i].from);
  put(DID_TRIM, given, 0, 0, 0, 0);
  free(excess.items);
}

// Unmaps whole pages of free chunks, the last first.
static void unmap_free(struct heap *heap, uint64_t wanted) {
  const uint64_t unit = heap->device.h.granularity;
  struct list idle = {0};
  uint64_t given = 0;
  bfc_free_mapped(heap->bfc, &idle, collect);
  for (size_t i = idle.count; i-- > 0 && given < wanted;) {
    const uint64_t from = round_up(idle.items[i].from, unit), to = idle.items[i].to & ~(unit - 1);
    if (to <= from) continue;
    uint64_t part = round_up(wanted - given, unit);
    if (part > to - from) part = to - from;
    given += give_back(heap, to - part, part);
  }
  put(DID_TRIM, given, 0, 0, 0, 0);
  free(idle.items);
}

// A page that another arena takes is unmapped there.
static void put_spare(void *self, uint64_t addr, uint64_t bytes) {
  struct heap *heap = self;
  put(DID_SPARE, addr, bytes, bfc_frees(heap->bfc), bfc_touched(heap->bfc), 0);
  if (!bfc_unmap(heap->bfc, addr, bytes)) exit(2);
  unmap(&heap->device, addr, bytes);
}

static void put_want(struct heap *heap, uint64_t bytes, uint64_t released) {
  const uint64_t want = bfc_streams_want(&heap->streams, bytes, released, bfc_reserved(heap->bfc), bfc_touched(heap->bfc));
  put(DID_WANT, want, 0, 0, 0, 0);
  bfc_streams_took(&heap->streams, want / 16);
}

static void end_streams(struct heap *heap) { bfc_streams_end_iteration(&heap->streams, bfc_reserved(heap->bfc)); }

static void run(struct heap *heap, struct operation op) {
  struct bfc_block block = {0};
  bool ok;
  switch ((enum operation_kind)op.kind) {
    case OP_ALLOC: request(heap, op.a); return;
    case OP_FREE: {
      uint64_t addr = heap->live[op.a];
      heap->live[op.a] = heap->live[--heap->count];
      give(heap, addr);
      return;
    }
    case OP_FREE_ADDRESS: give(heap, op.a); return;
    case OP_UNMAP:
      ok = bfc_unmap(heap->bfc, op.a, op.b);
      put(DID_UNMAP, ok, op.a, op.b, 0, 0);
      if (ok) unmap(&heap->device, op.a, op.b);
      return;
    case OP_RESTORE:
      ok = bfc_restore(heap->bfc, op.a, op.b, op.b - 1, &block);
      if (ok) keep(heap, &block);
      put(DID_RESTORE, ok, block.addr, block.size, block.requested, 0);
      return;
    case OP_HELD: heap->device.held = op.a; return;
    case OP_CONTAINING:
      ok = bfc_containing(heap->bfc, op.a, &block);
      put(DID_CONTAINING, ok, block.addr, block.size, block.requested, 0);
      return;
    case OP_STATS: put_stats(heap); return;
    case OP_WALK: bfc_walk(heap->bfc, NULL, put_chunk); return;
    case OP_ITERATION:
      bfc_end_iteration(heap->bfc);
      end_streams(heap);
      return;
    case OP_TRIM: unmap_excess(heap); return;
    case OP_UNMAP_FREE: unmap_free(heap, op.a); return;
    case OP_SHORTAGE: bfc_shortage(heap->bfc); return;
    case OP_REGISTER: bfc_register(heap->bfc, op.a, op.b); return;
    case OP_SPARE: bfc_spare(heap->bfc, op.a, heap, put_spare); return;
    case OP_OVER: bfc_over(heap->bfc, op.a); return;
    case OP_WANT: put_want(heap, op.a, op.b); return;
    case OP_DEREGISTER: bfc_deregister(heap->bfc, op.a, op.b); return;
    case OP_SHRINK:
      ok = bfc_shrink(heap->bfc, op.a, &block);
      put(DID_SHRINK, ok, block.addr, block.size, block.requested, 0);
      return;
    case OP_END: break;
  }
  fprintf(stderr, "twin: operation %llu\n", (unsigned long long)op.kind);
  exit(2);
}

// Reads lines "KEY=VALUE,... KEY=VALUE ...", a policy and an arena, and prints what the arena gets.
static int policies(void) {
  char options[512], text[512];
  unsigned stream, pool, tag, graphs;
  unsigned long long total, granularity;
  while (scanf("%511s stream=%u pool=%u tag=%u graphs=%u total=%llu granularity=%llu", options, &stream, &pool, &tag, &graphs, &total,
               &granularity) == 7) {
    struct bfc_policy policy = bfc_policy_default;
    const struct bfc_arena arena = {stream != 0, pool != 0, tag != 0, graphs != 0, total, granularity};
    struct bfc_arena_policy got;
    for (char *word = strtok(options, ","); word != NULL; word = strtok(NULL, ",")) {
      char *equals = strchr(word, '=');
      *equals = '\0';
      if (bfc_policy_set(&policy, word, equals + 1)) continue;
      fprintf(stderr, "twin: %s cannot be %s\n", word, equals + 1);
      return 2;
    }
    bfc_policy_for_arena(&policy, &arena, &got);
    bfc_policy_fields(&got, text, sizeof text);
    printf("  %s limit=%llu handle=%llu page=%llu reservation=%llu fine=%d\n", text, (unsigned long long)got.options.limit,
           (unsigned long long)got.handle, (unsigned long long)got.page, (unsigned long long)got.reservation, got.fine);
  }
  return 0;
}

int main(int count, char **words) {
  struct header h;
  if (count > 1 && strcmp(words[1], "policies") == 0) return policies();
  setvbuf(stdin, NULL, _IOFBF, 1 << 20);
  setvbuf(stdout, NULL, _IOFBF, 1 << 20);
  while (fread(&h, sizeof h, 1, stdin) == 1) {
    uint64_t base = round_up((uint64_t)1 << 40, h.granularity);
    struct heap heap = {.device = {.h = h, .base = base, .next = base, .end = base}};
    struct bfc_options options = {
        .limit = h.limit,
        .headroom = h.headroom,
        .growth = (enum bfc_growth)h.growth,
        .always_split = h.always_split != 0,
        .trims = h.trims != 0,
    };
    struct bfc_memory memory = {&heap.device, h.granularity, grow, map, unmap, device_free, h.vmm != 0, try_unmap, NULL, adjoins};
    struct operation op;
    heap.bfc = must(bfc_new(&options, &memory));
    while (fread(&op, sizeof op, 1, stdin) == 1 && op.kind != OP_END) run(&heap, op);
    bfc_delete(heap.bfc);
    free(heap.live);
    free(heap.device.unmapped);
  }
  return 0;
}
