// Package observed follows PyTorch's own allocator through a recording that only observed it
// (record --allocator native). Each recorded request is made of a model of that allocator (package caching), and has to
// get the recorded address from the recorded segments.
//
// # What is compared, and what is taken from the trace
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
// # What is not followed
//
// A process whose allocator switches between the two kinds of segments, an expandable segment whose first pages were
// refused, and settings that the job makes in its own code, other than expandable segments. Such a process is not judged from
// there on ([ErrNotModeled]), or its first difference says what the model would have done.
package observed
