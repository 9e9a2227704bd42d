// memprof.h - what the capture hook offers to the code inside the profiled process:
// the torch shim, the Python package, `memprof rerun`, and anyone's plug-in.
//
// Every function may be called from any thread. None of them ends the process,
// prints on stdout, or fails the job for trouble of the hook's own.
#ifndef MEMPROF_H
#define MEMPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { MEMPROF_ABI = 2 };

// The ABI of the loaded hook; the shim refuses another one.
int memprof_abi(void);

// 1 while this process is recorded or served by the hook, 0 in a forked child,
// outside `memprof record`, and after the hook has given up before its first allocation.
int memprof_active(void);

// Device memory from the arena of (device, stream). NULL when `size` is 0 or
// nothing could be found; memprof_oom_message() then says why.
void *memprof_malloc(size_t size, int device, void *stream);

// The same from the private arena of (device, stream, pool): what is freed there is reused
// only there. A pool is named by two numbers, as torch does. One that was not opened before
// is held from then on by its first caller.
void *memprof_malloc_in_pool(size_t size, int device, void *stream, uint64_t pool0, uint64_t pool1);

// Who uses a pool holds it: a graph captured into it, an object of the framework. While it is
// held its memory stays mapped, whether free or not, since a replay uses it without asking.
// When nobody holds it any more and its last block is freed, all of it is given back.
void memprof_pool_hold(int device, uint64_t pool0, uint64_t pool1);
void memprof_release_pool(int device, uint64_t pool0, uint64_t pool1);
int64_t memprof_pool_uses(int device, uint64_t pool0, uint64_t pool1);

// A stretch of the program in which requests go to the pool: holds it, and is in the trace.
// The end of the stretch does not release it.
void memprof_pool_begin(int device, uint64_t pool0, uint64_t pool1);
void memprof_pool_end(int device, uint64_t pool0, uint64_t pool1);

// Free memory of the pool may (1) or may not (0) be given back while it is held, when others
// run out: for pools without graphs.
void memprof_pool_spare(int device, uint64_t pool0, uint64_t pool1, int spare);

// The pool, held and not yet asked, takes its memory from an allocator of the caller's. 0: it
// was not so. `allocate` returns NULL when it has none; `release` is for what it returned.
int memprof_pool_source(int device, uint64_t pool0, uint64_t pool1, void *self, void *(*allocate)(void *self, size_t bytes),
                        void (*release)(void *self, void *ptr));

// Gives `ptr` back; `size`, `device` and `stream` are there for the plug-in
// signature and are not looked at. NULL is ignored. Returns nothing, as the plug-in
// signature demands; a pointer that is not ours goes to the problems file.
void memprof_free(void *ptr, size_t size, int device, void *stream);

// 1 if `ptr` is the start of a live block of ours; its chunk size in *provided.
int memprof_owns(void *ptr, size_t *provided);

// The live block that contains `ptr`: start and chunk size. 0 if there is none.
int memprof_block_of(void *ptr, void **start, size_t *provided);

// `ptr` is also used on `stream`: after its free it is reused only when the
// work queued there by then has finished.
void memprof_record_stream(void *ptr, void *stream);

// Gives the physical memory of wholly free handles back to the device, after
// waiting for it. Returns the bytes given back.
size_t memprof_empty_cache(int device);

// Upper bound, in bytes, for what all arenas of a device map together; 0 = none.
void memprof_set_limit(int device, uint64_t bytes);
uint64_t memprof_limit(int device);

// Largest free chunk of any arena of the device, bytes.
uint64_t memprof_largest_free(int device);

// Mappings, existing and later, of `device` become readable and writable from `peer`.
int memprof_enable_peer(int device, int peer);

// What lies where. `walk` tells of each segment, a stretch of one arena without gaps, and
// then of the chunks that tile it, all under the device's lock: the functions given must not
// call the hook.
enum memprof_chunk_state { MEMPROF_CHUNK_FREE, MEMPROF_CHUNK_LIVE, MEMPROF_CHUNK_PENDING };
struct memprof_segment {
  uint64_t addr;
  void *stream;
  uint64_t pool[2];
  int from_source;  // 1: memory of the pool's source (memprof_pool_source)
  int32_t number;   // within the arena: by address, or in the order in which the source returned it
};
struct memprof_chunk {
  uint64_t addr, size, requested;
  enum memprof_chunk_state state;
};
struct memprof_visitor {
  void *self;
  void (*segment)(void *self, const struct memprof_segment *segment);
  void (*chunk)(void *self, const struct memprof_chunk *chunk);
};
void memprof_walk(int device, const struct memprof_visitor *visitor);

