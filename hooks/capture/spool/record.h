// record.h - the spool: how events leave the profiled process.
//
// A recorded process owns one directory inside $MEMPROF_SPOOL, named
// p<pid>.<start_ns>, mode 0700:
//
//   p4711.88123456789/
//     process       one page: who is recording, and how far it has come (struct memprof_process)
//     000000.seg    65,536 records of 64 bytes, preallocated before it is mapped
//     000001.seg    the next 65,536 ...
//     problems      text, one line for each error of the hook, then zeros
//     strings       written by the collector: texts of segments it has deleted
//
// A slot is claimed by an atomic add on process.claimed; slot s lives in segment
// s / 65536 at record s % 65536. The claimer fills its record and stores `commit`
// last (release order), under the lock of the arena the event belongs to and
// before the block can be reused: the order of slots is the order of decisions.
// The pages are shared file pages, so a committed record outlives SIGKILL of
// either side. A death leaves at most one uncommitted slot per thread that was
// inside an arena, and no committed record depends on it.
//
// `process` is locked for as long as the process lives: by F_OFD_SETLK (F_WRLCK, the whole
// file), or by flock where the kernel has no such locks. The lock belongs to the open file,
// which the process's mapping of the page keeps open: descriptors that the job closes do not
// matter, and forked children do not hold the lock. A reader tests it by F_GETLK, which also sees the
// POSIX locks of older hooks, and by a flock that does not wait; both work in any PID namespace. If the
// file is unlocked, no further slot will be committed.
//
// All numbers are little-endian. This header is the only description of the
// format in C; trace/spool/record.go is its only other reader, and a test compares both.
#ifndef MEMPROF_RECORD_H
#define MEMPROF_RECORD_H

#include <stdint.h>

enum { MEMPROF_SPOOL_VERSION = 1 };
enum { MEMPROF_RECORD_BYTES = 64, MEMPROF_SEGMENT_RECORDS = 65536 };

