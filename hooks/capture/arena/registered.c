// registered.c - see registered.h.
#include "arena/registered.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/hook.h"
#include "base/problem.h"
#include "spool/spool.h"

struct registration {
  struct registration_key key;
  struct gpu *gpu;
  uint32_t arena;  // id: it may have ended since, with all its memory
  uint64_t addr, bytes;
  struct registration *next;
};

// Taken after a device's lock, never before one.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *all;  // under `lock`, newest first
static _Atomic(uint64_t) count;   // of them, so that calls of a job without any cost nothing

static bool same(struct registration_key a, struct registration_key b) { return a.by == b.by && a.first == b.first && a.second == b.second; }

static void event(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t bytes, const char *call) {
  char text[80];
  snprintf(text, sizeof text, "by=%s", call);
  arena_event(arena, kind, addr, 0, bytes, call == NULL ? 0 : spool_string(text));
}

// The arena of that id, if it has not ended.
static struct arena *find_arena(const struct gpu *gpu, uint32_t id) {
  struct arena *arena = gpu->arenas;
  while (arena != NULL && arena->id != id) arena = arena->next;
  return arena;
}

// A source maps its memory itself, and ranges of a graph memory show pages that are not unmapped one by one.
static bool maps(const struct arena *arena) { return arena->bfc != NULL && arena->memory.kind->maps; }

static bool covered(const struct vmm *vmm, uint64_t addr, uint64_t bytes) {
  for (size_t i = 0; i < vmm->registered_count; i++) {
    const struct vmm_registered *each = &vmm->registered[i];
    if (each->ends && each->addr <= addr && addr + bytes <= each->addr + each->bytes) return true;
  }
  return false;
}

// The handle at an address that another process may map does not end with the handle's own registration.
static bool add(struct arena *arena, struct registration_key key, uint64_t addr, uint64_t bytes, const char *call) {
  struct vmm *vmm = &arena->memory.vmm;
  struct registration *made = malloc(sizeof *made);
  const bool ends = key.by != REGISTERED_FOR_GOOD && key.by != REGISTERED_RETAINED;
  if (made == NULL || !array_reserve(&vmm->registered, &vmm->registered_room, vmm->registered_count + 1, sizeof *vmm->registered)) {
    free(made);
    problem("GPU %d: no host memory to note a registration of %llu bytes at %#llx: what is registered may move", arena->gpu->vmm.device, (unsigned long long)bytes, (unsigned long long)addr);
    return false;
  }
  vmm->registered[vmm->registered_count++] = (struct vmm_registered){addr, bytes, ends};
  bfc_register(arena->bfc, addr, bytes);
  event(arena, MEMPROF_REGISTER, addr, bytes, call);
  pthread_mutex_lock(&lock);
  *made = (struct registration){key, arena->gpu, arena->id, addr, bytes, all};
  all = made;
  atomic_fetch_add(&count, 1);
  pthread_mutex_unlock(&lock);
  return true;
}

// Makes an address the range of the handle that is mapped there.
static void widen(const struct vmm *vmm, uint64_t *addr, uint64_t *bytes) {
  const size_t at = vmm_find(vmm, *addr);
  if (at == vmm->count || vmm->mappings[at].addr > *addr) return;
  *addr = vmm->mappings[at].addr;
  *bytes = vmm->mappings[at].bytes;
}

// Adds it where it is an arena's memory, and where nothing covers it if `uncovered`.
static bool add_at(struct registration_key key, uint64_t addr, uint64_t bytes, const char *call, bool uncovered) {
  struct arena *arena = hook_on() && bytes <= UINT64_MAX - addr ? arena_of(addr) : NULL;
  if (arena == NULL) return false;
  struct gpu *gpu = arena->gpu;
  const bool taken = gpu_take(gpu);
  if (maps(arena) && bytes == 0) widen(&arena->memory.vmm, &addr, &bytes);
  const bool ok = bytes > 0 && maps(arena) && !(uncovered && covered(&arena->memory.vmm, addr, bytes)) && add(arena, key, addr, bytes, call);
  gpu_give(gpu, taken);
  return ok;
}

