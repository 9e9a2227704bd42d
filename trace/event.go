package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"
)

// NoArena and NoDevice stand in Event.Arena and Event.Device of events that belong to none.
const (
	NoArena  int32 = -1
	NoDevice int32 = -1
)

// AllSequences is the sequence of a KV cache's event that is about every sequence, or about none.
const AllSequences int64 = -1

// Event is one decision, in the units of the dataset's columns. What Addr, Requested, Provided and
// Context hold depends on the kind: see [Kinds]. Where they hold neither an address nor bytes, or
// bytes of another meaning, methods of Event name them.
//
// # Order
//
// The memory events of a request (device_used, grow_failed, map, map_failed, and the unmaps of
// pages that it takes) come before the alloc, reclaim or oom that ends the attempt, and have its
// arena; so have takes, each right before the unmaps of the other arena that it leads to. An oom, or a reclaim with an arena, says that the attempt of `requested` bytes failed.
// Behind a reclaim come the unmaps that it made and then the events of the next attempt.
//
// A free is final unless the chunk has a stream_use of another stream than its own: then the
// chunk is pending until its free_done. A restore makes a chunk live at a place that no policy
// chose: a checkpoint had it there. A pool_release with an arena is the last event of that arena:
// nothing of it is mapped or live any more.
//
// Between a pause and a resume of 1 byte or more the arena has no mapped memory. Its blocks may
// be freed, and an unmap says which range the resume will not map. A pause or resume of 0 bytes
// failed, and its failed= says why.
//
// # Native allocator
//
// An arena whose options have allocator= and provided=unknown belongs to torch's own allocator,
// which reports requests and segments but not chunks. In its allocs, provided is what was
// requested. It does not report the streams for which a free waits either: the stream of its
// stream_use events is -1. A statistics event has the allocator's own sums after the device's
// events before it.
//
// # Device memory
//
// A device_used event without an arena belongs to the readings of `memprof record`, or to a
// process that reads for itself. It says when a number was read (time_ns); its place among the
// other events says nothing.
//
// # Driver overhead
//
// what= is context, module, library, graph or pool. how= says what was read before and after the
// call: process (the process's use), device (the use of the whole device) or total (all that
// the device had in use afterwards). Without how=, a context was measured by the process's
// use and all else by the device's. others= is the number of other processes that the driver listed.
//
// # Graph memory
//
// Graphs of many shapes share the physical memory of a store; one of them replays at a time.
// A store is an arena with graph_memory=, its number, and store=1. It maps and unmaps at its end
// only. No block lies at its addresses; they name its pages. Each shape has an address range: the
// arenas with graph_memory= and shape=, one for each stream, have the range in addr and provided,
// so that arenas of one range have the same addr. They grow by alias events instead of maps,
// each at the next bytes of the range; addr is the start of the range plus the offset in the store. An
// alias maps no further memory: the store is as large as its largest range and visible in all of
// them. With segments=1 the blocks of a range are segments of a native allocator, whose arena
// has a map over each of them; that memory is the store's.
//
// # KV cache
//
// The kv_ events describe a cache in slots; a slot holds the keys and values of one token. Their
// stream is the number of the cache, and the cache's kv_cache event comes first. layout= is
// contiguous or paged. A cache of 0 slots has as many as are reserved at any time. Slots that a
// sequence reserves follow those that it has, and its tokens fill them in order.
//
// A paged cache consists of blocks of block= slots. Blocks have numbers; an event names blocks
// with consecutive numbers by the first one. null= blocks are never handed out. beams= sequences share a
// prompt, and each has a copy of it. In a contiguous cache, requested of a kv_reserve is how many of the
// slots are padding.
//
//   - A kv_reserve of [AllSequences] reserves for each sequence of the cache, a kv_append of
//     AllSequences appends to each sequence that has tokens and has not ended.
//   - A kv_append of 0 tokens ends a sequence, which keeps its slots.
//   - A kv_share with position= replaces the sequence's block at that place of its block table.
//     Of AllSequences, it says that the content of free blocks is kept.
//   - A kv_free says how many slots, from the first on, keep their content if no other sequence
//     uses them. Of AllSequences, it drops the content of blocks, or, with 0 slots, ends the
//     cache and its sequences.
//   - A kv_free with swap=out copies the sequence's content to the host, and frees its blocks; the
//     sequence goes on. In opening rows provided is its tokens, and no event of it comes before. A
//     kv_reserve with swap=in gives it blocks again, and its tokens fill them.
type Event struct {
	Seq       int64 // order within the process, without gaps, from 0
	Time      int64 // nanoseconds since the run's clock base
	Kind      Kind
	Device    int32
	Arena     int32
	Thread    int32
	Stream    int64
	Addr      int64
	Requested int64
	Provided  int64
	Context   int32 // index into the process's Strings; 0 is the empty string
}