// What happened. The numbers are part of the format; names are those of the trace's `kind` column.
// From here to the closing brace the lines are written from trace/kind.go, which describes the kinds:
//
//   go test ./cmd/memprof -run TestKindsOfTheHook -update
enum memprof_kind {
  // an arena was made
  //   addr       start of the address reservation
  //   requested  most that it may reserve
  //   provided   size of the address reservation
  //   context    what it is for, and its policy
  MEMPROF_ARENA = 1,
  // a chunk was handed out
  //   addr       chunk
  //   requested  the request
  //   provided   size of the chunk
  //   context    origin
  MEMPROF_ALLOC = 2,
  // the job freed a chunk
  //   addr       chunk
  //   requested  the request
  //   provided   size of the chunk
  //   context    who frees, in an imported recording
  MEMPROF_FREE = 3,
  // a freed chunk that other streams used became reusable
  //   addr       chunk
  //   requested  the request
  //   provided   size of the chunk
  //   context    who frees, in an imported recording
  MEMPROF_FREE_DONE = 4,
  // physical memory was mapped: a growth at the end of the arena, or pages inside it again
  //   addr       start
  //   requested  size of the request that needs it; 0: none
  //   provided   mapped
  //   context    who requests, in an imported recording
  MEMPROF_MAP = 5,
  // free pages were unmapped
  //   addr       start
  //   requested  size of the request that maps as much elsewhere; 0: for no request
  //   provided   unmapped
  //   context    who unmaps, in an imported recording
  MEMPROF_UNMAP = 6,
  // the device refused a growth
  //   requested  refused by the device
  MEMPROF_GROW_FAILED = 7,
  // an attempt failed, or, without an arena, another library needs memory: unmaps follow
  //   requested  wanted
  //   context    who wants memory: framework, empty_cache, request; waited: one of these, once the device was waited
  //              for
  MEMPROF_RECLAIM = 8,
  // a request failed
  //   requested  the request
  //   provided   free memory of the device, of an imported recording; 0: not known
  //   context    origin
  MEMPROF_OOM = 9,
  // an iteration ended
  //   requested  number of the iteration that ends, from 0
  //   context    label
  MEMPROF_ITERATION = 10,
  // a phase began
  //   context    name, then uses=: the tags that the phase needs, with blanks between
  MEMPROF_PHASE_BEGIN = 11,
  // a phase ended
  //   context    that of its phase_begin
  MEMPROF_PHASE_END = 12,
  // the stream of the event uses a live chunk of another stream
  //   addr       chunk
  MEMPROF_STREAM_USE = 13,
  // requests go to a pool from now on
  //   context    the pool
  MEMPROF_POOL_BEGIN = 14,
  // requests no longer go to a pool
  //   context    the pool
  MEMPROF_POOL_END = 15,
  // nothing uses a pool any more; the last event of the arena
  //   context    the pool
  MEMPROF_POOL_RELEASE = 16,
  // the live chunks of a pool were noted
  //   requested  number of live chunks
  //   provided   in these chunks
  //   context    the pool
  MEMPROF_CHECKPOINT = 17,
  // a chunk of a checkpoint is live again, at its place
  //   addr       chunk
  //   requested  the request
  //   provided   size of the chunk
  //   context    origin
  MEMPROF_RESTORE = 18,
  // the memory of a tag was unmapped; its addresses stay
  //   addr       duration, ns
  //   requested  unmapped; 0: it failed, or nothing was mapped
  //   provided   copied to the host
  //   context    the tag, and by=source where the source of a pool did it; if it failed, why
  MEMPROF_PAUSE = 19,
  // the memory of a tag was mapped again
  //   addr       duration, ns
  //   requested  mapped; 0: it failed, or nothing was left
  //   provided   copied from the host
  //   context    the tag, by=source where the source of a pool did it, and free=1 where pages without a block were
  //              wanted, too; if it failed, why
  MEMPROF_RESUME = 20,
  // the capture of a CUDA graph began
  //   requested  number of captures under way
  //   context    the graph
  MEMPROF_CAPTURE_BEGIN = 21,
  // the capture of a CUDA graph ended
  //   requested  number of captures under way
  //   context    the graph
  MEMPROF_CAPTURE_END = 22,
  // another library allocated memory
  //   addr       address
  //   requested  the request
  //   provided   the same
  //   context    the CUDA call of another library
  MEMPROF_EXTERNAL_ALLOC = 23,
  // another library freed memory
  //   addr       address
  //   requested  of a segment that a native allocator had before its first event: 1 if it is of the small pool
  //   provided   of a block that it had: the block's size; its alloc comes next
  //   context    the CUDA call of another library, or the native allocator
  MEMPROF_EXTERNAL_FREE = 24,
  // the used memory of a device was read
  //   requested  all memory of the device
  //   provided   used
  //   context    without an arena: by whom
  MEMPROF_DEVICE_USED = 25,
  // the device refused to map pages inside an arena again
  //   addr       start
  //   requested  refused by the device
  MEMPROF_MAP_FAILED = 26,
  // a node of the tree of call stacks
  //   requested  number of the node, from 1
  //   provided   number of its parent, 0: none
  //   context    the frame
  MEMPROF_STACK = 27,
  // what a live chunk holds
  //   addr       chunk
  //   context    what it holds
  MEMPROF_LABEL = 28,
  // the sums of an allocator that is observed
  //   addr       greatest provided so far
  //   requested  reserved
  //   provided   provided
  //   context    the native allocator
  MEMPROF_STATISTICS = 29,
  // driver overhead changed
  //   provided   growth of driver overhead, signed
  //   context    what was loaded, and how it was measured
  MEMPROF_OVERHEAD = 30,
  // a range of a graph memory got pages of its store
  //   addr       start
  //   requested  offset in the store
  //   provided   mapped there
  //   context    arena of the store
  MEMPROF_ALIAS = 31,
  // a range of a graph memory returned pages
  //   addr       start
  //   requested  offset in the store
  //   provided   unmapped there
  //   context    arena of the store
  MEMPROF_UNALIAS = 32,
  // the device is short of memory: the allocator of the arena counts pages from now on
  MEMPROF_SHORTAGE = 33,
  // a live chunk lost its slack
  //   addr       chunk
  //   requested  the request
  //   provided   size of the chunk from now on
  MEMPROF_SHRINK = 34,
  // others know memory by its physical pages, which stay mapped where they are
  //   addr       start
  //   provided   registered
  //   context    the call by which they know it
  MEMPROF_REGISTER = 35,
  // one registration of memory is over
  //   addr       start
  //   provided   registered
  MEMPROF_DEREGISTER = 36,
  // a request looked for free pages of another arena
  //   requested  wanted, before the arena of the request maps more
  //   context    the other arena
  MEMPROF_TAKE = 37,
  // all work on all streams is over that was queued before frees of the arena
  //   provided   how many of its frees, counted from the first
  MEMPROF_FENCE = 38,
  // a sequence got slots of a KV cache
  //   addr       sequence
  //   requested  first block, or padding slots
  //   provided   slots
  //   context    tokens of the prompt; whether it comes back from the host
  MEMPROF_KV_RESERVE = 40,
  // tokens filled slots of a sequence
  //   addr       sequence
  //   requested  tokens
  MEMPROF_KV_APPEND = 41,
  // a sequence uses blocks of other sequences, or kept ones
  //   addr       sequence
  //   requested  first block
  //   provided   slots
  //   context    its place in the block table
  MEMPROF_KV_SHARE = 42,
  // a sequence gave up its slots
  //   addr       sequence
  //   requested  slots kept, or the first block
  //   provided   slots
  //   context    whether it goes to the host
  MEMPROF_KV_FREE = 43,
  // describes a KV cache
  //   requested  slots
  //   provided   bytes of a token
  //   context    the cache
  MEMPROF_KV_CACHE = 44,
  // what the process, or memprof's allocator on a device, has counted so far
  //   addr       events before this one, requests, frees, or driver calls
  //   requested  of the requests, or of the frees; calls: their duration, ns; events: 1 for the last of the process
  //   provided   calls: how long the GPU was waited for, ns
  //   context    what is counted: events, requests, frees, calls
  MEMPROF_TOTALS = 45,
  // a process died between claiming this slot and filling it; written by readers of a spool only
  MEMPROF_LOST = 63,
  // not an event: a piece of a string (struct memprof_string)
  MEMPROF_STRING = 255,
};

