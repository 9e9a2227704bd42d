package trace

import "strings"

// Kind says what happened. The numbers are those of hooks/capture/spool/record.h.
type Kind uint8

// Addresses, sizes and totals are in bytes. "-" marks a column that is 0 for the kind.
//
//	kind            addr         requested       provided         context
//	arena           reservation  limit           reservation size options, key=value
//	alloc           chunk        bytes asked     chunk size       requester
//	free            chunk        bytes asked     chunk size       -
//	free_done       chunk        bytes asked     chunk size       -
//	map             first byte   bytes asked (1) bytes mapped     -
//	unmap           first byte   - (1)           bytes unmapped   -
//	grow_failed     -            bytes asked     -                -
//	map_failed      first byte   bytes asked     -                -
//	reclaim         -            bytes wanted    -                why
//	oom             -            bytes asked     -                requester
//	iteration       -            number, from 0  -                label
//	phase_begin/end -            -               -                name, then uses=
//	stream_use      chunk        -               -                - (stream = the other stream)
//	device_used     -            total           used             readings (2): all=1, pid=
//	external_alloc  address      bytes asked     bytes asked      call=, library=
//	external_free   address      -               -                call=, library=
//	pool_begin/end  -            -               -                pool=
//	pool_release    -            -               -                pool=
//	capture_begin   -            captures now    -                name=, pool=, inputs=
//	capture_end     -            captures now    -                name=, pool=, inputs=
//	checkpoint      -            live chunks     their bytes      pool=
//	restore         chunk        bytes asked     chunk size       -
//	pause, resume   ns it took   bytes mapped    bytes copied     tag=, failed=
//	stack           -            node, from 1    parent, 0: none  the frame
//	label           chunk        -               -                category=, name=
//	statistics      greatest C   R               C                the allocator
//	overhead        -            -               bytes, signed    what was loaded
//	alias           first byte   offset in store bytes taken     store=
//	unalias         first byte   offset in store bytes returned  store=
//	kv_reserve      sequence     first block     slots            prompt=
//	kv_append       sequence     tokens          -                -
//	kv_share        sequence     first block     slots            position=, prompt=
//	kv_free         sequence     slots kept      slots            -
//	kv_cache        -            slots           bytes a token    layout=, block=, null=, engine=, name=, beams=
//
// A context is a text of fields, name=value, with a tab between two; a text without a known
// name is a label of the requester's own. Fields of requests: module= (the dotted path of
// the innermost module), stack= (the number of a stack event, its innermost frame).
// uses= of a phase lists, with blanks between, the tags that its caller says it needs.
// Fields of overhead: what= (context, module, library, graph, pool), name=, and how= it was
// measured: by the use of this process (process), or by that of the whole device, its growth
// (device) or all of it (total). Without how= a context was measured by the use of this process,
// and all else by the growth of the whole device's. others= is how many other processes the
// driver listed then.
// Fields of labels: category= (weights, gradients, optimizer, inputs, kv_cache), name=.
//
// (1) A map of 0 bytes asked is ahead of need: granules that had been given back are mapped
// again between requests. An unmap with its bytes as asked took free granules for the request
// under way, to be used elsewhere.
//
// (2) Those without an arena, in a trace of readings or of a process that reads for itself.
// They say at what time a number was read, which the order of events does not.
//
// Order. A request's memory events (device_used, grow_failed, map, map_failed) come
// before the alloc, reclaim or oom that ends the attempt, and carry its arena. An
// `oom`, or a `reclaim` with an arena, says that the attempt of `requested` bytes
// failed; after a reclaim come the unmaps it made and then the next attempt's events.
// A free is final, unless the chunk has a stream_use on another stream than its own:
// then it is pending until its free_done. A `restore` makes a chunk live at a place that
// no policy chose: a checkpoint had it there. A pool_release with an arena is the last
// event of that arena: nothing of it is mapped or live any more. Between a pause and a resume
// of 1 byte or more nothing of the arena is mapped; blocks may be freed, and an unmap says what
// the resume leaves out. One that failed says why, and of 0 bytes.
//
// Watched. Arenas whose options say allocator= and provided=unknown are of an allocator that
// told of its requests and segments, but not of its chunks: what is provided to an alloc is
// then what was asked for. The streams for which a free waits are not told either, so the
// stream of their stream_use is -1. A statistics event has the allocator's own sums as they
// are after the events of its device before.
//
// Graph memory. The graphs of many shapes, of which one replays at a time, share the physical
// memory of a store. A store is an arena with graph_memory= (its number) and store=1, of which
// there are maps and unmaps at its end alone. Nothing lies at its addresses, which name its
// pages. A shape has a range of addresses of its own: the arenas with graph_memory= and shape=,
// one for each stream, with the range in their addr and provided; the arenas of one range have
// the same addr. They grow by alias events in place of maps, each at the range's next bytes,
// addr being the range's start and the offset. Bytes of aliases are addresses: what is mapped is
// the store, which is as large as the largest range and is mapped into all of them in full.
// store= is the number of the store's arena. With segments=1 the blocks of a range are segments
// of a watched allocator: its arena has a map over each of them, of memory that is the store's.
//
// Keys and values. The kv_ events tell of a cache in slots, each for the keys and values of one
// token; their stream is the number of the cache, and a kv_cache comes before all others of it.
// Its layout is contiguous or paged. Of 0 slots it has what is reserved at any time. Slots that
// are reserved come behind those that the sequence has, and its tokens fill them in their order.
// A paged cache has blocks of block= slots, which are named by number, in a row from the first;
// null= of them are never handed out. beams= sequences of it have a prompt in common, and each
// has its own copy of the prompt. In a contiguous one requested says how many of the slots
// are padding. A kv_reserve of sequence -1 is one for each sequence of the cache, a kv_append one
// for each that has tokens and has not ended. A kv_append of no tokens ends a sequence that keeps
// its slots. With a position= a kv_share replaces the sequence's block there; of sequence -1 it
// says that the content of free blocks is kept. A kv_free says how many slots from the first on
// keep their content, if nobody else uses them. Of sequence -1 it drops the content of blocks in
// a row, or, of no slots, ends the cache and all sequences in it.
const (
	KindInvalid       Kind = 0
	KindArena         Kind = 1
	KindAlloc         Kind = 2
	KindFree          Kind = 3
	KindFreeDone      Kind = 4
	KindMap           Kind = 5
	KindUnmap         Kind = 6
	KindGrowFailed    Kind = 7
	KindReclaim       Kind = 8
	KindOOM           Kind = 9
	KindIteration     Kind = 10
	KindPhaseBegin    Kind = 11
	KindPhaseEnd      Kind = 12
	KindStreamUse     Kind = 13
	KindPoolBegin     Kind = 14
	KindPoolEnd       Kind = 15
	KindPoolRelease   Kind = 16
	KindCheckpoint    Kind = 17
	KindRestore       Kind = 18
	KindPause         Kind = 19
	KindResume        Kind = 20
	KindCaptureBegin  Kind = 21
	KindCaptureEnd    Kind = 22
	KindExternalAlloc Kind = 23
	KindExternalFree  Kind = 24
	KindDeviceUsed    Kind = 25
	KindMapFailed     Kind = 26
	KindStack         Kind = 27
	KindLabel         Kind = 28
	KindStatistics    Kind = 29
	KindOverhead      Kind = 30
	KindAlias         Kind = 31
	KindUnalias       Kind = 32
	KindKVReserve     Kind = 40
	KindKVAppend      Kind = 41
	KindKVShare       Kind = 42
	KindKVFree        Kind = 43
	KindKVCache       Kind = 44
	// KindLost is written by readers of a spool only: a slot that a dying process
	// had claimed and not filled.
	KindLost Kind = 63
)

// PhaseName is the name in the context of a phase's events, without the tags that it uses.
func PhaseName(context string) string {
	name, _, _ := strings.Cut(context, "\t")
	return name
}

// NoArena and NoDevice stand in Event.Arena and Event.Device of events that belong to none.
const (
	NoArena  int32 = -1
	NoDevice int32 = -1
)

// Event is one decision, in the units of the dataset's columns.
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

// Batch is a run of consecutive events, one slice a column, all of equal length. It is
// valid until the next call to the reader that filled it.
type Batch struct {
	Seq, Time                         []int64
	Kind                              []Kind
	Device, Arena, Thread             []int32
	Stream, Addr, Requested, Provided []int64
	Context                           []int32
}

// Len is the number of events in the batch.
func (b *Batch) Len() int { return len(b.Seq) }

// Event gathers row i.
func (b *Batch) Event(i int) Event {
	return Event{
		Seq: b.Seq[i], Time: b.Time[i], Kind: b.Kind[i],
		Device: b.Device[i], Arena: b.Arena[i], Thread: b.Thread[i], Stream: b.Stream[i],
		Addr: b.Addr[i], Requested: b.Requested[i], Provided: b.Provided[i], Context: b.Context[i],
	}
}