// Notes in the trace that the live blocks of a pool were noted, how many and their bytes.
void memprof_checkpoint(int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes);

// Frees all blocks of a pool, telling `freed` of each, and makes `blocks` live, each at its
// place, as they were when they were noted. 0: a place was taken; see the problems.
struct memprof_restored {
  void *stream;
  uint64_t addr, size, requested;
};
int memprof_restore(int device, uint64_t pool0, uint64_t pool1, const struct memprof_restored *blocks, size_t count, void *self,
                    void (*freed)(void *self, void *ptr));

// Regions and tags. What a thread allocates between begin and end belongs to the tag (NULL:
// to none), from where it can be paused; regions nest. `backed_up` makes pauses of the tag
// keep the content. While a thread waits for others that work for it (autograd's), it can
// lend its region (1) to threads that have none, and takes it back (0).
int memprof_region_begin(const char *tag, int backed_up);
void memprof_region_end(void);
void memprof_region_lend(int on);

// Makes pinned host memory ready for a copy of what the tag has now, so that its pause need not
// wait for that.
void memprof_prepare_backup(const char *tag);

// Gives the physical memory of the tags back to the device; the addresses and the blocks stay.
// `count` 0 means all tags. All or nothing: on failure everything is as before, and
// memprof_pause_message() says why. With `unchanged` copies that were kept by resume are
// taken for the content if the blocks are the same. Blocks of paused tags may be freed.
int memprof_pause(const char *const *tags, size_t count, int unchanged);

// Takes memory for them again at the same addresses, with their content if it was backed up;
// where the device or the limit has too little, what is mapped and free elsewhere is given back
// for it first. `keep`: the copies stay for a next pause of unchanged content.
int memprof_resume(const char *const *tags, size_t count, int keep);

// Results of these.
enum {
  MEMPROF_OK = 0,
  MEMPROF_NOT_ACTIVE = 1,      // the hook does not serve this process, or only watches its allocator
  MEMPROF_UNKNOWN_TAG = 2,
  MEMPROF_WRONG_STATE = 3,     // paused already, or not paused
  MEMPROF_IN_CAPTURE = 4,
  MEMPROF_NO_BACKUP = 5,       // memory of graphs cannot be paused without one
  MEMPROF_NO_HOST_MEMORY = 6,
  MEMPROF_NO_MEMORY = 7,       // of the device
  MEMPROF_DEVICE_FAILED = 8,
  MEMPROF_LEAKED = 9,          // paused, but not all handles could be released
};

// Why the last of these calls of this thread failed. After a pause that did not: "", or that less
// memory came back to the device than was released.
const char *memprof_pause_message(void);

// What a tag has, in bytes. `live`: in blocks, paused or not.
struct memprof_tag_usage {
  uint64_t live, mapped, paused, copied;
};
void memprof_tag_usage(const char *tag, struct memprof_tag_usage *usage);

// One counter with its history, as torch's Stat: bytes or blocks.
struct memprof_stat {
  int64_t current, peak, allocated, freed;
};

struct memprof_stats {
  struct memprof_stat allocation;       // live blocks
  struct memprof_stat requested_bytes;  // T
  struct memprof_stat allocated_bytes;  // C
  struct memprof_stat active;           // live and pending blocks
  struct memprof_stat active_bytes;
  struct memprof_stat segment;          // mapped handles
  struct memprof_stat reserved_bytes;   // R
  struct memprof_stat inactive_bytes;   // R - C - pending
  int64_t retries;                      // requests that needed a reclaim
  int64_t ooms;
  int64_t device_allocs, device_frees;  // handles created, released
  int64_t syncs;
};

void memprof_get_stats(int device, struct memprof_stats *stats);
void memprof_reset_peak(int device);
void memprof_reset_accumulated(int device);

// A name under which another process of the same user that has the hook can open the block
// at `ptr`: text of less than 128 bytes. 0: not a live block of ours, or it cannot be shared.
int memprof_share(void *ptr, char *text, size_t size);

// The same for all that a tag has mapped on a device: `each` is told the name of every arena of
// the tag that is awake, with its first address and its extent, holes included. Returns how
// many. What is shared must not be paused, freed or grown until it has been opened.
int memprof_share_tag(const char *tag, int device, void *self, void (*each)(void *self, const char *name, uint64_t base, uint64_t span));

