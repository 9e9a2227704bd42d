// Package snapshot makes a recording of a snapshot that PyTorch wrote with
// torch.cuda.memory._dump_snapshot: a pickle, gzipped or not, of protocol 2 to 5.
//
// # What becomes of it
//
//	in the snapshot                        in the recording
//	─────────────────────────────────────  ──────────────────────────────────────────────
//	a device with entries or segments      a process, gpuN; of several files rankN
//	stream, pool, small or large, pages    an arena each
//	segment_alloc, segment_map             map
//	segment_free, segment_unmap            unmap; before those that no request made: reclaim, an emptied cache
//	alloc                                  alloc; provided is the block that torch used
//	free_requested, then free_completed    free
//	free_requested …… free_completed       stream_use, free, …… free_done
//	oom                                    oom
//	frames                                 stack events, and stack= of the request
//	user_metadata                          module= of the request
//	external_annotations, user_defined     phases; "iteration", or the steps of the first
//	                                       optimizer that has any, end iterations
//	frames of backward, an optimizer, ...  phases data, forward, backward, optimizer; labels of weights, loss,
//	                                       communication, KV caches and workspaces, by the table frameRoles
//	a block from before the history        a label, by where the job frees it or by its size, see older.go
//
// Layouts of torch 1.13 to 2.14 are read: of 2.6 and 2.11 as torch wrote them, of the others as its sources say (no such
// torch was at hand). Torch 1.13 writes the list of segments alone, as torch.cuda.memory_snapshot does:
// its recording is what was held at that moment. Left out are pinned host memory (host_segments and
// host_traces, from 2.13 on) and what 2.0 calls cpp_frames.
//
// Addresses are followed, never simulated. An entry has the bytes that were asked for; the
// bytes of the block follow from torch's rules (package caching): the rounded size in small
// and in expandable segments, and otherwise that and what was too small behind it to be split
// off. Of blocks that are alive at the end the snapshot says the size itself, and a file of `memprof export` says that
// of each block (block_size), whose arenas serve requests of all sizes.
//
// A job may record no entries of segments (skip_actions). A block that no segment of the file has then gets memory of its own
// while it lives, so that reserved memory is a lower bound.
//
// # Where the trace begins
//
// Torch keeps the newest entries only. What ended in the trace, or is alive at its end, and
// never began in it, was there before: it is put before the first entry, with its memory. From
// the first entry on the recording is exact, but for the size of such blocks in large segments that
// were freed in the trace: where no block behind them shows their end it may be up to 1 MiB more. [Result] counts what was there, and entries that contradict
// others: torch copies its traces before its segments, without a lock over both.
//
// # Private pools
//
// Entries of torch 2.11 do not name their pool. Memory that is there at the end is of the pool that
// its segment names, and so is the entry that took it. Memory that torch released before the end
// is of a private pool if it was taken for a request that memory of the default pool had room for (see poolOf), else of the default pool.
//
// # Memory
//
// The file is decoded once, to find what was there. The decoding keeps what is alive, the texts, the
// stacks and a few numbers for each entry, and at most [Budget] bytes: an entry goes to a file of its own as
// soon as it is complete, of which the events are written afterwards. Package pickle refuses all opcodes that import or call
// anything.
package snapshot
