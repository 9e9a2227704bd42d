// Package rmmlog makes recordings of logs of the RAPIDS Memory Manager, which its logging resource
// adaptor writes as rows of Thread,Time,Action,Pointer,Size,Stream.
//
// # What becomes of it
//
//	in the log           in the recording
//	───────────────────  ──────────────────────────────────────────────────────────
//	a file               a process, gpu0; of several files rankN
//	stream               an arena
//	allocate             map of the block's memory, and alloc
//	free, deallocate     free, and unmap
//	allocate failure     oom
//
// A log says nothing of the memory behind the resource: pools, their free memory and their growth are not in it.
// So exactly what is allocated counts as reserved, with sizes rounded up to 256 bytes as RMM rounds them.
//
// A row has the time of day without a date. One that is much earlier than the row before is of the next day. A block that
// is freed without a begin was there before the first row.
package rmmlog
