// Package bfc is the best-fit-with-coalescing allocator of memprof: the specification of
// its policy, written to be read, and a model fast enough to replay recordings with. The
// recorder's own allocator (hooks/capture/bfc/*.c) is its twin in C; both place every block
// at the same address. This package knows nothing of traces, devices or commands.
//
// # Regions, chunks, bins
//
// Memory comes in regions from a Memory. A region is tiled without gaps by chunks, each
// wholly free or wholly in use. Chunks are multiples of the granule, 256 bytes, and two
// free chunks never touch inside a region, because a freed chunk merges with its free
// neighbours at once:
//
//	region 0, 2 MiB                                  region 1, 4 MiB
//	┌────────┬──────────────┬─────┬──────────────┐   ┌──────────────────┬───────────┐
//	│ in use │     free     │ use │     free     │   │      in use      │   free    │
//	└────────┴──────────────┴─────┴──────────────┘   └──────────────────┴───────────┘
//	           │              ****x    │                                  │
//	           │   payload ───┘  └─── rounding and slack                  │
//	bin 12 ◀───┘ [1 MiB, 2 MiB)        │                                  │
//	bin 11 ◀───────────────────────────┘ [512 KiB, 1 MiB)                 │
//	bin 12 ◀──────────────────────────────────────────────────────────────┘
//
// Bin k holds the free chunks of [256·2^k, 256·2^(k+1)) bytes, k = 0..20; the last has no
// upper end. All bins together are one order over the free chunks, by (size, address), and
// that order is all the policy needs: the implementation divides it more finely.
//
// # Alloc
//
// A request of 0 bytes fails, and so does one above 2^64-256, which could not be rounded.
// Any other is rounded up to the granule. It takes the best fit: the least free chunk in
// the order (size, address) that is at least the rounded size; equals go by the lowest
// address. The chunk is split if
//
//	size >= 2·rounded   or   size - rounded >= the greatest excess
//
// and anything is left over. The low part is handed out and the rest is a new free chunk.
// Otherwise the whole chunk is handed out, and what it has above the rounded size is
// slack. The greatest excess is 128 MiB, or the integral part of the option
// FragmentationFraction times the limit. With another Split than SplitClassic a chunk is split
// if what is left over is at least that many bytes. Blocks are numbered from 1 in the order they are
// handed out; a failed request takes no number.
//
// If no chunk fits, these are tried in order, each followed by another search:
//
//  1. growth;
//  2. with the option GarbageCollection, the release of all idle regions and growth again.
//
// # Growth
//
// The memory is asked for a region. With available = the limit less what is reserved,
// rounded down to the granule, a rounded request above it fails without any effect. The
// size of the next region starts at 2 MiB, or the limit rounded up to the granule if that
// is less. Double, the classic policy, then goes on:
//
//	next region:   doubled until it is at least the rounded request; this stays, even if
//	               all that follows fails; it saturates at 2^64-256
//	bytes:         min(next region, available)
//	headroom:      asked for more than the request, bytes is cut so that the memory keeps
//	               Headroom bytes free: to the free bytes above it, rounded down to the
//	               granularity, but not below the request
//	padding:       if bytes rounded up to the granularity pass the limit, the room below the
//	               limit rounded down to the granularity; less than the request is failure
//	refused:       bytes·0.9 in float32, rounded up to the granule (256 less where that did
//	               not shrink), and asked again until it would be less than the request
//	granted:       next region doubles, unless it had been doubled for this request
//
// The sequence is 2, 4, 8, 16 MiB; where the first request is of 4 MiB, it is 4, 4, 8, 16.
// None is the same with a next region that starts as the whole limit. Needed asks once for
// what the request lacks: if memory coalesces and the last chunk of the region grown last is
// free (and too small, or it would have been found), its size is credited. It has no headroom and
// no second try, and leaves the size of the next region alone. If the grant came to lie
// elsewhere and the credit was vain, the whole rounded request is asked for. Step is the same,
// but asks first for what lacks rounded up to a multiple of Options.Step, within the limit and
// the headroom.
//
// Before Needed grows, where memory coalesces, it has the memory take back whole granules of
// free chunks other than the credited tail, as many as it will ask for: from the last address
// down, in runs that are mapped; where the memory refuses a run, on with the next. Their
// addresses stay, and what they had serves elsewhere. (See below for those that are not taken.)
//
// A grant that begins where the region before it ends extends that region, if the memory
// coalesces, and merges with its free tail; else it is a region of its own.
//
//	before      ┌────────┬──────┐            a grant of 4 MiB ▶ ┌───────────────────────┐
//	            │ in use │ free │                              │          free         │
//	            └────────┴──────┘                              └───────────────────────┘
//	after       ┌────────┬──────────────────────────────┐
//	            │ in use │             free             │   one region, one free chunk
//	            └────────┴──────────────────────────────┘
//
// # Idle regions
//
// A region without any chunk in use is idle. Garbage collection releases all idle regions,
// in the order of their addresses, if they have anything mapped and the request would then
// stay within the limit. The size of the next region is not reset.
//
// # Memory given back inside a chunk
//
// The owner may give back the physical memory of granules (now in the memory's own
// granularity, 2 MiB on a GPU) inside a free chunk: see Allocator.Unmap. Placement never looks
// at that. When a range that was given back is about to be handed out, each maximal missing
// interval of it is mapped again, in the order of addresses and within the limit. (Needed takes as
// much back elsewhere first, where uses are noted.) If one is refused,
// those mapped for this request are given back in reverse order, and the first chunk of
// the order (size, address) whose range to be handed out has nothing missing is taken
// instead. If there is none, the search has failed, and growth is next.
//
//	           ┌────────┬─────────────────────────────────────┬────────┐
//	chunks     │ in use │                free                 │ in use │
//	           └────────┴─────────────────────────────────────┴────────┘
//	mapped     ████████████████░░░░░░░░░░░░████████░░░░░░░░████████████
//	           alloc ───▶       ├──────────┤ is mapped again, the rest is not
//	                    ├──── handed out ──┤
//
// # Iterations
//
// Training repeats itself, and a granule that was in use in one iteration will be in the next.
// With any Trim but never, the last use of each granule is noted. A granule is expected to be
// used if it was in the iteration under way or the two before; in the first iteration nothing
// is. Once two have ended, EndIteration leaves an Excess: what is free, mapped and not expected,
// for the owner to give back when the device has done with it; and what was given back and is
// expected is to be mapped Ahead of need, from the lowest address up, while Reserved stays within
// its peak so far. Needed never takes what is expected. So the excess of
// the first iterations goes for good, and a job that repeats itself comes to rest: nothing is
// given back or mapped any more.
//
//	iteration    0         1     2     3
//	granule a    used      used  used  used    stays
//	granule b    used      ·     ·   ▲         given back at the end of 2
//	granule c    used ▲  ▼ used  used  used    taken for growth in 0, mapped ahead of 1
//
// # Plans
//
// An iteration that repeats the one before has no unknowns: when each block will be freed is
// known when it is asked for. With PlacementPlanned the requests and frees of iterations are
// noted, and a plan says where each block of the coming ones is to be. Best fit, which cannot
// know, puts c where a was, and d does not fit there any more:
//
//	MiB   best fit          planned
//	12    · · · · d d d     · · · · · · ·
//	11    · · · · d d d     · · · · · · ·
//	10    · · · · d d d     · · · · · · ·
//	 9    · · · · d d d     · · · · · · ·
//	 8    · · · · d d d     · b b b b · ·
//	 7    · · · · d d d     · · · c c c ·
//	 6    · b b b b · ·     · · · c c c ·
//	 5    a a · · · · ·     a a · · d d d
//	 4    a a · · · · ·     a a · · d d d
//	 3    a a · · · · ·     a a · · d d d
//	 2    a a · · · · ·     a a · · d d d
//	 1    a a · c c c ·     a a · · d d d
//	 0    a a · c c c ·     a a · · d d d
//	      time ▶
//
// Time is counted in requests and frees. A plan covers two iterations that follow each other in
// a circle, since a block that is asked for before its like of the iteration before is freed
// needs two places in turn. Their blocks are placed one by one, the largest first and equals in
// the order of requests, in the first and then in the second of the two iterations, each at the
// lowest address at which nothing is live while it is. Always live, and in the way, is what is in
// use and not foreseen to be freed in the coming iteration: those blocks stay.
//
// The free of a block of the last iteration that is still live at its end is foreseen if its like
// of the iteration before was freed in the last: at the same time. Otherwise it ends later, and
// has no place. Two requests are alike, in order, if they and the three before them, as far as
// there are so many, have the same sizes, or else they and the three after. A plan is tried at
// the end of an iteration if there was none, or it has not held, twice running. It is made if 7
// of 8 requests have a like. The next try is two iterations later at the least, then four, and so
// on up to 65,536. None is made of more than 65,536 requests, nor of more than 262,144 requests and
// frees, nor if it would take too long: for more than 2^26 in sum of the blocks that have a place
// and are live when another is asked for, over all such requests, and of a sixteenth of all requests
// times the ranges of addresses where nothing can be placed.
//
// A request is the first one of the plan that is of its rounded size and has not been served,
// among the 32 from the first that has not; those more than 16 before the last that was served
// are given up. It gets just its place, cut out of the free chunk that has it; what was given
// back of that is mapped as above. With Needed, where the memory coalesces, places may lie
// behind the last region, which grows as far as they do unless something is in the way. A request
// that the plan does not have, or whose place is in use or not to be had, is placed as without a
// plan. Then, and where an iteration has more requests than the plan or fewer, it has not held.
// It has where that block ends later, or has a place in the plan but, for what is in the way, none
// in its first iteration.
//
// When a plan begins, blocks of the iteration before are where no plan had put them. What would
// meet them is placed elsewhere in this iteration: around them, its other places, and those of
// the next iteration. Where uses are noted, what is in use and the plan's granules are all that
// is expected from now on, so that the rest is Excess at once; but in this first iteration
// Needed may take any, and nothing is mapped Ahead. What the first iteration used elsewhere is
// forgotten in the same way when it ends, and when the second does.
//
// # Deviations from the reference
//
// The policy is that of TensorFlow and XLA. Not reproduced are: requests near 2^64 that
// wrap to nothing; a limit that padded grants can overrun; a fragmentation of 0/0; a
// backoff that never ends. Requests have no alignment beyond the granule, and frees no
// timestamps. That Double ignores a free tail, and that its next region stays large after
// one huge failure, is classic and kept: Needed does neither.
package bfc
