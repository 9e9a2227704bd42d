// api_plugin.c - the functions of memprof.h for torch's plug-in allocator, where the shim cannot be compiled.
//
// Two things there are C++, and done by its ABI (api_cxx.h): a failed request throws c10::OutOfMemoryError or c10::Error, since torch makes a
// tensor without memory of a null pointer; and a pool comes with a std::function that says which streams belong to it, without
// which others would reuse the memory of graphs. What the plug-in raises for is answered by functions that
// hooks/python/memprof/_plugin.py puts into torch._C, or kept from being asked (cudnn.benchmark, CUDA graph trees). There is no
// memory history, and no CUDA tensor of another process.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "api_cxx.h"
#include "arena/arena.h"
#include "base/hook.h"
#include "base/problem.h"
#include "device/devices.h"
#include "memprof.h"

// A pool that requests go to. A thread evaluates filters without the lock, since one may throw: then
// `users` stays, and the pool is kept for good.
struct open_pool {
  int device;
  uint64_t id[2];
  struct cxx_filter filter;
  int users;       // threads that evaluate the filter
  bool closed;     // not in the list any more
  struct open_pool *next;
};

static struct lock pools_lock;
static struct open_pool *open_pools;  // the one opened last is first
static atomic_int open_count;

// Threads of the parent may have held the lock at a fork.
static void forget(void) { atomic_store(&pools_lock.state, 0); }

HOOK_PART(.order = HOOK_REST, .forget = forget);

static void free_if_unused(struct open_pool *pool) {
  if (!pool->closed || pool->users > 0) return;
  cxx_filter_end(&pool->filter);
  free(pool);
}

enum { MOST_NESTED = 16 };

// Sets the pool that a request goes to: the one opened last whose filter accepts the stream, or 0, 0.
static void find_pool(int device, void *stream, uint64_t id[2]) {
  struct open_pool *candidates[MOST_NESTED];
  int count = 0;
  id[0] = id[1] = 0;
  if (atomic_load_explicit(&open_count, memory_order_acquire) == 0) return;
  lock_take(&pools_lock);
  for (struct open_pool *pool = open_pools; pool != NULL && count < MOST_NESTED; pool = pool->next) {
    if (pool->device != device) continue;
    pool->users++;
    candidates[count++] = pool;
  }
  lock_give(&pools_lock);
  bool found = false;
  for (int i = 0; i < count && !found; i++) {
    found = cxx_filter_accepts(&candidates[i]->filter, stream);
    if (found) id[0] = candidates[i]->id[0], id[1] = candidates[i]->id[1];
  }
  lock_take(&pools_lock);
  for (int i = 0; i < count; i++) {
    candidates[i]->users--;
    free_if_unused(candidates[i]);
  }
  lock_give(&pools_lock);
}

static atomic_bool prepared;

bool plugin_prepared(void) { return atomic_load_explicit(&prepared, memory_order_relaxed); }

int memprof_plugin_prepare(const char *library) {
  const bool ok = hook_on() && cxx_find_exception(library);
  if (ok) atomic_store(&prepared, true);
  return ok;
}

void *memprof_plugin_malloc(size_t size, int device, void *stream) {
  uint64_t pool[2];
  find_pool(device, stream, pool);
  void *ptr = memprof_malloc_in_pool(size, device, stream, pool[0], pool[1]);
  if (ptr == NULL && size > 0) cxx_throw(memprof_oom_message(), memprof_oom_error() == 0);
  return ptr;
}

void memprof_plugin_pool_begin(int device, uint64_t pool0, uint64_t pool1, void *filter) {
  memprof_pool_begin(device, pool0, pool1);
  struct open_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) {
    problem("no host memory to note that a memory pool of GPU %d is open; its tensors are in other memory", device);
    return;
  }
  *pool = (struct open_pool){.device = device, .id = {pool0, pool1}};
  cxx_filter_copy(&pool->filter, filter);
  lock_take(&pools_lock);
  pool->next = open_pools;
  open_pools = pool;
  atomic_fetch_add_explicit(&open_count, 1, memory_order_release);
  lock_give(&pools_lock);
}

