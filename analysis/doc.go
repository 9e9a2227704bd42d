// Package analysis turns the events of a process into the numbers that memprof reports: one
// pass, in host memory bounded by what is live on the device. It knows package trace, and
// nothing of files, tables or commands.
//
// # The terms
//
// A request of r bytes, rounded up to ρ (a multiple of 256), gets a chunk of c bytes. Over
// the live allocations of an arena, or of a device:
//
//	T = Σ r             requested
//	C = Σ c             provided
//	pending             chunks freed that wait for other streams
//	R                   reserved: bytes physically mapped
//	F = R - C - pending free
//	L                   the largest free chunk, in mapped bytes
//
// After every event, in every arena and device,
//
//	R = T + internal + pending + reserve + external
//
//	internal  C - T = rounding Σ (ρ-r) + slack Σ (c-ρ)
//	reserve   free bytes never handed out since they were mapped: growth ahead of need
//	external  free bytes that were handed out before, now in holes
//
// Each term is kept by itself, from the addresses of the events and what is known of the
// bytes there; none is the rest of the others. An event after which they do not add up is
// an [EventError], as is one that cannot be at its addresses.
//
// Reserve and external are kept as stretches of addresses, not of chunks: when a chunk that
// was handed out merges with memory that never was, both stay what they are. A byte that
// is unmapped and mapped again is untouched again.
//
//	          ┌────────┬──────────────────────────┬──────┬──────────────┐
//	chunks    │ in use │           free           │ use  │     free     │
//	          └────────┴──────────────────────────┴──────┴──────────────┘
//	bytes     live  sl   hole   hole   untouched    live    untouched
//	                └ slack and rounding
//
// # The peak instant
//
// It is the first moment of greatest T among those of greatest R. Shares are of R there. Who
// held memory at it, and where, is recovered at the end of the pass: from what is still as
// it was, and a log of the blocks and stretches that have gone since. The log holds nothing
// that came after the peak, so it is never longer than what was live at it.
//
// # The books
//
// What a process has on a device beside the arenas is kept by name of the library that took
// it ([Beside]); driver overhead is measured, never the rest of something, and is unknown where
// other processes may have disturbed that ([OverheadParts]). [CloseBooks]
// holds the sum against readings of the device's used memory, which were taken by the clock
// and not by events: a reading belongs to an instant if what the events tell of did not
// change between the two. What is used and in no part is unexplained, if the reading is of the
// process alone.
//
// # Who holds what
//
// A block has a requester, its context: the dotted path of a module, a call stack, or a text
// of the requester's own. What was made outside of modules, and is labelled as a parameter,
// its gradient or its optimizer's state, counts for the module of that parameter. Its phase
// is the innermost one that is open in the process when it is allocated, whatever the
// thread; "other" is outside of all. Its category is that of its last label; where it has
// none it is told from where it lies, its phase and its lifetime:
//
//	in a pool of CUDA graphs                          cuda_graphs
//	allocated in a phase, freed before that ended     workspace
//	allocated in forward, alive when that ended       activations
//	allocated in data, alive when that ended          inputs
//	all else                                          other
//
// Labels may come and lifetimes may end after the peak: both are followed to the end of the
// trace. A failed request, and the end of the trace, end the phases that are open as far as
// lifetimes go: what an exception lets go of was not temporary. Of the first failed requests
// it is told who held what at that moment, by what was known then. Every breakdown adds up
// to T, C and the live blocks of its instant; one that does not is an error.
//
// An iteration by phase: the greatest T and C while a phase is the innermost, its first moment
// included, and what was requested in it. The first and the last 1,024 iterations are kept.
//
// # Keyframes
//
// With Options.Explore the whole address space is kept at chosen instants, [Keyframes], for a page that shows any
// of them: memory is then bounded by what was live at these. [RunTo] tells of any instant exactly, by a
// pass that stops there.
//
// # Growths
//
// A growth is a mapping that extends an arena; mapping again what was unmapped inside one is a
// remap, and counted apart. The request that caused it, of s bytes, is the one that ends the attempt. Of F and
// L of the arena before the growth, stranded is the part of F in chunks smaller than s,
// and the verdict is fragmentation if F >= s and capacity if not. A failed request (OOM) is
// judged likewise.
//
// # Iterations
//
// An iteration ends at each mark, on all devices. Iterations are counted from 0 everywhere. Their
// peaks T_i, C_i, R_i include the state that they begin with. T1, C1 are those of the first, T2, C2
// means over the later ones, all as shares of the final R (the BFC paper's table). Where R shrank,
// by a trim, a pause or a reclaim, the final R is less than the peaks: then the shares are of the
// greatest R, so that each is from 0 to 1. The same is also given as shares of each iteration's own R_i.
// First-iteration excess is C1/C2 - 1, a ratio that may exceed 1; steady idle is 1 - C2. Without marks, the
// iterations of a device come from the period of its sequence of requested sizes, cut where
// the fewest blocks are live. The cuts lie between the same requests as marks behind the
// optimizer's step would, but for jobs that load inputs before they drop gradients and do not
// come to their own end, or make more requests than a period is looked for in: there they lie
// behind the loading.
//
// # Sleep
//
// Of memory with tags it is told what was awake when, and what of it the stages of the job
// needed: see [Sleep]. What no region holds can not sleep; the pause that left the most of that
// says who holds it ([Outside], [Stray]).
//
// # Watched allocators
//
// Of an allocator that was only watched the chunks are not told: C is known where its own sums
// were read, and what is free cannot be divided. See [Sampled].
//
// # CUDA graphs
//
// What captures hold, by shape and store, and what they would hold in other pools: see [Graphs].
//
// # Keys and values
//
// An engine that serves a language model divides a cache of keys and values among its sequences,
// inside a block of memory that these numbers take for live. What its marks tell is a ledger of its own, in slots,
// with the identity of package kvcache: token + reserve + internal + external + cached + null =
// capacity at every moment. See [KeysValues].
//
// # Leaks
//
// A leak is a lasting rise of the bytes held: what live allocations requested, T, and what those of
// paused tags requested. A pause is no release, and a resume no rise. There are three trends, each
// over points of its own ([Leak]):
//
//	leak.slope        bytes an iteration: held at iteration ends, without the first
//	leak.per_request  bytes a request: held at the ends of requests, without the first. A request
//	                  is an instance of a phase that is the outermost one of its thread, or a
//	                  sequence in a KV cache. Where there are several kinds, the one with the
//	                  steepest rise counts, of those that came in the second half of the trace.
//	                  Of more than 2,048 requests the least of neighbours is one point.
//	leak.per_second   bytes a second: the points of leak.slope by their times; where no iterations
//	                  were marked, and fewer than six found by their period, the least held in each
//	                  of 33 to 64 windows of time, all of one width, without the first quarter of
//	                  them and the last. Something must have been allocated in 12 of them.
//
// The slope is the median of the slopes between all pairs of points (Theil and Sen): outliers, like
// an evaluation now and then, do not move it. A trend needs five points, so six iterations or
// requests; with fewer the slope is unknown. It is called a leak where it is rising ([Trend]): the
// slope is positive, also over the later half of the points, and more pairs of points rise than chance
// explains (Mann and Kendall, one-sided, 2 %). The metrics leak.per_request and leak.per_second are 0
// where it is not. The report judges by iterations, where there are not enough by requests, and else
// by time. A job that keeps loading rises over time as well. The report lists the blocks that were made after the first point
// and are live at the last: of iterations the last mark (without marks the end of the trace), of requests
// the end of the last one, of time the end of the last window that counts.
//
// # Comparisons
//
// Of two sets of runs, see [Diff].
package analysis
