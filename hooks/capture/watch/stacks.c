// stacks.c - call stacks as a tree, each node spooled once.
//
// A stack is the number of its innermost frame's node; a node knows its parent and the
// text of its frame. Ten thousand stacks of a job share most of their outer frames, and an
// allocation names its whole stack by one number.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include "base/problem.h"
#include "base/hook.h"
#include "memprof.h"
#include "spool/spool.h"

enum { MOST = 1 << 20 };

struct node {
  uint32_t parent, frame;  // a node's number, a string's id
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *nodes;  // nodes[number - 1]
static uint32_t count, capacity;
static uint32_t *slots;  // open addressing: number, or 0; a power of two of at least 2 * count
static uint32_t slot_count;

static uint32_t slot_of(uint32_t parent, uint32_t frame) {
  uint64_t mixed = ((uint64_t)parent << 32 | frame) * 0x9e3779b97f4a7c15u;
  return (uint32_t)(mixed >> 32) & (slot_count - 1);
}

static uint32_t find(uint32_t parent, uint32_t frame) {
  if (slot_count == 0) return 0;
  for (uint32_t at = slot_of(parent, frame); slots[at] != 0; at = (at + 1) & (slot_count - 1)) {
    const struct node *node = &nodes[slots[at] - 1];
    if (node->parent == parent && node->frame == frame) return slots[at];
  }
  return 0;
}

static void place(uint32_t number) {
  uint32_t at = slot_of(nodes[number - 1].parent, nodes[number - 1].frame);
  while (slots[at] != 0) at = (at + 1) & (slot_count - 1);
  slots[at] = number;
}

static bool make_room(void) {
  if (count == capacity) {
    const uint32_t larger = capacity == 0 ? 256 : 2 * capacity;
    struct node *moved = realloc(nodes, larger * sizeof *moved);
    if (moved == NULL) return false;
    nodes = moved;
    capacity = larger;
  }
  if (2 * (count + 1) > slot_count) {
    const uint32_t larger = slot_count == 0 ? 512 : 2 * slot_count;
    uint32_t *cleared = calloc(larger, sizeof *cleared);
    if (cleared == NULL) return false;
    free(slots);
    slots = cleared;
    slot_count = larger;
    for (uint32_t number = 1; number <= count; number++) place(number);
  }
  return true;
}

static uint32_t add(uint32_t parent, uint32_t frame) {
  if (count == MOST || !make_room()) return 0;
  nodes[count++] = (struct node){parent, frame};
  if (count == MOST) problem("more than %d different call stacks: later ones are not recorded", MOST);
  place(count);
  spool_write(&(struct spool_event){
      .kind = MEMPROF_STACK,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = count,
      .provided = parent,
      .context = frame,
  });
  return count;
}

uint32_t memprof_stack_node(uint32_t parent, const char *frame) {
  if (!hook_on()) return 0;
  hook_start();  // a node told before there is a spool would be lost
  const uint32_t text = spool_string(frame);
  pthread_mutex_lock(&lock);
  uint32_t number = 0;
  if (parent <= count && text != 0) {
    number = find(parent, text);
    if (number == 0) number = add(parent, text);
  }
  pthread_mutex_unlock(&lock);
  return number;
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

HOOK_PART(.forget = forget);