// commit = MEMPROF_COMMITTED | kind; any other value means "not committed".
#define MEMPROF_COMMITTED 0x4d500000u

#define MEMPROF_NO_ARENA 0xffffffffu
#define MEMPROF_NO_DEVICE 0xffffu

struct memprof_record {
  uint32_t commit;
  uint16_t device;     // CUDA ordinal, or MEMPROF_NO_DEVICE
  uint16_t reserved0;  // 0
  uint64_t time_ns;    // CLOCK_MONOTONIC
  uint64_t addr;       // device address
  uint64_t requested;  // bytes asked for
  uint64_t provided;   // bytes of the chunk (or mapping) handed out
  int64_t stream;      // stream handle as an integer, 0 = default
  uint32_t arena;      // id, or MEMPROF_NO_ARENA
  uint32_t context;    // string id, 0 = none
  uint32_t thread;     // kernel thread id
  uint32_t reserved1;  // 0
};

// Strings are spooled once, before the first record that names them. A string
// longer than 48 bytes takes several records; each says where it belongs.
struct memprof_string {
  uint32_t commit;
  uint16_t offset;     // of this piece within the string, bytes
  uint16_t length;     // of this piece, 1..48
  uint32_t id;         // 1, 2, 3, ... in order of first use
  uint32_t total;      // bytes of the whole string, at most 4096
  char text[48];
};

enum memprof_state {
  MEMPROF_RECORDING = 0,
  MEMPROF_CLOSED = 1,   // the process exited in order
  MEMPROF_STOPPED = 2,  // the hook stopped recording (stop_errno, stop_reason); the job continues
};

// Libraries that `memprof record` sets environment variables for.
enum memprof_library {
  MEMPROF_NCCL = 1,
  MEMPROF_XLA = 2,
};

struct memprof_process {
  char magic[8];             // "MEMPROFP"
  uint32_t version;          // MEMPROF_SPOOL_VERSION
  uint32_t pid;
  uint64_t start_monotonic_ns;
  uint64_t start_realtime_ns;
  uint32_t record_bytes;     // MEMPROF_RECORD_BYTES
  uint32_t segment_records;  // MEMPROF_SEGMENT_RECORDS
  uint64_t claimed;          // slots claimed so far (may run past stop_slot)
  uint32_t state;            // enum memprof_state
  uint32_t stop_errno;
  uint64_t stop_slot;        // when stopped: first slot that has no segment
  int32_t rank;              // $RANK, or -1
  int32_t local_rank;        // $LOCAL_RANK, or -1
  int32_t world_size;        // $WORLD_SIZE, or -1
  int32_t local_world_size;  // $LOCAL_WORLD_SIZE, the ranks on this host, or -1; 0 from an older hook
  char stop_reason[256];     // text, NUL-terminated
  char command[1024];        // argv joined by spaces, UTF-8, cut to fit, NUL-terminated
  char frameworks[512];      // "torch 2.11.0+cu130; ...", set by the shim, NUL-terminated
  uint32_t libraries;        // set of enum memprof_library, seen in the process so far; 0 from an older hook
  uint32_t unused;           // 0
};

#endif
