// Package torchalloc is PyTorch's own CUDA caching allocator: a model of it, and what recordings say by that model.
//
//   - [Allocator] is the model. Fed with the requests of a job, it has the same segments, blocks and reserved
//     bytes as torch itself. It knows nothing of traces, files or GPUs; a [Device] gives it addresses and memory.
//   - [Replay] gives it the requests of any recording: what the job would have reserved without memprof, with and
//     without expandable segments, and on a smaller card.
//   - [Follower] leads it through a recording that only observed torch (record --allocator native): each request
//     has to get the recorded address from the recorded segments. Then the size of each block is known, too.
//   - [Sums] keeps what such a recording says without a model: the sums that torch reported now and then.
//
// # The model
//
// What follows is the specification of the model. It was read from the sources of torch 2.6 and 2.11 and
// holds for both, except where a rule names a version (see [Version]).
//
// # Terms
//
//	segment   what one cudaMalloc returned, or one address reservation (an expandable segment)
//	block     a range of a segment; the blocks of a segment tile it
//	page      the unit in which an expandable segment maps memory
//	pool      blocks of one size class: small or large. There is a default pair of pools, and a
//	          pair for each private pool (a CUDA graph's, a MemPool's)
//	scope     from [Allocator.BeginPool] to [Allocator.EndPool]: requests go to a private pool
//	idle      of a block: not allocated, no event pending, no stream recorded. Only idle blocks
//	          merge and serve requests
//
// # Sizes
//
//	unit of blocks                512 B
//	small pool                    rounded size of at most 1 MiB
//	segment for a small request   2 MiB, also the page of the small pool
//	segment below 10 MiB          L = 20 MiB, also the page of the large pool
//	segment from 10 MiB on        the rounded size, up to a multiple of 2 MiB
//	reservation                   total + total/8 of the device, up to a multiple of the page
//
// A request of n bytes is rounded up to a multiple of 512. Where roundup_power2_divisions gives
// n the divisor d > 1, and n > 512 d, it is instead rounded up to a multiple of f/d, f being the
// greatest power of two that is at most n. The table has one entry for each power of two from
// 1 MiB to 32 GiB; lesser and greater requests use the first and the last.
//
// # Serving a request
//
//  1. With no scope open, blocks whose free was deferred in a scope are freed (see Streams).
//  2. Round. The pool is that of the scope which accepts the stream: the newest, in 2.6 the
//     oldest. Without one it is the default pair's.
//  3. Search. Free blocks are ordered by (stream, size, address); from 2.13 on by (stream,
//     size, creation of the segment, address). The candidate is the first block of the stream
//     with at least the rounded size.
//     With expandable segments on, a block counts with the unmapped block behind it: while the
//     candidate is expandable and the next block in order is of the same stream and strictly
//     smaller, so counted, that one is the candidate. With them off, expandable blocks are skipped.
//     S is max_split_size. A candidate of at least S is refused to a request below S, and to
//     one of at least S where it is larger by max_non_split_rounding or more. A refused
//     candidate ends the search.
//  4. Nothing found: garbage collection, if its threshold and a limit are set. Then new memory:
//     refused where reserved plus the segment size exceeds the limit; else a segment from the
//     device or, with expandable segments on, pages.
//  5. Refused: release oversize blocks and ask for new memory again, if S is set; then, with no
//     scope open, release everything and ask again; then the request fails. Free blocks are not
//     searched again, so a request can fail while a block that fits is free.
//  6. Split. Small pool, or expandable segments on: where the rest has at least 512 bytes. Else
//     where the rounded size is below S and the rest exceeds 1 MiB. The low part serves the
//     request, the rest is a free block.
//
// # Freeing
//
// A block without recorded streams is free at once. Otherwise it is pending until an event on
// each of the streams has passed, which the caller says with [Allocator.Complete]. It merges
// with the block before it, then with the one behind, if they are idle and both are mapped.
//
// # Streams
//
// A block belongs to the stream that requested it and returns to that stream's part of the
// order. RecordStream ignores the block's own stream. The free of a block with recorded streams
// in a scope is deferred until none is open. Streams that were recorded in a scope are dropped
// then; a block that has no other is free at once.
//
// # Releasing
//
//   - Everything (empty_cache, a retry): pending blocks are completed. Then the large pool and
//     the small one: each free block that is a whole segment is released, and expandable
//     blocks unmap the pages that lie wholly inside them. Then the same for unused private pools.
//     In a scope only the latter; 2.6 refuses.
//   - Oversize: want is the greater of the rounded size and S. The first free block of the
//     stream of at least want is released. Where there is none, smaller ones are, the largest
//     first, while they have at least S and their sum is less than want; it succeeds where the
//     sum reaches want.
//   - Garbage: while more than threshold x limit is reserved, whole free segments of the large
//     default pool are released in rounds, in the order of the pool: those whose age is at least the
//     mean. The age is the number of searches in the pool since the block became free.
//
// # Expandable segments
//
// Each (stream, pool) has a reservation, of which pages are mapped as they are needed. Room for
// a size is sought from the lowest unmapped block on: the idle block before it, if there is one,
// and idle blocks behind, mapped or not, have to add up to it. Without such a place a new
// reservation is made. Unmapped blocks of the place are mapped from the front, each by what is
// missing, up to pages; what a step maps merges with idle neighbours. A step that the device
// refuses fails the request; what earlier ones mapped stays.
//
// # What is not modeled
//
// Pinned memory; reservations of other sizes (expandable_segments_reserve, which came after 2.14);
// callbacks that free memory; pools with an allocator of their own, with no_split or with
// use_on_oom; switching expandable segments on or off while memory is held; the private pool that
// torch drops too early because it counts pages and growths differently.
//
// # Replays
//
// A request keeps its size, stream and private pool; a free and the use by another stream happen where the
// recording has them, and a block that waits for another stream is free again where it was in the recording.
// empty_cache is replayed. A device has as many bytes as its main arena reserves. Not replayed are pauses of
// tags, which PyTorch's allocator does not have, and memory limits: a request that the device's memory cannot
// serve is counted as refused.
//
// Segments lie where the driver of an H200 places them ([Driver]). Where equal free blocks tie,
// the reserved bytes can depend on that, and on how far the GPU has come where blocks wait for another stream.
// Both give a band ([Outcome.Least], [Outcome.Greatest]).
//
// # Following what was observed
//
//	compared  the address of each block; each segment or range of pages that a request maps: its size, and for pages
//	          its address; each that is released: its address and size
//	taken     the addresses of segments and of reservations, which the driver chooses; the order of releases in one
//	          run; the moment at which a block that waits for other streams is free; that a request was refused, and
//	          that the cache was emptied, from the releases that show it
//
// Two sums of the model are known beyond the trace: the size of each block, and so C. Where the recording read C of
// PyTorch's own statistics, the two are counted as equal or not. A reading on another thread may lie
// between two events, so one that differs proves nothing.
//
// A checkpoint of a private pool (the graph trees of torch.compile) frees its blocks, hands out all blocks of each
// segment in the order of addresses, whatever the rules say, and frees those that were not live. It shows in a request
// that the rules would place elsewhere: from there on each block of the segment has to be handed out.
//
// A snapshot's history may begin in the middle. The follower then takes the segments and blocks as the snapshot has them. The
// free blocks are what lies between, and they alone decide where later blocks lie. A recording that was begun in the middle of a
// job says the same in external_free events with the context "native": of a segment, and of a block with its size. Recordings of
// older versions do not have the sizes: there the follower takes segments from before the first event as free ones and places
// their blocks by the rules. It does not judge the process from there on if they lie elsewhere, since a free block between them
// leaves no trace.
//
// Not followed are a process whose allocator switches between the two kinds of segments, an expandable segment whose
// first pages were refused, and settings that the job makes in its own code, other than expandable segments. Such a
// process is not judged ([ErrNotModeled]), or its first difference says what the model would have done. Settings in code are a
// problem of the recording ([SetInCode]).
package torchalloc
