// memprof.h - the functions of the capture hook for code inside the profiled process: the torch shim,
// the Python package, `memprof lab rerun`, and any plug-in.
//
// Every function may be called from any thread. None ends the process, prints, or fails the job for an
// error of the hook. Sizes are bytes; a device is an ordinal; a stream is the driver's handle, NULL the
// default stream; a pool is two numbers, 0 and 0 for none. In a process that the hook does not serve,
// functions do nothing and return 0 or NULL.
#ifndef MEMPROF_H
#define MEMPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { MEMPROF_ABI = 5 };

// The MEMPROF_ABI that the loaded hook was built with; the shim refuses a hook with another one.
int memprof_abi(void);

// 1 if the hook serves this process; 0 outside `memprof record`, and in a child that was forked after
// the first use of CUDA.
int memprof_active(void);

// Code of the process begins to record, in a process that `memprof record` does not run: into a spool, a directory, with options as
// hooks/capture/base/options.h has them. The caller then observes an allocator (below); calls of CUDA are not seen. 0: the hook serves the
// process already, or the spool cannot be written. memprof_end ends the recording, and the process goes on: the caller has seen to it
// that no thread calls the functions below meanwhile. Then another recording may begin.
int memprof_begin(const char *spool, const char *options);
void memprof_end(void);

// Allocates `size` bytes of device memory from the arena of (device, stream). NULL if `size` is 0 or
// there is no memory; then memprof_oom_message() says why.
void *memprof_malloc(size_t size, int device, void *stream);

// The same from the arena of (device, stream, pool), whose freed memory is reused only there. If the pool
// is not held yet, this holds it once.
void *memprof_malloc_in_pool(size_t size, int device, void *stream, uint64_t pool0, uint64_t pool1);

// Whoever uses a pool holds it: a graph captured into it, a MemPool object. `hold` adds a holder, `release`
// removes one, `uses` counts them. While a pool is held, its free memory stays mapped, too, since a
// replayed graph uses it without a request. When nobody holds it and its last block is freed, all its
// memory is unmapped.
void memprof_pool_hold(int device, uint64_t pool0, uint64_t pool1);
void memprof_release_pool(int device, uint64_t pool0, uint64_t pool1);
int64_t memprof_pool_uses(int device, uint64_t pool0, uint64_t pool1);

// From begin to end requests of the calling thread go to the pool. Both are events of the trace. `begin`
// holds the pool; `end` does not release it.
void memprof_pool_begin(int device, uint64_t pool0, uint64_t pool1);
void memprof_pool_end(int device, uint64_t pool0, uint64_t pool1);

// Free memory of the pool may (1) or may not (0) be unmapped while the pool is held, when other requests
// run out of memory. 1 is for pools without graphs.
void memprof_pool_may_unmap(int device, uint64_t pool0, uint64_t pool1, int may_unmap);

// From now on the pool takes its memory from an allocator of the caller. Returns 0, with no effect, if the
// pool is not held or has an arena already. `allocate` returns NULL if it has no memory; `release` frees
// what it returned.
int memprof_pool_source(int device, uint64_t pool0, uint64_t pool1, void *self, void *(*allocate)(void *self, size_t bytes),
                        void (*release)(void *self, void *ptr));

// Frees `ptr`; NULL is ignored. `size`, `device` and `stream` are ignored, too: torch's signature of a
// plug-in allocator has them. A pointer that no live block begins at becomes a line of the problems
// file.
void memprof_free(void *ptr, size_t size, int device, void *stream);

// 1 if a live block of an arena begins at `ptr`; *provided is the size of its chunk.
int memprof_owns(void *ptr, size_t *provided);

// The live block that contains `ptr`: start and chunk size. 0 if there is none.
int memprof_block_of(void *ptr, void **start, size_t *provided);

// The device of the live block that begins at `ptr`, and its bytes as torch counts them. 0 if there is none.
int memprof_torch_block(void *ptr, int *device, size_t *bytes);

// The block is also used on `stream`: after its free it is reused only when the work that is queued there
// at the free has finished.
void memprof_record_stream(void *ptr, void *stream);

