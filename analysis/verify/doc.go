// Package verify is the judge of a recording: it replays it through package bfc and
// demands that every decision the recorded allocator took comes out again. It knows the
// event model of package trace and the policy of package bfc, and nothing of reports or
// commands.
//
// # What is checked
//
//   - The numbers: seq counts from 0 without gaps.
//   - The bytes: the rolling checksum of each block of 4,096 events is the one that the
//     collector wrote.
//   - The pairs: a free names a block in use, in the arena, with the size asked for and
//     the size handed out of its alloc; a free_done a block whose free is pending.
//   - The decisions: each arena is replayed by an allocator of its own, which must ask its
//     memory for the same things in the same order, and place each block at the same
//     address with the same size.
//
// A recording that passes has lost no event of the allocator.
//
// # How a request is replayed
//
// The events that a request causes in its memory come before the alloc, reclaim or oom that
// ends the attempt. They are kept until then, and become the script of a bfc.Memory:
//
//	recorded                        what the allocator must ask       what it is told
//	──────────────────────────────  ────────────────────────────────  ─────────────────
//	device_used  total, used        how much is free (headroom)       total - used
//	grow_failed  8 MiB              a growth by 8 MiB                 refused
//	map          7.2 MiB at A       a growth by 7.2 MiB               granted at A
//	map          2 MiB at B         what was given back at B, again   done
//	map_failed   2 MiB at C         what was given back at C, again   refused
//	unmap        2 MiB at B         that B is given back after all    -
//	unmap, asked 2 MiB at D         whether D can be taken back       yes
//	alloc | reclaim | oom           nothing more
//
// Where D is not next, the answer is no. Iterations end in all arenas at once.
//
// The growths of an arena whose memory coalesces must lie one behind the other as far as
// its first reservation goes. An arena with garbage collection gives back in no other way than
// for a request: all its unmaps are of attempts.
//
// The arenas of a graph memory's range grow by aliases in place of maps. The aliases of a range
// follow one another from its start, whichever of its arenas they are of, and lie within the
// store, which grows only by what an alias lacks: so it is as large as the largest range, to
// the page. It gives back nothing that a range has taken.
//
// A restore makes a block live at a place that no policy chose; the place must be mapped and
// of one free chunk, and what follows is placed around it. A pool_release ends an arena, of
// which nothing may be in use or mapped. Between a pause and a resume an arena serves nothing;
// what they give and take is all that is mapped.
//
// Blocks are free to be used again at their free; those that another stream than their own
// has used, at their free_done. Kinds that are not of the allocator pass through, as do the
// events of arenas whose options name no growth: those belong to somebody else's allocator.
//
// # What is given back and mapped for no request
//
// An unmap with no attempt under way is a give-back, and the granules must be free. Behind a
// reclaim any of them may go: as long as it holds the device, all events of our allocator there
// are unmaps and the ends of pending blocks. Otherwise only a trim gives back, and by itself only
// one by iterations: what goes must be in [bfc.Allocator.Excess] at that event. A map that nobody
// asked for (its bytes asked are 0) is such a trim's, too, and must be in [bfc.Allocator.Ahead].
// Arenas that are not trimmed, as those of pools and tags are, give back what is free as they end.
//
// What the events do not tell: that a trim gives back too little or too late, as it may have to
// wait for the device or for a capture; that what it gives back has been used since its mark, if
// that is excess again by now; that the device was still at work there; and a trim from a reclaim
// right before it, which ends without an event.
//
// # Where a proof ends
//
// A process that was killed may leave slots it had claimed and not filled: lost events.
// Everything before the first one is proved, and what follows it must still replay. Only
// within [LostTail] events of it a contradiction is the end of the proof rather than a
// mismatch. A recording that was stopped or killed, or that ends inside a request, is
// verified up to its last event; Result says where that is.
//
// Memory is bounded by live blocks and by the longest attempt, not by events.
package verify
