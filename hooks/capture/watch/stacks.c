// stacks.c - call stacks as a tree of frames, each node written once.
//
// A node is a frame and its parent, the stack that the frame was called from. The number of the innermost
// frame's node is the number of the stack. So an event names a whole stack by one number, and ten thousand
// stacks of a job share their outer frames.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/intern.h"
#include "base/problem.h"
#include "memprof.h"
#include "spool/spool.h"

enum { MOST = 1 << 20 };

struct node {
  uint32_t parent, frame;  // a node's number, a string's id
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct intern nodes = {.item_bytes = sizeof(struct node)};

static uint32_t hash_of(const struct node *node) { return (uint32_t)((((uint64_t)node->parent << 32 | node->frame) * 0x9e3779b97f4a7c15u) >> 32); }

static bool same(const void *item, const void *key) {
  const struct node *node = item, *wanted = key;
  return node->parent == wanted->parent && node->frame == wanted->frame;
}

static void write_node(uint32_t number, uint64_t time_ns) {
  const struct node *node = intern_item(&nodes, number);
  const struct spool_event event = {
      .kind = MEMPROF_STACK,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = number,
      .provided = node->parent,
      .context = node->frame,
  };
  spool_write_at(&event, time_ns);
}

static uint32_t add(const struct node *wanted, uint64_t time_ns) {
  struct node *node = nodes.count == MOST ? NULL : intern_add(&nodes, hash_of(wanted));
  if (node == NULL) return 0;
  *node = *wanted;
  if (nodes.count == MOST) problem("more than %d different call stacks: later ones are not recorded", MOST);
  write_node(nodes.count, time_ns);
  return nodes.count;
}

uint32_t memprof_stack_node(uint32_t parent, const char *frame) { return memprof_stack_node_at(0, parent, frame); }

uint32_t memprof_stack_node_at(uint64_t tick, uint32_t parent, const char *frame) {
  if (!hook_on()) return 0;
  hook_start();  // without a spool the node's event would be lost
  const struct node wanted = {parent, spool_string(frame)};
  pthread_mutex_lock(&lock);
  uint32_t number = 0;
  if (parent <= nodes.count && wanted.frame != 0) {
    number = intern_find(&nodes, hash_of(&wanted), same, &wanted);
    if (number == 0) number = add(&wanted, clock_at(tick));
  }
  pthread_mutex_unlock(&lock);
  return number;
}

// A second recording of the process has the nodes of the first, under the same numbers, which threads keep.
static void stacks_start(void) {
  pthread_mutex_lock(&lock);
  for (uint32_t number = 1; number <= nodes.count; number++) write_node(number, clock_now());
  pthread_mutex_unlock(&lock);
}

static void forget(void) { pthread_mutex_init(&lock, NULL); }

HOOK_PART(.order = HOOK_MARKS, .start = stacks_start, .forget = forget);
