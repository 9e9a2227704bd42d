// tag.c - regions: which tag a thread's requests belong to.
//
// Regions nest, and each thread has its own. Autograd runs backward functions on threads of its own,
// which have no region. While a thread waits for them inside a region, it shares its tag with all threads
// without a region. If several threads share, the last one to begin counts.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/pause.h"
#include "arena/handles.h"
#include "arena/saver.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/text.h"
#include "base/thread_own.h"
#include "device/captures.h"
#include "device/devices.h"
#include "device/file.h"
#include "memprof.h"

enum { DEEPEST = THREAD_REGIONS, LONGEST_LABEL = 100 };

static struct tag *_Atomic tags;  // only added to
static struct lock lock;

// A thread that shares its tag; in the list while it does. Under `lock`.
struct sharer {
  struct tag *tag;
  int times;
  struct sharer *next;
};
static struct sharer *sharers;    // the last one to begin first
static struct tag *_Atomic shared;  // the tag of the first; &untagged: it has none, which counts, too
static struct tag untagged;

static __thread int depth;  // of regions; those deeper than DEEPEST have the tag of the last one that fits
static __thread struct sharer sharing;

// `asked` -1: whatever its restore mode is.
static struct tag *find(const char *name, int asked) {
  struct tag *tag = atomic_load_explicit(&tags, memory_order_acquire);
  while (tag != NULL && ((asked >= 0 && tag->asked != asked) || strcmp(tag->name, name) != 0)) tag = tag->next;
  return tag;
}

bool tag_known(const char *name) { return find(name, -1) != NULL; }

static struct tag *make(const char *name, int asked) {
  struct tag *tag = calloc(1, sizeof *tag);
  char *copy = strdup(name), *label = malloc(LONGEST_LABEL + 1);
  if (tag == NULL || copy == NULL || label == NULL) {
    free(tag), free(copy), free(label);
    return NULL;
  }
  text_field(label, LONGEST_LABEL + 1, name);
  *tag = (struct tag){.name = copy, .label = label, .asked = asked, .restore = asked, .next = atomic_load(&tags)};
  atomic_store_explicit(&tags, tag, memory_order_release);
  return tag;
}

static int strength(int restore) { return restore == MEMPROF_RESTORE_HOST ? 2 : restore == MEMPROF_RESTORE_DISCARD ? 1 : 0; }

struct tag *tag_get(const char *name, int restore) {
  const bool plain = restore == MEMPROF_RESTORE_NONE || strength(restore) > 0;
  const int asked = plain ? MEMPROF_RESTORE_NONE : restore;
  lock_take(&lock);
  struct tag *tag = find(name, asked);
  if (tag == NULL) tag = make(name, asked);
  if (tag != NULL && plain && strength(restore) > strength(atomic_load(&tag->restore))) atomic_store(&tag->restore, restore);
  lock_give(&lock);
  return tag;
}

struct tag *tag_current(void) {
  struct tag *tag;
  if (saver_decides(depth, &tag)) return tag;
  if (depth > 0) return thread_texts()->regions[depth < DEEPEST ? depth - 1 : DEEPEST - 1];
  tag = atomic_load_explicit(&shared, memory_order_acquire);
  return tag == &untagged ? NULL : tag != NULL ? tag : saver_initial();
}

int tag_depth(void) { return depth; }

int memprof_region_begin(const char *name, int restore) {
  struct tag *tag = NULL;
  if (hook_on() && name != NULL) {
    tag = tag_get(name, restore < 0 || restore > MEMPROF_RESTORE_DISCARD ? MEMPROF_RESTORE_NONE : restore);
    if (tag == NULL) return MEMPROF_NO_HOST_MEMORY;
  }
  struct thread_own *own = thread_own();
  if (own == NULL) return MEMPROF_NO_HOST_MEMORY;
  if (depth < DEEPEST) own->regions[depth] = tag;
  depth++;
  return MEMPROF_OK;
}

void memprof_region_end(void) {
  if (depth > 0) depth--;
}

static void leave_sharers(void) {
  struct sharer **link = &sharers;
  while (*link != NULL && *link != &sharing) link = &(*link)->next;
  if (*link != NULL) *link = sharing.next;
}

void memprof_region_share(int on) {
  if (!hook_on()) return;
  lock_take(&lock);
  sharing.times += on != 0 ? 1 : sharing.times > 0 ? -1 : 0;
  if (on != 0 && sharing.times == 1) {
    sharing.tag = tag_current();
    if (sharing.tag == NULL) sharing.tag = &untagged;
    sharing.next = sharers;
    sharers = &sharing;
  }
  if (on == 0 && sharing.times == 0) leave_sharers();
  atomic_store_explicit(&shared, sharers == NULL ? NULL : sharers->tag, memory_order_release);
  lock_give(&lock);
}

static bool same_key(const struct arena *a, const struct arena *b) {
  return a->tag == b->tag && a->stream == b->stream && a->home == b->home;
}

static bool is_spare(const struct gpu *gpu, const struct arena *arena) {
  if (arena->tag == NULL || arena->home != NULL || arena->paused || arena->pending.count > 0) return false;
  const struct arena *other = gpu->arenas;
  while (other != NULL && (other == arena || !same_key(other, arena))) other = other->next;
  return other != NULL && bfc_in_use(arena->bfc) == 0;
}

static void drop_spares(struct gpu *gpu) {
  fence_over(gpu, fence_record(gpu));
  for (struct arena **link = &gpu->arenas; *link != NULL;) {
    struct arena *arena = *link;
    if (!is_spare(gpu, arena) || !fence_clear(arena)) {  // if somebody may still read what was freed it ends later
      link = &arena->next;
      continue;
    }
    *link = arena->next;
    handles_release(arena, UINT64_MAX, &(uint64_t){0});
    arena_end(arena);
  }
}

void tag_drop_spares(struct gpu *gpu) {
  if (!captures_hold()) return;
  drop_spares(gpu);
  captures_let();
}

void memprof_tag_usage(const char *name, struct memprof_tag_usage *usage) {
  memset(usage, 0, sizeof *usage);
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_lock(device);
    if (gpu == NULL) continue;
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->tag == NULL || strcmp(arena->tag->name, name) != 0) continue;
      usage->live += bfc_in_use(arena->bfc);
      usage->mapped += arena->memory.vmm.mapped;
      if (source_holds_any(arena)) *(arena->paused ? &usage->paused : &usage->mapped) += source_bytes(arena);
      for (size_t i = 0; i < arena->pause->range_count; i++) usage->paused += arena->pause->ranges[i].bytes;
      usage->copied += arena->pause->backup.bytes;
    }
    lock_give(&gpu->lock);
  }
}

void memprof_tag_offloaded(const char *name, int offloaded) {
  for (struct tag *tag = atomic_load_explicit(&tags, memory_order_acquire); tag != NULL; tag = tag->next) {
    if (strcmp(tag->name, name) == 0) atomic_store(&tag->offloaded, offloaded != 0);
  }
}

int memprof_tags_in_use(void) {
  bool any = false;
  for (int device = 0; !any && device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_lock(device);
    if (gpu == NULL) continue;
    for (const struct arena *arena = gpu->arenas; arena != NULL && !any; arena = arena->next) {
      any = arena->tag != NULL && (arena->memory.vmm.mapped > 0 || arena->pause->range_count > 0);
    }
    lock_give(&gpu->lock);
  }
  return any;
}

void memprof_backup_folder(const char *folder) { file_set_folder(folder); }