// 1 if the live block that begins at `ptr` is used on another stream, so that its free will be pending.
int memprof_used_elsewhere(void *ptr);

// Waits for the device, then unmaps and releases all handles without a block. Returns their bytes.
size_t memprof_empty_cache(int device);

// The most bytes that all arenas of a device may map together; 0 = no limit.
void memprof_set_limit(int device, uint64_t bytes);

// Bytes of the largest free chunk of any arena of the device.
uint64_t memprof_largest_free(int device);

// Lets device `peer` read and write all memory of `device`, mapped now or later. 0: it cannot.
int memprof_enable_peer(int device, int peer);

// Lists the memory of a device: calls `segment` for each range of an arena without gaps, followed by
// `chunk` for each of the chunks that tile it. The device's lock is held meanwhile, so the functions
// must not call the hook.
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

// Writes an event: the caller has noted the live blocks of a pool, `blocks` of `bytes` together.
void memprof_checkpoint(int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes);

// Restores a checkpoint: frees all blocks of a pool, calls `freed` for each, and makes `blocks` live at
// their addresses again. 0: an address was not free; the problems file says which.
struct memprof_restored {
  void *stream;
  uint64_t addr, size, requested;
};
int memprof_restore(int device, uint64_t pool0, uint64_t pool1, const struct memprof_restored *blocks, size_t count, void *self,
                    void (*freed)(void *self, void *ptr));

// What the memory of a tag has after a pause and a resume.
enum memprof_restore {
  MEMPROF_RESTORE_NONE = 0,      // undefined content. Memory of CUDA graphs is not paused: replays would read it
  MEMPROF_RESTORE_HOST = 1,      // its content, copied to pinned slabs that are kept for later copies of any tag
  MEMPROF_RESTORE_PINNED = 2,    // its content, copied to one pinned piece, which the next copy uses again
  MEMPROF_RESTORE_PAGEABLE = 3,  // its content, copied to host memory that is not pinned and is freed at the resume
  MEMPROF_RESTORE_DISK = 4,      // its content, copied to a file (memprof_backup_folder)
  MEMPROF_RESTORE_DISCARD = 5,   // undefined content, and the caller states that CUDA graphs read no memory of the tag
};                               // before they write it: it is dead between replays

// Regions. What a thread allocates between begin and end has the tag (NULL: none), by which it can be
// paused. Regions nest. `restore` is an enum memprof_restore of what the region allocates; DISCARD and HOST count
// from then on for all memory of the tag that has NONE. While a thread
// waits for threads that work for it, as autograd's do, it can share its tag (1) with threads without a
// region, and end that (0).
int memprof_region_begin(const char *tag, int restore);
void memprof_region_end(void);
void memprof_region_share(int on);

// Of the settings of torch_memory_saver's C functions (api_saver.c), which this library serves, too: whether cudaMalloc
// of threads in its regions is served from arenas (1, the default: what that library calls preload mode), and whether
// what the calling thread allocates without a backup has MEMPROF_RESTORE_DISCARD (0).
void memprof_saver_serves(int on);
void memprof_saver_discard(int on);

// Pauses tags: releases their physical memory and keeps their addresses and blocks. `count` 0: all tags.
// On failure nothing has changed, and memprof_pause_message() says why. `unchanged`: the content is the
// same as after the last resume, so copies that it kept are used again. Blocks of paused tags may be
// freed.
int memprof_pause(const char *const *tags, size_t count, int unchanged);

// Resumes tags: maps memory at the same addresses, with the content that the restore mode promises. If the device or
// the limit lacks memory, free memory of other arenas is unmapped first. `flags` are those below.
int memprof_resume(const char *const *tags, size_t count, int flags);
enum {
  MEMPROF_KEEP_COPIES = 1,  // the copies stay for a later pause of unchanged content, and for memprof_backup_at
  MEMPROF_MAP_FREE = 2,     // pages without a block are mapped, too, if the device has the memory
};

// Sets *copy to where the content of device memory lies in host memory: [ptr, ptr+size) of a live block whose tag
// is paused, or was resumed with its copies kept. NULL: the tag is resident and has no copies, or they are in files.
// MEMPROF_NO_BACKUP: it is paused without a backup. MEMPROF_UNKNOWN_TAG: no live block with a tag has these bytes.
int memprof_backup_at(const void *ptr, size_t size, void **copy);

