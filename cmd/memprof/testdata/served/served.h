// served.h - what the jobs of served.c share: blocks, the functions of the driver and the hook, random numbers.
#ifndef SERVED_H
#define SERVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)

enum { BLOCKS = 48, STREAMS = 3, LARGEST = 6 << 20 };

struct block {
  uint64_t addr, bytes;
  int stream;  // -1: of cuMemAlloc, which no stream orders
  bool own;    // a request of the hook itself
  unsigned char *copy;
};

extern void *streams[STREAMS];  // the first is the default one
extern struct block blocks[BLOCKS];
extern uint64_t refused;  // requests

// Functions of the driver and of memprof.h.
extern int (*cu_capture)(void *, int), (*cu_end_capture)(void *, void **);
extern size_t (*hook_empty_cache)(int);
extern void *(*hook_malloc)(size_t, int, void *, uint64_t, uint64_t);
extern void (*hook_free)(void *, size_t, int, void *);
extern void (*hook_use)(void *, void *);
extern int (*hook_owns)(void *, size_t *);
extern void (*hook_pool_begin)(int, uint64_t, uint64_t), (*hook_pool_end)(int, uint64_t, uint64_t), (*hook_pool_release)(int, uint64_t, uint64_t);
extern int (*hook_region_begin)(const char *, int), (*hook_pause)(const char *const *, size_t, int), (*hook_resume)(const char *const *, size_t, int);
extern void (*hook_region_end)(void);

// Finds these, and makes the streams. Returns the driver's library, for find, which sets a pointer to a function.
void *start(void);
void find(void *library, const char *name, void *function);

// Splitmix64: seeds that follow each other have nothing in common.
uint64_t next_random(uint64_t *state);
uint64_t below(uint64_t *state, uint64_t bound);

// A size on one of four scales, or up to LARGEST.
uint64_t size_of(uint64_t *random, int small);

// Ends an iteration. Then, and by `rest` alone, it waits as rest_as says: 0 not at all, 1 until the hook has unmapped, and
// mapped ahead, what the policy wants, else every fourth time for so many milliseconds. While streams are captured it does not wait,
// since the hook does not unmap.
void mark(void);
void rest(void);
void rest_as(int how);

// A request by the driver's calls, and its free.
void take(struct block *block, uint64_t bytes, int stream);
void give(struct block *block);

// How many streams are captured.
int captured(void);

// The jobs of direct.c and apart.c.
void direct(uint64_t seed);
void mixed(uint64_t seed);
enum { TAGS = 1, CAPTURES = 2 };
void apart(uint64_t seed, int what);

// A request of the hook, of a pool unless that is 0; a free of either kind.
void take_direct(struct block *block, uint64_t bytes, int stream, uint64_t pool);
void give_any(struct block *block);

// Pools of mixed jobs and those of apart.c, numbered from 1. A pool is held once for each request that was made in it, until it is released.
enum { POOLS = 3 };
void take_pooled(struct block *block, uint64_t bytes, int stream, uint64_t pool);
void release_pool(uint64_t pool);

#endif