// What has that name, readable and writable from `device` of this process: the block, or the
// arena's first address. NULL: it is not there any more, or cannot be mapped.
void *memprof_open_shared(const char *text, int device);
void memprof_close_shared(void *ptr, int device);

// Graph memory: one physical memory for the graphs of many shapes, of which one replays at a
// time. Each shape has a range of addresses of its own that sees all of it, so that it is as
// large as the largest shape, to the page, whatever the order of the captures.
//
// A memory is known by its device and the number that is returned, from 1; 0: it could not be
// had. `reservation` is how many bytes of addresses each range gets, 0: as many as the device
// has. What is closed ends with its last range.
uint32_t memprof_graph_memory_open(int device, uint64_t reservation);
void memprof_graph_memory_close(int device, uint32_t number);

// Gives a pool that has no memory yet a range, and holds it: what is asked for in the pool from
// now on comes from the range. The range ends, and its addresses are returned, when nobody
// holds the pool and nothing in it is live. With `segments` it is for the two functions below.
// The result is 0 or one of MEMPROF_NOT_ACTIVE to MEMPROF_DEVICE_FAILED; on failure all is as
// before, and memprof_graph_message() says why.
int memprof_graph_shape(int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1, int segments);
const char *memprof_graph_message(void);

// The functions of a plug-in allocator for a MemPool of torch's own allocator: its segments come
// from the range of the pool that the calling thread has entered, or else any thread entered
// last. {0, 0} leaves it.
void memprof_graph_enter(int device, uint64_t pool0, uint64_t pool1);
void *memprof_graph_segment(size_t size, int device, void *stream);
void memprof_graph_segment_free(void *ptr, size_t size, int device, void *stream);

// The live blocks of a pool: how many there are, the first `most` of them in *blocks.
size_t memprof_graph_live(int device, uint64_t pool0, uint64_t pool1, struct memprof_chunk *blocks, size_t most);

// In bytes. Of a memory: what it takes of the device, and of the addresses; of a range: where it
// starts, and what was handed out of it. 0: there is no such.
struct memprof_graph_usage {
  uint64_t physical, addresses, ranges;  // ranges: how many
};
int memprof_graph_usage(int device, uint32_t number, struct memprof_graph_usage *usage);
int memprof_graph_extent(int device, uint64_t pool0, uint64_t pool1, uint64_t *base, uint64_t *extent);

// What captures that the calling thread begins from now on are called in the trace, their pool,
// and how many bytes of persistent inputs they use, 0: that is not told. NULL: no name.
void memprof_capture_name(const char *name, uint64_t pool0, uint64_t pool1, uint64_t inputs);

// Called with a device's lock held after memory was mapped (1) or unmapped (0). It must not
// call the hook.
void memprof_set_mapping_observer(void (*observer)(int device, void *stream, uint64_t addr, uint64_t bytes, int mapped));

// Before a request fails for good this is called, outside of all locks: what the framework
// keeps without need it may free. The request is then tried once more.
void memprof_set_last_resort(int (*give_up)(void));

// The last out-of-memory of the calling thread in one line: asked, free, largest
// free, verdict, where the rest is. Never NULL.
const char *memprof_oom_message(void);

// Marks. An empty or NULL label is allowed.
void memprof_iteration(const char *label);
void memprof_phase_begin(const char *name);
void memprof_phase_end(const char *name);

// What the allocations of the calling thread belong to from now on; NULL clears.
void memprof_set_context(const char *context);

// The same for who changes it often: the number of a text, 0 for none, once, and the cell
// of the calling thread that such a number may be stored into for as long as the thread lives.
uint32_t memprof_context(const char *text);
uint32_t *memprof_context_cell(void);

// What the live block that contains `ptr` turned out to hold ("category=weights\tname=fc.bias").
// Other addresses, 0 among them, are ignored. The second labels many blocks; its contexts are numbers.
void memprof_label(void *ptr, const char *context);
void memprof_label_many(size_t count, const uint64_t *addresses, const uint32_t *contexts);

// Memory for keys and values, as an engine that serves a language model divides it among its
// sequences. Sizes are in slots, each for one token; sequences are numbered by the engine, in
// each cache anew. trace/event.go says what each call means. Calls for one cache are to be made
// in order. Nothing waits, and nothing is kept here.

