// Package verify checks a recording: it replays it through package bfc and demands that the replay
// takes every decision that the recorded allocator took. It knows the events of package trace and the
// allocator of package bfc, and nothing of reports or commands.
//
// # What is checked
//
//   - Numbers: seq counts from 0 without gaps; so do iterations.
//   - Bytes: the rolling checksum of each block of 4,096 events is the one that the collector wrote.
//   - Pairs: a free names a block in use in its arena, with the requested and provided bytes of the
//     block's alloc; a free_done names a block whose free is pending.
//   - Decisions: each arena is replayed by an allocator of its own. It has to call its memory in the
//     same order with the same values, and to place each block at the same address with the same size.
//   - Totals: at iteration marks and at the end of a process, so many events, and on each device so many requests and frees of so
//     many bytes, as the hook itself has counted. A process that exited in order ends with them.
//   - Marks: a phase that ends has begun; an event's stream is its arena's; times do not fall, but by what clocks differ.
//
// A recording with totals that passes has lost no event: placements alone do not prove it, since one of three or four blocks can be
// left out with all its events, and all others still come out the same. [Result.Counted] says whether there are totals. Somebody who
// makes the checksums right again can change unseen: texts (origins, labels, names), threads, times that stay in order, sizes within
// a chunk whose sum stays, and bytes of events that are of no arena (other libraries, readings).
//
// # How a request is replayed
//
// The events that a request causes in its memory come before the alloc, reclaim or oom event that ends
// the attempt. Verify collects them until then, and answers the allocator's calls from them:
//
//	recorded event                  call of the allocator             answer
//	──────────────────────────────  ────────────────────────────────  ─────────────────
//	device_used  total, used        Free (for the headroom)           total - used
//	grow_failed  8 MiB              Grow(8 MiB)                       refused
//	map          7.2 MiB at A       Grow(7.2 MiB)                     granted at A
//	map          2 MiB at B         Map(B, 2 MiB), unmapped before    mapped
//	map_failed   2 MiB at C         Map(C, 2 MiB)                     refused
//	unmap        2 MiB at B         Unmap(B, 2 MiB), undoes the Map   -
//	unmap, requested 2 MiB at D     TryUnmap(D, 2 MiB)                unmapped
//	alloc | reclaim | oom           no further call
//
// A TryUnmap for which such an unmap is not the next event is answered with a refusal. An iteration
// event ends the iteration of all arenas.
//
// The growths of an arena whose memory coalesces have to be adjacent within its first address
// reservation. In an arena with garbage collection each unmap belongs to an attempt.
//
// The arenas of a graph memory's range grow by alias events in place of map events. The aliases of a
// range are adjacent from its start, whichever of its arenas they belong to, and lie within the store.
// A map of the store has exactly the bytes that the next alias needs: so the store is as large as the
// largest range. The store unmaps nothing that a range uses.
//
// A restore makes a block at a place that no policy chose, which has to be mapped and within one free
// chunk. A pool_release ends an arena: none of its bytes may be in use or mapped. Between a pause and a
// resume an arena serves nothing; both events have the bytes that are mapped.
//
// A take says that a request looked at what another arena holds idle, and how far the work of that arena's stream was over. How
// many bytes it wants follows from what all arenas have mapped and touch; which arena is next, and which pages it unmaps
// there, from its allocator. The device may have refused to unmap some.
//
// From a register until its deregister no unmap may touch the bytes, and with growth pages no request may take their pages.
//
// A free makes a block's chunk free; for a block that another stream than its own has used, free_done
// does. Other kinds of events are not checked, nor are events of arenas without a growth field: those
// belong to another allocator.
//
// # Unmaps and maps for no request
//
// An unmap outside of an attempt has to be of free pages. After a reclaim it may be any of them: a
// reclaim holds the device's lock, so that until it ends all events of our allocator on the device are
// unmaps and ends of pending blocks. One whose context is "streams" has waited for streams and not for the device: it unmaps
// nothing in arenas of pools and tags. Without a reclaim only trim iteration unmaps: the pages have to be
// in [bfc.Allocator.Excess] at that event. A map with 0 requested bytes is a trim's, too: its pages
// have to be in [bfc.Allocator.Ahead]. Arenas without a trim, as those of pools and tags, may unmap
// what is free, as they do when they end.
//
// Some mistakes cannot be seen in the events: a trim that unmaps too little or too late, since it may
// wait for the device or a capture; pages that were used since the iteration ended and are excess
// again; work of the device that was not finished; and a trim right after a reclaim, whose end is no
// event.
//
// # How far a recording is verified
//
// A process that was killed may have claimed slots and not filled them: lost events. Everything before
// the first one is verified, and what follows has to replay as well. Within [LostTail] events behind it
// a contradiction is the end of what is verified, and no mismatch. A recording that was stopped or
// killed, or that ends within a request, is verified up to its last event; Result says where that is.
//
// Host memory is proportional to live blocks and to the longest attempt, not to events.
package verify
