// Package tune tells what a recorded job would have taken under other policies of memprof's
// allocator: it makes the recording's requests of package bfc again, under every combination of
// growth, split, small arenas, trim and placement that is asked for, in one pass over the trace.
// It knows nothing of files beyond a [Source] and nothing of how its results are shown.
//
// # What is replayed
//
// Requests and frees, in the recorded order and each in the arena that it had; iteration marks;
// pauses and resumes; what the program itself gave back (torch.cuda.empty_cache). What the
// recorded allocator did about them (mappings, give-backs, failures) is left out: that is what
// the replayed one decides. A request that finds no memory has free memory of all arenas of the
// device given back, pools aside, and is made once more, as in the hook; so is one that the recorded
// allocator refused, of which the block ends at once. What others have in use on the device is as
// recorded, as far as the events tell. A block that another stream used is free when its free was done.
// Recordings of an allocator that was only watched serve as well: they have the same requests.
//
// The growth is that of the main arenas. Those of other streams, pools and tags grow by what is
// needed, and those of pools and tags are neither trimmed nor planned, as in the hook. Under a
// policy with small arenas each arena but those has a second one, for requests below that size.
// A restored block takes the place that the policy gives it, not its old one.
//
//	trim never      nothing is given back
//	trim iteration  at each mark: what the coming iteration will not need is given back, what it
//	                will is mapped ahead, while R stays within its peak so far
//	trim idle:NS    where so long nothing was asked or freed, all that is free is given back
//
//	placement planned  blocks of iterations that repeat themselves lie by a plan, of package bfc;
//	                   R follows it where trim iteration gives back what it leaves free
//
// Trim under pressure depends on what other processes need, which a recording does not tell.
//
// # How far the figures are the hook's
//
// Under the policy of the recording R, C and T are the hook's to the byte, but for this:
//
//	trim iteration  is done at the mark here, and beside the job by the hook. Where the next
//	                iteration begins before it is done, R can be greater, by no more than what is
//	                on its way back. C and T do not change: no placement looks at what is mapped.
//	trim idle       begins where the events say so; the hook looks at intervals.
//	addresses       of an arena that used up its first reservation lie here behind it, and in the
//	                hook where the driver likes. That decides between chunks of one size.
//	pending frees   end when the recording says; a replayed request that lacks memory waits for none.
//	other libraries take as many bytes here as they asked for.
//	--handle        is the default here: 2 MiB with growth needed or a trim, else 32 MiB.
//
// # The figures
//
// R is all that is mapped, of all arenas and devices; paused arenas have none. R of an
// iteration is its greatest R, C and T likewise. An iteration is steady from number 4 on, from 0; of a
// job with fewer, its last one is. Events behind the last mark form no iteration.
//
// # The cost model
//
// A policy costs a step what the driver calls cost that the job waits for:
//
//	map n bytes    ceil(n / handle) x (create + map + access)
//	give n bytes   ceil(n / handle) x (unmap + release)
//
// Calls are waited for when a request makes them: growth, granules that were given back and
// are handed out again, granules taken from holes. Calls at an iteration's end and while the
// job is idle are told apart: the hook makes them beside the job. Taking granules from a hole
// for a request also waits for the device's kernels; such waits are counted and have no price,
// for that depends on what runs. The defaults of [Costs] were measured on an H200 with driver
// 580.159.04 on handles of 2 MiB. The time in which a plan is made, at a mark, has no price: once
// one holds, no more are made. Everything else of a step is as recorded.
package tune
