// Package export writes recordings in the formats of other tools. It streams: its memory grows with the
// allocations that are live at once and with the distinct names and stacks of a recording, never with the
// number of events.
//
// # CSV
//
// [CSV] writes the events unchanged: all columns of package trace and the name of the process. If the
// recording begins with a later part of a process, the earlier events that still have effect come first, with
// their own seq.
//
// # pprof
//
// [Pprof] writes the live allocations of one instant as a profile for `go tool pprof`: samples of
// inuse_objects, inuse_space (bytes requested) and provided_space (bytes of chunks), by call stack or
// by module. By module, each component of the module's path is a frame. Labels give the process, device, module,
// category, phase and tag of each sample, for -tagfocus. The sums are the live allocations, T and C of that
// instant, of all processes and devices.
//
// # Torch's snapshots
//
// [TorchSnapshot] writes a process as a pickle of torch.cuda.memory._snapshot(), for
// pytorch.org/memory_viz, torch.cuda._memory_viz and mosaic: a trace for each device, and the segments
// and blocks after the last event. A segment is a contiguous range of mapped addresses, or the mapped part of a
// range of graph memory. A block has the frames of its stack, or one frame that names its origin. The pickle has
// protocol 2 and only opcodes that those viewers know.
package export