// The folder of backup files that are made from now on. NULL: $TMS_DISK_BACKUP_DIR, else $TMPDIR, else /tmp.
void memprof_backup_folder(const char *folder);

// Requests under a tag fail if they would leave less free memory on the device; 0: no such margin.
void memprof_tag_margin(uint64_t bytes);

// Results of memprof_pause, memprof_resume, memprof_region_begin and memprof_graph_shape.
enum {
  MEMPROF_OK = 0,
  MEMPROF_NOT_ACTIVE = 1,      // the hook does not serve this process, or only observes its allocator
  MEMPROF_UNKNOWN_TAG = 2,     // no region with the tag was ever begun
  MEMPROF_WRONG_STATE = 3,     // paused already, not paused, or without memory
  MEMPROF_IN_CAPTURE = 4,      // a graph is being captured
  MEMPROF_NO_BACKUP = 5,       // memory of graphs cannot be paused without a backup; or there is no copy
  MEMPROF_NO_HOST_MEMORY = 6,
  MEMPROF_NO_MEMORY = 7,       // the device or the limit lacks memory
  MEMPROF_DEVICE_FAILED = 8,   // the driver refused
  MEMPROF_LEAKED = 9,          // paused, but the driver did not release all handles
  MEMPROF_NO_DISK = 10,        // a backup file cannot be made, written or read
};

// Why the last such call of the calling thread failed. After a pause that succeeded: "", or a text that
// less memory has become free on the device than was released.
const char *memprof_pause_message(void);

// The bytes of a tag.
struct memprof_tag_usage {
  uint64_t live;    // chunks of live blocks, paused or not
  uint64_t mapped;  // mapped now
  uint64_t paused;  // that a resume maps
  uint64_t copied;  // of copies in host memory and in files
};
void memprof_tag_usage(const char *tag, struct memprof_tag_usage *usage);

// Says whether the allocator of a framework that has the tag's memory (vLLM's) copies it to the host when it unmaps it,
// for the events of its pauses and resumes.
void memprof_tag_offloaded(const char *tag, int offloaded);

// 1 if any tag has memory, mapped or paused.
int memprof_tags_in_use(void);

// One counter, as torch's Stat: bytes or blocks. `allocated` and `freed` are sums since the last reset.
struct memprof_stat {
  int64_t current, peak, allocated, freed;
};

struct memprof_stats {
  struct memprof_stat allocation;       // live blocks
  struct memprof_stat requested_bytes;  // T: bytes that live allocations requested
  struct memprof_stat allocated_bytes;  // C: bytes of their chunks
  struct memprof_stat active;           // live and pending blocks
  struct memprof_stat active_bytes;     // bytes of their chunks
  struct memprof_stat segment;          // mapped handles
  struct memprof_stat reserved_bytes;   // R: mapped bytes
  struct memprof_stat inactive_bytes;   // R without active_bytes
  struct memprof_stat torch_bytes;      // live blocks as torch counts them: each request rounded up to 512 bytes
  struct memprof_stat torch_active;     // live and pending blocks, counted so
  int64_t retries;                      // requests that were tried again after a reclaim
  int64_t ooms;                         // requests that failed
  int64_t device_allocs, device_frees;  // handles created, released
  int64_t syncs;                        // waits for the device, and calls of memprof_empty_cache
};

void memprof_get_stats(int device, struct memprof_stats *stats);
void memprof_reset_peak(int device);
void memprof_reset_accumulated(int device);

// Writes a name under which another process of the same user, which has the hook, can open the block at
// `ptr`: less than 128 bytes of text. 0: no live block begins there, or it cannot be shared.
int memprof_share(void *ptr, char *text, size_t size);

// The same for all that a tag has mapped on a device: calls `each` for every resident arena of the tag, with
// its name, its first address and its bytes of addresses, unmapped ones included. Returns how many. The tag must
// not be paused, freed or grown until the other process has opened them.
int memprof_share_tag(const char *tag, int device, void *self, void (*each)(void *self, const char *name, uint64_t base, uint64_t span));

