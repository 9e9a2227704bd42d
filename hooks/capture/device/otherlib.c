// otherlib.c - see otherlib.h. Live blocks are in a hash table with linear probing. Removing a block
// moves those behind it into the hole, so that the table needs no marks for removed blocks.
#include "device/otherlib.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/hook.h"
#include "base/lock.h"
#include "device/devices.h"

struct block {
  uint64_t addr;  // 0: empty
  uint64_t bytes;
  int device;
  bool pooled;
};

static struct lock lock;
static struct block *blocks;
static size_t count, capacity;  // a power of two, or 0; at most half is used
static int64_t plain[MOST_DEVICES], pooled_sum[MOST_DEVICES];

static size_t home(uint64_t addr, size_t size) { return (size_t)((addr * 0x9e3779b97f4a7c15u) >> 17) & (size - 1); }

static size_t find(uint64_t addr) {
  size_t at = home(addr, capacity);
  while (blocks[at].addr != 0 && blocks[at].addr != addr) at = (at + 1) & (capacity - 1);
  return at;
}

static bool make_room(void) {
  if (2 * (count + 1) <= capacity) return true;
  const size_t old_capacity = capacity, larger = capacity == 0 ? 256 : 2 * capacity;
  struct block *old = blocks, *cleared = calloc(larger, sizeof *cleared);
  if (cleared == NULL) return false;
  blocks = cleared;
  capacity = larger;
  for (size_t i = 0; i < old_capacity; i++) {
    if (old[i].addr != 0) blocks[find(old[i].addr)] = old[i];
  }
  free(old);
  return true;
}

static void count_bytes(const struct block *block, int64_t sign) {
  if (!device_valid(block->device)) return;
  *(block->pooled ? &pooled_sum[block->device] : &plain[block->device]) += sign * (int64_t)block->bytes;
}

static void take_out(size_t at) {
  count_bytes(&blocks[at], -1);
  count--;
  for (size_t next = (at + 1) & (capacity - 1); blocks[next].addr != 0; next = (next + 1) & (capacity - 1)) {
    // A block stays if the way from its home slot to it does not pass the hole.
    const size_t way = (next - home(blocks[next].addr, capacity)) & (capacity - 1);
    if (way < ((next - at) & (capacity - 1))) continue;
    blocks[at] = blocks[next];
    at = next;
  }
  blocks[at].addr = 0;
}

void otherlib_add(uint64_t addr, size_t bytes, int device, bool pooled) {
  if (addr == 0) return;
  lock_take(&lock);
  if (make_room()) {
    const size_t at = find(addr);
    if (blocks[at].addr != 0)
      count_bytes(&blocks[at], -1);  // its free was not seen
    else
      count++;
    blocks[at] = (struct block){addr, bytes, device, pooled};
    count_bytes(&blocks[at], 1);
  }
  lock_give(&lock);
}

void otherlib_remove(uint64_t addr) {
  lock_take(&lock);
  if (capacity > 0) {
    const size_t at = find(addr);
    if (blocks[at].addr == addr && addr != 0) take_out(at);
  }
  lock_give(&lock);
}

void otherlib_end_all(int device, void *self, void (*ended)(void *self, uint64_t addr, int device)) {
  lock_take(&lock);
  for (size_t i = 0; i < capacity;) {
    if (blocks[i].addr == 0 || blocks[i].device != device) {
      i++;
      continue;
    }
    ended(self, blocks[i].addr, device);
    take_out(i);  // another may have come into its place
  }
  lock_give(&lock);
}

static _Atomic int under_way;   // calls
static _Atomic unsigned begun;  // calls so far
static __thread int mine;       // calls under way of this thread: 0 or 1

void otherlib_call_begin(void) {
  mine++;
  atomic_fetch_add(&under_way, 1);
  atomic_fetch_add(&begun, 1);
}

void otherlib_call_end(void) {
  mine--;
  atomic_fetch_sub(&under_way, 1);
}

unsigned otherlib_calls(bool *quiet) {
  const unsigned now = atomic_load(&begun);
  *quiet = atomic_load(&under_way) == mine;
  return now;
}

static int64_t sum(const int64_t *sums, int device) {
  if (!device_valid(device)) return 0;
  lock_take(&lock);
  const int64_t bytes = sums[device];
  lock_give(&lock);
  return bytes;
}

int64_t otherlib_bytes(int device) { return sum(plain, device); }
int64_t otherlib_pooled_bytes(int device) { return sum(pooled_sum, device); }

static void forget(void) {
  lock = (struct lock){0};
  atomic_store(&under_way, 0);
}

HOOK_PART(.forget = forget);