bool registered_add(struct registration_key key, uint64_t addr, uint64_t bytes, const char *call) { return add_at(key, addr, bytes, call, false); }

void registered_keep(uint64_t addr, uint64_t bytes, const char *call) { add_at((struct registration_key){.by = REGISTERED_FOR_GOOD}, addr, bytes, call, true); }

// The link to the newest registration with that key, under `lock`.
static struct registration **find(struct registration_key key) {
  struct registration **link = &all;
  while (*link != NULL && !same((*link)->key, key)) link = &(*link)->next;
  return link;
}

void registered_rename(struct registration_key from, struct registration_key to) {
  if (atomic_load(&count) == 0) return;
  pthread_mutex_lock(&lock);
  struct registration *found = *find(from);
  if (found != NULL) found->key = to;
  pthread_mutex_unlock(&lock);
}

bool registered_find(struct registration_key key, uint64_t *addr, uint64_t *bytes) {
  if (atomic_load(&count) == 0) return false;
  pthread_mutex_lock(&lock);
  const struct registration *found = *find(key);
  if (found != NULL) *addr = found->addr, *bytes = found->bytes;
  pthread_mutex_unlock(&lock);
  return found != NULL;
}

static void remove_range(struct vmm *vmm, const struct registration *gone) {
  const bool ends = gone->key.by != REGISTERED_FOR_GOOD && gone->key.by != REGISTERED_RETAINED;
  for (size_t i = 0; i < vmm->registered_count; i++) {
    const struct vmm_registered each = vmm->registered[i];
    if (each.addr != gone->addr || each.bytes != gone->bytes || each.ends != ends) continue;
    vmm->registered[i] = vmm->registered[--vmm->registered_count];
    return;
  }
}

bool registered_remove(struct registration_key key) {
  if (!hook_on() || atomic_load(&count) == 0) return false;
  pthread_mutex_lock(&lock);
  struct registration **link = find(key), *gone = *link;
  if (gone != NULL) {
    *link = gone->next;
    atomic_fetch_sub(&count, 1);
  }
  pthread_mutex_unlock(&lock);
  if (gone == NULL) return false;
  const bool taken = gpu_take(gone->gpu);
  struct arena *arena = find_arena(gone->gpu, gone->arena);
  if (arena != NULL) {
    remove_range(&arena->memory.vmm, gone);
    bfc_deregister(arena->bfc, gone->addr, gone->bytes);
    event(arena, MEMPROF_DEREGISTER, gone->addr, gone->bytes, NULL);
    if (arena->home != NULL) pool_sweep(gone->gpu);  // it may have been what its pool waited for
  }
  gpu_give(gone->gpu, taken);
  free(gone);
  return true;
}

bool registered_ends(const struct arena *arena) {
  for (size_t i = 0; i < arena->memory.vmm.registered_count; i++) {
    if (arena->memory.vmm.registered[i].ends) return true;
  }
  return false;
}

bool registered_end_of(enum registrar by, uint64_t second) {
  struct registration_key key = {.by = by, .second = second};
  if (atomic_load(&count) == 0) return false;
  pthread_mutex_lock(&lock);
  const struct registration *each = all;
  while (each != NULL && (each->key.by != by || each->key.second != second)) each = each->next;
  if (each != NULL) key = each->key;
  pthread_mutex_unlock(&lock);
  return each != NULL && registered_remove(key);
}

void registered_drop(struct arena *arena) {
  struct vmm *vmm = &arena->memory.vmm;
  while (vmm->registered_count > 0) {
    const struct vmm_registered last = vmm->registered[--vmm->registered_count];
    bfc_deregister(arena->bfc, last.addr, last.bytes);
    event(arena, MEMPROF_DEREGISTER, last.addr, last.bytes, NULL);
  }
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

HOOK_PART(.forget = forget);
