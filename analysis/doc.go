// Package analysis turns the events of a process into the numbers that memprof reports. It makes one
// pass; the host memory that it needs is bounded by what is live on the device, not by the number of
// events. It knows package trace, and nothing of files, tables or commands.
//
// # Parts
//
// The pass hands each event to the ledger (package ledger), which keeps the memory of all arenas and
// checks the change, and to trackers: attribution, iterations, trend, growth, native, pause, graphs,
// keyframes, accounting and kv, a package each. A tracker has up to four kinds of methods: it adds an
// arena (Arena), takes a change of memory (Alloc, Freed, Mapped, Observe, ...), takes a mark (Phase, Mark,
// Transition, ...), and ends with Finish, which returns its Result. What it keeps of an arena is a value that
// the pass stores next to the arena of the ledger. The ledger knows package trace only, trackers know the
// ledger, and this package alone knows the trackers: it calls them directly, in handlers.go. A ledger that
// returns a change, which a slice of interfaces takes, makes the pass 1.34 times as long (BenchmarkRun/training,
// two cores of an AMD EPYC). Their results are parts of a [DeviceResult], each nil where a device has nothing of
// its subject.
//
// # Terms
//
// A request of r bytes is rounded up to ρ, a multiple of 256, and gets a chunk of c bytes. Over the
// live allocations of an arena, or of all arenas of a device:
//
//	T = Σ r              requested
//	C = Σ c              provided
//	pending              chunks that are freed and may still be used by another stream
//	R                    reserved: bytes of physical memory that is mapped
//	F = R - C - pending  free
//	L                    the largest free chunk of an arena
//
// After every event, in every arena and on every device,
//
//	R = T + internal + pending + stranded + reserve + reusable + external
//	internal = C - T = rounding + slack
//	rounding = Σ (ρ-r)
//	slack    = Σ (c-ρ)
//
// The last four terms of R divide the free bytes. Each free byte has the first of these names that
// applies to it:
//
//	stranded  it is in an arena that the request cannot use
//	reserve   it was never handed out since it was mapped
//	reusable  it was handed out before, and is in the largest free chunk of its arena
//	external  it was handed out before, and is in a smaller free chunk: fragmented
//
// A request can use the free memory of one arena only: that of its stream, pool, tag and size class.
// So the terms of a device depend on which arena asks, its view ([Instant].View). At a growth and at
// a failed request that is the arena of the request. At every other instant it is the arena with the
// most reserved; of several with equally much, the first made. An arena by itself is always seen by
// its own requests, so nothing of it is stranded. Of several arenas together (the arenas of a tag) the
// one with the most reserved is the view.
//
// F, L and the four terms count mapped bytes only. A free chunk ends at a block, at memory that is
// not mapped, and where a region starts that does not coalesce with the one below. Of several largest
// chunks the one with the lowest address is L. Whether a byte was handed out is kept by address and
// not by chunk: when a chunk that was in use merges with memory that never was, both parts keep their
// names. A byte that is unmapped and mapped again counts as never handed out.
//
//	          ┌────────┬────────────────────────────┬──────┬────────┬───────┐
//	chunks    │ in use │      free, the largest     │ use  │  free  │  use  │
//	          └────────┴────────────────────────────┴──────┴────────┴───────┘
//	bytes     live  sl   reusable       reserve       live  external  live
//	                └ slack and rounding
//
// What is never handed out and what was are kept by themselves, from the addresses of the events; so are
// T, rounding, slack, pending and R. An event after which they do not add up is an [EventError], as is
// one that cannot be at its addresses.
//
// # The peak
//
// The peak is the first moment of greatest T among those of greatest R. Shares are shares of R there.
// Who held memory at it, and where, is recovered at the end of the pass, from what is unchanged
// since and from a log of the blocks and ranges that have changed. The log has nothing that came
// after the peak, so it is never longer than what was live there. [At] does the same for other events, in a
// second pass. The peak needs no second pass: without the log the first pass is no faster, and a second one takes
// 1.6 times as long as the first (BenchmarkRun/training).
//
// # Device accounting
//
//	used = R + other libraries + driver overhead + driver pools + unexplained
//
// Other libraries is what the process allocated on the device outside of its arenas, by the name of the
// library that called CUDA ([OtherMemory]). Driver overhead is measured ([OverheadParts]). It is unknown
// where other processes may have changed the device's memory during the measurement. [Reconcile]
// compares the sum with readings of the device's used memory. Readings are taken by the clock and not
// by events, so a reading counts for an instant only if no event between the two changed the terms.
// Unexplained is what is used and in no term. It is known only if the reading is of this process alone.
//
// # Origins
//
// The origin of a block is its context: the dotted path of a module, a call stack, or a text that the
// job gave. A block that was allocated outside of modules and is labelled as a parameter, its
// gradient or its optimizer state belongs to the module of that parameter. The phase of a block is the
// innermost one that is open in the process when it is allocated, on whatever thread; "other" where
// none is open. The category is that of the block's last label. Without a label it follows from the
// block's pool, phase and lifetime; see [attribution.Category.Rule].
//
// Labels may come after the peak, and lifetimes may end after it; both are followed to the end of the
// trace. A failed request, and the end of the trace, end the open phases for this purpose: blocks that
// an exception frees are no temporaries. For the first failed requests the live allocations are kept, as
// known at that moment. Every breakdown adds up to T, C and the number of live blocks of its instant; one
// that does not is an error.
//
// For each iteration and phase the result has the greatest T and C while the phase is the innermost one,
// its first moment included, and the bytes requested in it. The first and the last 1,024 iterations are
// kept.
//
// # Keyframes
//
// With Options.Explore the pass keeps the whole address space at chosen instants, [Keyframes], so that a
// page can show any of them. Memory is then bounded by what was live at these. [At] computes any
// instant exactly, by a pass that stops there.
//
// # Growths
//
// A growth is a mapping that extends an arena. To map again what was unmapped inside an arena is a
// remap, which is counted apart. The request that ends the attempt, of s bytes, caused the growth. Before it
//
//	F = fits + too small + stranded
//	too small  free in chunks of its arena that have less than s bytes
//	fits       free in other chunks of its arena
//
// The verdict is fragmentation if F >= s: as much was free on the device, but in no chunk that could
// serve the request. It is capacity if F < s. A failed request (OOM) is judged alike; one without an
// arena is judged as a request of the arena with the most reserved.
//
// # Iterations
//
// Each mark ends an iteration, on all devices. Iterations are counted from 0. The peaks T_i, C_i, R_i of
// iteration i include the state that it starts with. T1, C1 are those of the first iteration, T2, C2 the
// means over the later ones. All four are shares of the final R, as in the BFC paper's table. Where R
// shrank (by a trim, a pause or a reclaim) they are shares of the greatest R instead, so that each is
// from 0 to 1. They are also given as shares of each iteration's own R_i. First-iteration excess is
// C1/C2 - 1, a ratio that may exceed 1; steady idle is 1 - C2.
//
// Without marks, the iterations of a device come from the period of its sequence of requested sizes, cut
// where the fewest bytes are live. These cuts lie between the same requests as marks after the
// optimizer's step would. Exceptions are jobs that load inputs before they free gradients, and that did not
// end by themselves or made more requests than are searched: there the cuts lie after the loading.
//
// # Pauses
//
// [Pauses] has which tags were resident in which stage of the job, and which of them the stage needed.
// Untagged memory cannot be paused; its breakdown is kept at the pause that left the most of it.
//
// # Native allocators
//
// memprof only observes a native allocator, so its chunks are not known. C is known where the allocator's own
// sums were read, and free memory cannot be divided: see [torchalloc.Observed] and [ledger.Split.Known].
//
// # CUDA graphs
//
// [Graphs] has the memory of captures, by shape and store, and what they would need in other pools.
//
// # KV caches
//
// An engine that serves a language model divides a KV cache among its sequences, inside a block that is
// live in all numbers above. Its marks are accounted separately, in slots: token + reserve + internal +
// external + idle + cached + null = capacity at every moment. See [KVResult] and package kvcache.
//
// # Leaks
//
// A leak is a lasting rise of what live allocations requested, those of paused tags too: a pause frees nothing, and a resume allocates
// nothing. There is one verdict ([iterations.Leak]), which the report, gates and metrics share. It compares like points: the ends of
// iterations, marked or found by their period; without those, the ends of requests (an outermost phase of a thread, or a sequence of a KV
// cache, of the kind that is most frequent); without those, the least bytes in windows of time. The first point does not count. Of each kind
// there must be 8, or the recording must take 10 s; else the verdict is "too short".
//
// What leaks is a group of blocks that one place requested: a module, a stack, another library. Its floor at a point is the least that it holds
// there or later. It leaks if the floor rises in the last third of the points as in the middle one, in steps, and to the end: see
// [iterations.Points.Rises]. Parameters, their gradients and optimizer states and memory of CUDA graphs are left out, in the
// numbers in which they appear once for each parameter.
//
//	leak.slope        bytes per iteration: the rise of the floors of all groups that leak, 0 if none does
//	leak.per_request  the same per request, in a job without iterations
//	leak.per_second   the same per second
//
// # Comparisons
//
// Package compare compares results: sets of runs, the ranks of a job, and jobs with the BFC paper.
package analysis