// Maps the block or the arena with that name, readable and writable from `device`, and returns its first
// address. NULL: it does not exist any more, or cannot be mapped. `close` unmaps it.
void *memprof_open_shared(const char *text, int device);
void memprof_close_shared(void *ptr, int device);

// Graph memory: one physical memory for the graphs of many shapes, of which one replays at a time. Each
// shape has a range of addresses that maps all of it, so it is as large as the largest shape, rounded up
// to pages, whatever the order of the captures.
//
// `open` returns the number of a new memory of the device, from 1; 0: memprof_graph_message() says why not.
// Each range gets `reservation` bytes of addresses; 0: as many as the device has memory. A closed memory
// ends with its last range.
uint32_t memprof_graph_memory_open(int device, uint64_t reservation);
void memprof_graph_memory_close(int device, uint32_t number);

// Gives a range to a pool that has no memory yet, and holds the pool: its requests are served from the range
// from now on. The range ends when nobody holds the pool and it has no live block. On failure nothing has
// changed, and memprof_graph_message() says why.
int memprof_graph_shape(int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1);
const char *memprof_graph_message(void);

// What a graph memory uses (0: there is none), and the bytes handed out of the range of a pool.
struct memprof_graph_usage {
  uint64_t physical;   // bytes of the device
  uint64_t addresses;  // bytes of reserved addresses
  uint64_t ranges;     // how many
};
int memprof_graph_usage(int device, uint32_t number, struct memprof_graph_usage *usage);
uint64_t memprof_graph_extent(int device, uint64_t pool0, uint64_t pool1);

// The name of captures that the calling thread begins from now on (NULL: none), their pool, and the bytes of
// the persistent inputs that they use (0: not known), for the trace.
void memprof_capture_name(const char *name, uint64_t pool0, uint64_t pool1, uint64_t inputs);

// The functions of torch's plug-in allocator (torch.cuda.memory.CUDAPluggableAllocator), for a torch that the
// shim cannot be compiled for. memprof_free and memprof_record_stream belong to them, too.
//
// `prepare` finds torch's exception for a failed request in a loaded library, such as torch._C. 0: it is not
// there, or the hook does not serve this process; then `malloc` returns NULL for a failed request, in place of
// throwing c10::OutOfMemoryError.
int memprof_plugin_prepare(const char *library);
void *memprof_plugin_malloc(size_t size, int device, void *stream);
void memprof_plugin_pool_begin(int device, uint64_t pool0, uint64_t pool1, void *filter);  // a std::function<bool(cudaStream_t)>
void memprof_plugin_pool_end(int device, uint64_t pool0, uint64_t pool1);
// From now on the pool takes its memory from a plug-in's own functions, with the parameters of `malloc` above and of
// memprof_free. Returns 0, with no effect, if it is not held or has memory.
int memprof_plugin_pool_source(int device, uint64_t pool0, uint64_t pool1, void *allocate, void *release);
void memprof_plugin_reset(void);                          // memprof_empty_cache of all devices
void *memprof_plugin_base(void *ptr, size_t *size);       // where the block that contains `ptr` begins; else `ptr`

// Writes the first `most` chunks of memprof_walk to *chunks, and returns how many there are.
struct memprof_listed {
  uint64_t addr, size, requested, stream, pool0, pool1;
  int state;  // enum memprof_chunk_state
  int first;  // 1: a segment begins here
};
size_t memprof_list(int device, struct memprof_listed *chunks, size_t most);

// Memory that was mapped or unmapped.
struct memprof_mapping {
  int device;
  void *stream;
  uint64_t pool[2];  // 0, 0: none
  uint64_t addr, bytes;
  int mapped;   // 0: unmapped
  int segment;  // 1: of a pool with an allocator of its own (memprof_pool_source), which has returned it as a whole
};

// Sets a function that is called after memory was mapped or unmapped, with the device's lock held. Meanwhile requests of its thread go to CUDA,
// and frees wait for its end.
void memprof_set_mapping_observer(void (*observer)(const struct memprof_mapping *mapping));

