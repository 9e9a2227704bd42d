// Package export writes recordings in the formats of other tools. Everything is streamed: host
// memory is bounded by what is live on the device at once and by the distinct names and stacks
// of a recording, never by the number of its events.
//
// # CSV and JSON
//
// [CSV] and [JSON] are the events as they are, all columns of package trace and the name of
// the process. Of a part that is not the first of its process, events before it that are still
// in force come first, with their own seq.
//
// # Perfetto
//
// [Perfetto] writes a trace for ui.perfetto.dev and trace_processor, in the protobuf encoding of
// perfetto.protos.Trace. Times are nanoseconds since the run's clock base. Under the track of
// each process there are
//
//	GPU 0 requested, …       a counter for each term of each device, in bytes, as package
//	                         analysis defines them; an unknown one is left out
//	GPU 0 allocations        a slice for each allocation, from its alloc to its free, by the name
//	                         of its requester; those alive at the end stay open
//	GPU 0 events             instants: growths, unmappings, pauses, failed requests
//	iterations               a slice for each one that ended
//	phases (thread 4711)     nested slices
//
// and beside them, where they were read, counters of what the cards had in use. Slices on one
// track of that format must nest and allocations do not, so each one takes the lowest lane that
// is free at its time; lanes have the same name, which viewers show as one track.
//
// # pprof
//
// [Pprof] writes who holds memory at one instant as a profile for `go tool pprof`: samples of
// inuse_objects, inuse_space (bytes requested) and provided_space (bytes of chunks), by call stack or
// by module, each component of whose path is a frame. Labels have the process, device, module,
// category, phase and tag of each, for -tagfocus. The sums are T, C and the live
// blocks of that instant, of all processes and devices.
//
// # Torch's snapshots
//
// [TorchSnapshot] writes a process as torch.cuda.memory._snapshot() would have it pickled, for
// pytorch.org/memory_viz, torch.cuda._memory_viz and mosaic: its trace by device, and the segments
// and blocks after its last event. A contiguous stretch of mapped addresses is a segment, and so is
// what a range of a graph memory sees of its store. A block
// has the frames of its stack, or one that names its requester. Pickle protocol 2, with no more
// opcodes than those viewers know.
package export