// PauseDuration is how long a pause or resume took.
func (e *Event) PauseDuration() time.Duration { return time.Duration(e.Addr) }

// PausedBytes is how many bytes a pause unmapped or a resume mapped; 0 if it failed, and where the arena had none.
func (e *Event) PausedBytes() int64 { return e.Requested }

// CopiedBytes is how many bytes a pause or resume copied to or from the host.
func (e *Event) CopiedBytes() int64 { return e.Provided }

// IterationNumber is the number of the iteration that an iteration event ends, from 0.
func (e *Event) IterationNumber() int64 { return e.Requested }

// DeviceMemory is what a device_used event read of its device: bytes in all and in use. With an arena, the bytes
// in all are less where the limit of all arenas (torch's memory fraction) leaves less than the device has.
func (e *Event) DeviceMemory() (total, used int64) { return e.Requested, e.Provided }

// CardMemory is the memory of the device of a main arena's event, in bytes. The text is that of the field total; "": the arena is of a recorder that reserved
// as many addresses as the device has bytes.
func (e *Event) CardMemory(total string) (uint64, error) {
	if total == "" {
		return uint64(e.Provided), nil
	}
	bytes, err := strconv.ParseUint(total, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("event %d: arena %d: total=%q is not a number of bytes", e.Seq, e.Arena, total)
	}
	return bytes, nil
}

// OpenCaptures is the number of graph captures under way after a capture_begin or capture_end.
func (e *Event) OpenCaptures() int64 { return e.Requested }

// StackNode is the number of a stack event's node, from 1, and that of its caller's, 0 for none.
func (e *Event) StackNode() (node, parent int64) { return e.Requested, e.Provided }

// Statistics are a native allocator's own sums, in bytes.
func (e *Event) Statistics() (reserved, provided, mostProvided int64) {
	return e.Requested, e.Provided, e.Addr
}

// OverheadBytes is by how many bytes an overhead event changes driver overhead; it may be negative.
func (e *Event) OverheadBytes() int64 { return e.Provided }

// StoreOffset is where in the store the bytes of an alias or unalias lie.
func (e *Event) StoreOffset() int64 { return e.Requested }

// FreesOver is before how many frees of the arena of a fence, from the first on, all work is over.
func (e *Event) FreesOver() int64 { return e.Provided }

// AheadOfNeed says whether a map was made between requests, for blocks that are expected.
func (e *Event) AheadOfNeed() bool { return e.Requested == 0 }

// ForRequest says whether an unmap took pages of free chunks, to map them elsewhere for the request
// under way.
func (e *Event) ForRequest() bool { return e.Requested > 0 }

// Totals of totals events: how many of what they count, their bytes or nanoseconds, and the nanoseconds that the GPU was waited for.
func (e *Event) Totals() (count, sum, waited int64) { return e.Addr, e.Requested, e.Provided }

// KVCache is the number of the cache that a kv_ event is about.
func (e *Event) KVCache() int64 { return e.Stream }

