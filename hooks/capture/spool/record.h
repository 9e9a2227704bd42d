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
// format in C; trace/spool.go is its only other reader, and a test compares both.
#ifndef MEMPROF_RECORD_H
#define MEMPROF_RECORD_H

#include <stdint.h>

enum { MEMPROF_SPOOL_VERSION = 1 };
enum { MEMPROF_RECORD_BYTES = 64, MEMPROF_SEGMENT_RECORDS = 65536 };

// What happened. The numbers are part of the format; names are those of the
// trace's `kind` column (trace/kind.go says what each column holds for each kind).
enum memprof_kind {
  MEMPROF_ARENA = 1,         // an arena was made: addr, provided = reservation; requested = limit
  MEMPROF_ALLOC = 2,         // a chunk was handed out
  MEMPROF_FREE = 3,          // the job freed it
  MEMPROF_FREE_DONE = 4,     // a freed chunk that other streams used became reusable
  MEMPROF_MAP = 5,           // physical memory was mapped: a growth at the arena's end, or a remap inside it; requested = 0: before a request needs it
  MEMPROF_UNMAP = 6,         // free pages were unmapped; requested > 0: for the request under way
  MEMPROF_GROW_FAILED = 7,   // the device refused a growth of `requested` bytes
  MEMPROF_RECLAIM = 8,       // an attempt failed (arena), or another library needs memory (no arena): unmaps follow
  MEMPROF_OOM = 9,           // the request failed
  MEMPROF_ITERATION = 10,    // an iteration ended; requested = its number, from 0
  MEMPROF_PHASE_BEGIN = 11,
  MEMPROF_PHASE_END = 12,
  MEMPROF_STREAM_USE = 13,   // a live chunk is also used on `stream`
  MEMPROF_POOL_BEGIN = 14,
  MEMPROF_POOL_END = 15,
  MEMPROF_POOL_RELEASE = 16,
  MEMPROF_CHECKPOINT = 17,   // the live chunks of a pool were noted: requested = how many
  MEMPROF_RESTORE = 18,      // a chunk of a checkpoint is live again, at its place
  MEMPROF_PAUSE = 19,
  MEMPROF_RESUME = 20,
  MEMPROF_CAPTURE_BEGIN = 21,
  MEMPROF_CAPTURE_END = 22,
  MEMPROF_EXTERNAL_ALLOC = 23, // another library allocated memory; context = the call
  MEMPROF_EXTERNAL_FREE = 24,
  MEMPROF_DEVICE_USED = 25,  // the device's memory: provided = used bytes, requested = total bytes, for an arena those that it may use
  MEMPROF_MAP_FAILED = 26,   // the device refused to remap [addr, addr+requested)
  MEMPROF_STACK = 27,        // a node of the tree of call stacks: requested = its number, provided = its parent's, context = the frame
  MEMPROF_LABEL = 28,        // what the live chunk at addr holds; context = fields
  MEMPROF_STATISTICS = 29,   // another allocator's own sums: provided = C, requested = R, addr = its greatest C
  MEMPROF_OVERHEAD = 30,     // provided = bytes, signed, that the device's use grew by; context = what was loaded
  MEMPROF_ALIAS = 31,        // an arena of a graph memory's range took `provided` bytes of its store at offset `requested`, seen at addr
  MEMPROF_UNALIAS = 32,      // it returned them
  MEMPROF_SHORTAGE = 33,     // from now on the arena's allocator counts pages, since the device is short of memory
  MEMPROF_SHRINK = 34,       // the live chunk at addr lost its slack: it has `provided` bytes from now on
  MEMPROF_REGISTER = 35,     // others know the `provided` bytes at addr by their physical memory: it stays mapped there
  MEMPROF_DEREGISTER = 36,   // one registration of these bytes is over
  MEMPROF_TAKE = 37,         // a request looked for free pages of the arena in the context: requested = bytes wanted
  MEMPROF_FENCE = 38,        // all work is over that was queued before the first `provided` frees of the arena
  MEMPROF_KV_RESERVE = 40,   // a sequence got slots of a KV cache
  MEMPROF_KV_APPEND = 41,    // tokens filled slots of a sequence
  MEMPROF_KV_SHARE = 42,     // a sequence uses blocks of other sequences, or kept ones
  MEMPROF_KV_FREE = 43,      // a sequence gave up its slots
  MEMPROF_KV_CACHE = 44,     // describes a KV cache
  MEMPROF_LOST = 63,         // written by readers only: a slot claimed by a process that died
  MEMPROF_STRING = 255,      // not an event: a piece of a string (struct memprof_string)
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