// The same for a block whose free was pending, when it can be reused.
void memprof_set_reuse_observer(void (*observer)(int device, uint64_t addr));

// Sets a function that is called, without any lock, before a request fails. It may free what the framework
// keeps without need. The request is then tried once more.
void memprof_set_last_resort(int (*give_up)(void));

// Why the last request of the calling thread failed, in one line. It begins with torch's words, which
// programs look for, and ends with what memprof adds: the free memory of the request's arena, the largest
// free chunk, and who uses the rest. Never NULL.
const char *memprof_oom_message(void);

// The driver's error (CUresult) for which it failed, if that is not lack of memory: work on the GPU has failed before, and the context is
// lost. 0: it lacks memory.
int memprof_oom_error(void);

// Marks: the end of an iteration, and the begin and end of a phase. The text may be "" or NULL. The end of a phase
// that has not begun is a line of the problems file, and no event.
void memprof_iteration(const char *label);
void memprof_phase_begin(const char *name);
void memprof_phase_end(const char *name);

// 1 while a thread of the hook has yet to unmap what policy trim=iteration wants after the iterations so
// far: work of a stream that is not done, a capture, or a busy machine may delay it. Then 0, also under other policies.
int memprof_trimming(void);

// The context of the calling thread's allocations from now on, fields such as "module=fc"; NULL: none.
void memprof_set_context(const char *context);

// The same, cheaper, for callers that change it often: the number of a text (0 for none), and the calling
// thread's cell. Storing a number into the cell sets the context; the cell is valid while the thread
// lives.
uint32_t memprof_context(const char *text);
uint32_t *memprof_context_cell(void);

// Labels the live block that contains `ptr` with what it holds, such as "category=weights\tname=fc.bias".
// Other addresses, 0 among them, are ignored. label_many takes numbers of memprof_context.
void memprof_label(void *ptr, const char *context);
void memprof_label_many(size_t count, const uint64_t *addresses, const uint32_t *contexts);

// KV caches: an engine that serves a language model reports how it divides a cache among its sequences.
// Sizes are slots, each for one token. The engine numbers the sequences of each cache. trace/event.go
// says what each event means. Calls for one cache are made in order. The hook writes events and keeps
// nothing.

// Describes a cache of `slots` slots on a device (0: it grows and shrinks with what is reserved), each of
// `token_bytes` bytes, with the event's fields. Returns its number for the other calls; 0, which they
// ignore, before the first use of CUDA.
uint64_t memprof_kv_cache(int device, uint64_t slots, uint64_t token_bytes, const char *fields);

enum { MEMPROF_KV_ALL = -1 };  // the sequence that stands for all of the cache

// The sequence gets slots. `first` is their first block in a paged cache, or the number of padding slots in
// a contiguous one. `prompt`: the tokens of its prompt; 0: not known.
void memprof_kv_reserve(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, uint64_t prompt);

// The sequence uses blocks that other sequences use, or that were kept. `position` is the block of the
// sequence that they replace; -1: they come behind those that it has.
void memprof_kv_share(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position);

// Tokens fill the next slots of the sequence; 0 tokens: it has ended.
void memprof_kv_append(uint64_t cache, int64_t sequence, uint64_t tokens);

// The same for many sequences at once.
void memprof_kv_append_many(uint64_t cache, size_t count, const int64_t *sequences, const uint64_t *tokens);

// The sequence gives up its slots, of which the first `kept` keep their content for others.
void memprof_kv_free(uint64_t cache, int64_t sequence, uint64_t kept);

// The sequence's content is copied to the host, and its blocks are free; then it is copied back into blocks, in one
// call or several. Of a paged cache.
void memprof_kv_swap_out(uint64_t cache, int64_t sequence);
void memprof_kv_swap_in(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots);

// The content of kept blocks is dropped; the cache has ended.
void memprof_kv_drop(uint64_t cache, uint64_t first, uint64_t slots);
void memprof_kv_end(uint64_t cache);

// The number of the call stack in which `frame`, "function (file:line)", is called from the stack `parent`;
// parent 0: an outermost frame. Returns 0 if there are 2^20 stacks already.
uint32_t memprof_stack_node(uint32_t parent, const char *frame);
// The same for an event of that tick (see below), which is reported later.
uint32_t memprof_stack_node_at(uint64_t tick, uint32_t parent, const char *frame);