// KVSequence is the sequence that a kv_ event is about, or [AllSequences].
func (e *Event) KVSequence() int64 { return e.Addr }

// KVSlots is how many slots a kv_ event is about; of a kv_cache, how many the cache has.
func (e *Event) KVSlots() int64 {
	if e.Kind == KindKVCache {
		return e.Requested
	}
	return e.Provided
}

// KVFirstBlock is the first of the blocks that a kv_reserve, kv_share or kv_free of a paged cache is about.
func (e *Event) KVFirstBlock() int64 { return e.Requested }

// KVPadding is how many slots of a contiguous kv_reserve are padding.
func (e *Event) KVPadding() int64 { return e.Requested }

// KVTokens is how many tokens a kv_append adds to the sequence; 0 ends it.
func (e *Event) KVTokens() int64 { return e.Requested }

// KVKept is how many slots, from the first on, keep their content after a kv_free.
func (e *Event) KVKept() int64 { return e.Requested }

// KVTokenBytes is the size of one slot of a kv_cache, in bytes.
func (e *Event) KVTokenBytes() int64 { return e.Provided }

// Source gives the events of one process in order, a batch at a time, and io.EOF at the
// end; a batch is valid until the next call. *[dataset.Reader] is one.
type Source interface {
	Next() (*Batch, error)
}

// Events are the events of a source, each valid until the next one. An error other than io.EOF ends them.
func Events(source Source) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		e := new(Event)
		for {
			b, err := source.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
			for i := range b.Seq {
				if b.Read(i, e); !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Batch is a run of consecutive events, one slice a column, all of equal length. It is
// valid until the next call to the reader that filled it.
type Batch struct {
	Seq, Time                         []int64
	Kind                              []Kind
	Device, Arena, Thread             []int32
	Stream, Addr, Requested, Provided []int64
	Context                           []int32
	Effects                           []Effect // nil but of a [Followed]
}

// Len is the number of events in the batch.
func (b *Batch) Len() int { return len(b.Seq) }

// Slice is the rows [from, to), in the memory of b.
func (b *Batch) Slice(from, to int) Batch {
	return Batch{
		Seq: b.Seq[from:to], Time: b.Time[from:to], Kind: b.Kind[from:to],
		Device: b.Device[from:to], Arena: b.Arena[from:to], Thread: b.Thread[from:to],
		Stream: b.Stream[from:to], Addr: b.Addr[from:to], Requested: b.Requested[from:to], Provided: b.Provided[from:to],
		Context: b.Context[from:to],
	}
}

// Head leaves only the first n rows.
func (b *Batch) Head(n int) { *b = b.Slice(0, n) }

// Append adds a row.
func (b *Batch) Append(e *Event) {
	b.Seq, b.Time, b.Kind = append(b.Seq, e.Seq), append(b.Time, e.Time), append(b.Kind, e.Kind)
	b.Device, b.Arena, b.Thread = append(b.Device, e.Device), append(b.Arena, e.Arena), append(b.Thread, e.Thread)
	b.Stream, b.Addr = append(b.Stream, e.Stream), append(b.Addr, e.Addr)
	b.Requested, b.Provided, b.Context = append(b.Requested, e.Requested), append(b.Provided, e.Provided), append(b.Context, e.Context)
}

// Read gathers row i into e: less work than Event for a caller that has one event for all rows.
func (b *Batch) Read(i int, e *Event) {
	e.Seq, e.Time, e.Kind = b.Seq[i], b.Time[i], b.Kind[i]
	e.Device, e.Arena, e.Thread, e.Stream = b.Device[i], b.Arena[i], b.Thread[i], b.Stream[i]
	e.Addr, e.Requested, e.Provided, e.Context = b.Addr[i], b.Requested[i], b.Provided[i], b.Context[i]
}

// Event gathers row i.
func (b *Batch) Event(i int) Event {
	var e Event
	b.Read(i, &e)
	return e
}