void memprof_plugin_pool_end(int device, uint64_t pool0, uint64_t pool1) {
  lock_take(&pools_lock);
  struct open_pool **link = &open_pools;
  while (*link != NULL && ((*link)->device != device || (*link)->id[0] != pool0 || (*link)->id[1] != pool1)) link = &(*link)->next;
  struct open_pool *pool = *link;
  if (pool != NULL) {
    *link = pool->next;
    pool->closed = true;
    atomic_fetch_sub_explicit(&open_count, 1, memory_order_release);
    free_if_unused(pool);
  }
  lock_give(&pools_lock);
  memprof_pool_end(device, pool0, pool1);
}

// The allocator of a MemPool: C functions that the job has given torch. Kept for good, since the hook may free there
// until the process ends.
struct plugin_source {
  void *(*allocate)(size_t size, int device, void *stream);
  void (*release)(void *ptr, size_t size, int device, void *stream);
  int device;
  struct source_block *blocks;  // under the device's lock, as all calls
};
struct source_block {
  void *ptr;
  size_t size;
  struct source_block *next;
};

static void *source_allocate(void *self, size_t size) {
  struct plugin_source *source = self;
  struct source_block *block = malloc(sizeof *block);
  void *ptr = block != NULL ? source->allocate(size, source->device, NULL) : NULL;
  if (ptr == NULL) {
    free(block);
    return NULL;
  }
  *block = (struct source_block){ptr, size, source->blocks};
  source->blocks = block;
  return ptr;
}

static void source_release(void *self, void *ptr) {
  struct plugin_source *source = self;
  struct source_block **link = &source->blocks;
  while (*link != NULL && (*link)->ptr != ptr) link = &(*link)->next;
  struct source_block *block = *link;
  if (block == NULL) return;
  *link = block->next;
  source->release(ptr, block->size, source->device, NULL);
  free(block);
}

int memprof_plugin_pool_source(int device, uint64_t pool0, uint64_t pool1, void *allocate, void *release) {
  struct plugin_source *source = calloc(1, sizeof *source);
  if (source == NULL) return 0;
  source->device = device;
  memcpy(&source->allocate, &allocate, sizeof allocate);
  memcpy(&source->release, &release, sizeof release);
  if (memprof_pool_source(device, pool0, pool1, source, source_allocate, source_release)) return 1;
  free(source);
  return 0;
}

void memprof_plugin_reset(void) {
  for (int device = 0; device < MOST_DEVICES; device++) memprof_empty_cache(device);
}

void *memprof_plugin_base(void *ptr, size_t *size) {
  void *start = ptr;
  size_t provided = 0;
  if (memprof_block_of(ptr, &start, &provided) && size != NULL) *size = provided;
  return start;
}

struct listing {
  struct memprof_listed *to;
  size_t most, count;
  struct memprof_segment segment;
  bool first;
};

static void list_segment(void *self, const struct memprof_segment *segment) {
  struct listing *listing = self;
  listing->segment = *segment;
  listing->first = true;
}

static void list_chunk(void *self, const struct memprof_chunk *chunk) {
  struct listing *listing = self;
  if (listing->count < listing->most) {
    listing->to[listing->count] = (struct memprof_listed){
        .addr = chunk->addr,
        .size = chunk->size,
        .requested = chunk->requested,
        .stream = (uint64_t)(uintptr_t)listing->segment.stream,
        .pool0 = listing->segment.pool[0],
        .pool1 = listing->segment.pool[1],
        .state = (int)chunk->state,
        .first = listing->first,
    };
  }
  listing->count++;
  listing->first = false;
}

size_t memprof_list(int device, struct memprof_listed *chunks, size_t most) {
  struct listing listing = {.to = chunks, .most = most};
  memprof_walk(device, &(struct memprof_visitor){.self = &listing, .segment = list_segment, .chunk = list_chunk});
  return listing.count;
}