// From now on the Python stacks of requests are recorded (1) or not (0), whatever --stacks says. The caller holds no lock of a native
// allocator.
void memprof_stacks(int wanted);

// From now on CUDA calls of the calling thread are recorded with this context, such as
// "call=cuMemAlloc\tlibrary=libnccl.so.2", in place of the caller's own; NULL ends that. `memprof lab rerun`
// uses it, which repeats recorded calls of other libraries.
void memprof_call_as(const char *context);

// Observing: another allocator serves the job, and code beside it reports its events by memprof_watch_*
// functions, as the shim does for torch's native allocator from its trace tracker. The events of a device are
// reported one at a time, in the order of the allocator's decisions, while the caller holds the allocator's
// lock of the device. The calls wait for no thread that may wait for that lock, but for a short time
// after a mark.
//
// `tick` is the processor's time stamp counter at the event; 0: now; MEMPROF_AT and a time: nanoseconds of CLOCK_MONOTONIC.
// Blocks and segments belong to a stream and a pool.
struct memprof_watch;
#define MEMPROF_AT ((uint64_t)1 << 63)

// The allocator's own sums of a device, in bytes.
struct memprof_watch_sums {
  uint64_t provided;       // C: blocks of live allocations
  uint64_t provided_peak;  // the greatest C since the allocator began to count
  uint64_t active;         // the same as `provided` and blocks whose free is under way
  uint64_t reserved;       // R: segments; MEMPROF_SUMS_UNKNOWN: the sums are not known now, and are not recorded
};
#define MEMPROF_SUMS_UNKNOWN UINT64_MAX

// A function of the allocator that reads its sums. The calls below call it while the calling thread holds
// the allocator's lock of the device; marks call it without.
typedef void memprof_watch_read(int device, struct memprof_watch_sums *sums);

// Begins to observe a device of the allocator with that name, before its first event; later calls return the
// same pointer. NULL: the process is not recorded.
struct memprof_watch *memprof_watch_device(int device, const char *allocator, memprof_watch_read *read);

// The allocator has served a request of `size` bytes.
void memprof_watch_alloc(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);
// The job has freed the block.
void memprof_watch_free(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);
// The block can be reused. If no other stream has used it, this is the next event after its free.
void memprof_watch_free_done(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);

// The segment at `addr` was allocated before its device was observed, so the trace may have it as another library's. From
// here on it is the allocator's; its map follows. `small`: it is of the pool of small blocks. All segments come first, by address, then their
// blocks: those with higher addresses of a segment come first.
void memprof_watch_adopt(struct memprof_watch *watch, uint64_t addr, int small);
// The same for a live block with its whole size; its alloc follows.
void memprof_watch_adopt_block(struct memprof_watch *watch, uint64_t addr, uint64_t size);

// The allocator has mapped or allocated a segment. `joins`: a block may span adjacent segments.
void memprof_watch_map(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins);
// The allocator unmaps or frees a segment without blocks. Its sums exclude it already if it `joins`, and
// still include it otherwise.
void memprof_watch_unmap(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins);

// A request has failed; `size` may be what the allocator has rounded it up to.
void memprof_watch_oom(struct memprof_watch *watch, uint64_t tick, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1);

// Writes the sums of all devices of native allocators now. The caller does not hold the allocator's lock.
void memprof_watch_sample(void);

// Returns the default stream of a device. Both have torch's layout: that of c10::Stream, and that of c10::Device, a type in the low byte and
// an index above it. In a dry run it is the function getStream of CUDA's guard (c10::impl::DeviceGuardImplInterface).
struct memprof_torch_stream {
  uint64_t device;
  int64_t id;
};
struct memprof_torch_stream memprof_torch_stream(const void *guard, uint16_t device);

// Adds a framework, such as "torch 2.11.0+cu130", to the recording.
void memprof_note_framework(const char *text);

// Adds an error of memprof's to the problems file, which `memprof record` prints when the job has ended.
void memprof_problem(const char *text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
