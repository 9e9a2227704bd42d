// Package tune computes how much memory a recorded job would have reserved under other policies of
// memprof's allocator: it replays the recording's requests through package bfc under each of the given
// policies, in one pass over the trace. It knows no files beyond a [Source], and nothing of how results
// are shown.
//
// # What is replayed
//
// Requests and frees, in the recorded order and in the arenas that they had; ends of iterations; pauses
// and resumes; torch.cuda.empty_cache. What the recorded allocator did for them (maps, unmaps,
// refusals) is not replayed: the replayed allocator decides that. Where a request finds no memory, the
// device is in a shortage (package bfc): slack is freed, free memory of all arenas of the device but
// those of pools is unmapped, and of those of tags where others hold too little, and the request is made again, as in the hook. A request that the recorded allocator refused is made as well; its block, if it gets
// one, is freed at once. Memory of other libraries is as recorded, as far as events show it. A block
// that another stream used is freed at its free_done. Recordings of torch's own allocator can be
// replayed, too: they have the same requests.
//
// Policy.ForArena of package bfc says what an arena gets of a policy. A restored block is
// placed by the policy, not at its recorded address.
//
// While a stream is captured nothing is unmapped, taken or trimmed, as in the hook: a request maps what is free of the device, and
// what it cannot release stays with its arena. A resume maps the pages that hold a block, and others only where its call
// wanted them; where it lacks memory, free memory of all arenas is unmapped as for a request. One that failed does so, too, and maps nothing.
//
//	trim never      nothing is unmapped, unless a request would fail
//	trim iteration  at each end of an iteration: free pages that it did not touch are unmapped
//	trim idle:NS    all free pages are unmapped when nothing was requested or freed for so long
//
// # How exact the figures are
//
// Under the recorded policy R, C and T are those of the hook to the byte, but for this:
//
//	trim iteration  is done at the end of the iteration here; the hook does it in a background thread. Where
//	                the next iteration begins before that is done, the hook's R is greater, by at
//	                most what is still to be unmapped. C and T are equal: no placement looks at what
//	                is mapped.
//	trim idle       begins at the exact time here; the hook looks at intervals, and unmaps after one to two
//	                times what the policy says.
//	pools           that nobody holds any more are known from the first time that the recording unmaps some of them.
//	addresses       behind an arena's first reservation are adjacent to it here; in the hook the
//	                driver chooses them. That decides between chunks of one size.
//	pending frees   end when the recording says, or, where a recorded request has waited for the device, when
//	                the replayed one has, else behind it.
//	other libraries use as many bytes here as they requested.
//	--handle        has its default here: 4 MiB with preset compact, 2 MiB with a trim, else up to 32 MiB.
//
// # The figures
//
// R is the bytes mapped by all arenas of all devices; paused arenas have none. R of an iteration is its
// maximum, and so are C and T. Iterations from number 4 on are steady (the first is 0); of a job with
// fewer, the last one. Events behind the last end of an iteration belong to none.
//
// # The cost model
//
// A policy makes an iteration longer by the driver calls that the job waits for:
//
//	map n bytes    ceil(n / handle) x (create + map + access)
//	unmap n bytes  ceil(n / handle) x (unmap + release)
//
// With preset compact a page that serves another address keeps its old mapping, as in the hook:
//
//	a page that has its own old handle back     nothing
//	a page that gets another free handle        map + access, and unmap if it has an old mapping
//
// Outcome.Calls counts these calls, one for each handle, and Outcome.Cost is their time.
//
// The job waits for calls that a request makes: growths, maps of unmapped pages, and unmaps before a
// growth. Calls at the end of an iteration and while the job is idle are counted apart, since the hook
// makes them in a background thread. Unmapping for a request also waits for the device's kernels; such waits
// are counted and cost nothing here, since their time depends on what runs. The times were measured on
// an H200 with driver 580.159.04, on handles of 2 MiB ([CostHandle] and what follows it). Everything else of an
// iteration takes as long as recorded.
package tune