// Describes a cache of `slots` slots on a device, 0: it grows and shrinks with what is reserved.
// `fields` are those of the event. Returns its number, for the other calls; 0, which they pass
// over, when nothing is recorded yet (before CUDA is used) or any more.
uint64_t memprof_kv_cache(int device, uint64_t slots, uint64_t token_bytes, const char *fields);

enum { MEMPROF_KV_ALL = -1 };  // the sequence that stands for all of the cache

// Slots become the sequence's. `first` is their first block in a paged cache, and the number of
// those that are padding in a contiguous one. `prompt`: the tokens of its prompt; 0: not known.
void memprof_kv_reserve(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, uint64_t prompt);

// The sequence uses blocks that others use, or that were kept, too. `position` is the block of
// the sequence that they replace; -1: they come behind those it has.
void memprof_kv_share(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position);

// Tokens fill the next slots of the sequence; none: it has ended.
void memprof_kv_append(uint64_t cache, int64_t sequence, uint64_t tokens);

// The same for many sequences at once.
void memprof_kv_append_many(uint64_t cache, size_t count, const int64_t *sequences, const uint64_t *tokens);

// The sequence gives up its slots, of which the first `kept` keep their content for others.
void memprof_kv_free(uint64_t cache, int64_t sequence, uint64_t kept);

// The content of kept blocks is dropped; the cache is no more.
void memprof_kv_drop(uint64_t cache, uint64_t first, uint64_t slots);
void memprof_kv_end(uint64_t cache);

// The number of a call stack: `frame`, "function (file:line)", called from the stack
// `parent`; 0 is the parent of an outermost frame, and the answer when stacks are too many.
uint32_t memprof_stack_node(uint32_t parent, const char *frame);

// From now on the Python stacks of requests are recorded (1), or not (0), whatever `record`
// was told. Without effect on an allocator that is only watched.
void memprof_stacks(int wanted);

// From now on the CUDA calls of this thread are recorded with this context ("call=cuMemAlloc",
// a tab, "library=libnccl.so.2") in place of the caller's own; NULL ends that. For who repeats
// the calls of others.
void memprof_call_as(const char *context);

// Watching. Another allocator serves and tells what it does: torch's native one, through its
// trace tracker. It tells the events of one device one at a time and in the order of its
// decisions, from under its lock of that device. None of the calls below waits for anybody
// who may wait for that lock, but for a moment after a mark.
//
// `tick` is the processor's time stamp counter at the event, 0 to have it read. Blocks and
// segments belong to a stream and a pool, {0, 0}: none.
struct memprof_watch;

// The allocator's own sums of a device, in bytes.
struct memprof_watch_sums {
  uint64_t provided;       // C: blocks of live allocations
  uint64_t provided_peak;  // the greatest C since the allocator began to count
  uint64_t active;         // the same as `provided` and blocks whose free is under way
  uint64_t reserved;       // R: segments
};

// Reads the sums. It is called with the allocator's lock of the device held by the calling
// thread, from the calls below, and without it at marks.
typedef void memprof_watch_read(int device, struct memprof_watch_sums *sums);

// Begins to watch a device of the allocator of this name, before its first event; later
// calls return the same. NULL when the process is not recorded.
struct memprof_watch *memprof_watch_device(int device, const char *allocator, memprof_watch_read *read);

// A block was handed out for a request of `size` bytes.
void memprof_watch_alloc(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);
// Its owner gave it back.
void memprof_watch_free(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);
// It can be handed out again: unless other streams have used it, the event after its free.
void memprof_watch_free_done(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);

// The memory at addr was taken before there was a watch, and is in the trace as some
// library's: from here on it is the allocator's, whose map follows.
void memprof_watch_adopt(struct memprof_watch *watch, uint64_t addr);

// Device memory was taken. `joins`: blocks may span what is mapped side by side.
void memprof_watch_map(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins);
// Free memory is given back. The sums say so already where it `joins`, and not yet elsewhere.
void memprof_watch_unmap(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins);

// A request failed for good; `size` may be what the allocator has rounded it up to.
void memprof_watch_oom(struct memprof_watch *watch, uint64_t tick, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);

// Writes the sums of all watched devices now. Not to be called under the allocator's lock.
void memprof_watch_sample(void);

// Adds to the frameworks line of the trace ("torch 2.11.0+cu130").
void memprof_note_framework(const char *text);

// A trouble of our own: one line in the problems file, shown by `record` at the end.
void memprof_problem(const char *text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
