package trace

import (
	"fmt"
	"strings"
)

// Kind says what happened. The numbers are those of hooks/capture/spool/record.h.
type Kind uint8

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
	KindShortage      Kind = 33
	KindShrink        Kind = 34
	KindRegister      Kind = 35
	KindDeregister    Kind = 36
	KindTake          Kind = 37
	KindFence         Kind = 38
	KindKVReserve     Kind = 40
	KindKVAppend      Kind = 41
	KindKVShare       Kind = 42
	KindKVFree        Kind = 43
	KindKVCache       Kind = 44
	// KindLost is written by readers of a spool only: a slot that a dying process
	// had claimed and not filled.
	KindLost Kind = 63
)

// Changes says what an event of a kind changes; [Live] follows both.
type Changes uint8

const (
	// ChangesLive: which chunks are live or pending free.
	ChangesLive Changes = 1 << iota
	// ChangesMapped: which memory arenas have mapped or paused, or which arenas there are.
	ChangesMapped
)

// kindRow is what there is to know of a kind. Columns are in bytes, addresses included, unless
// their text has another unit; a column without a text is 0 for the kind.
type kindRow struct {
	name      string // in the dataset's kind column
	addr      string
	requested string
	provided  string
	context   string      // "" for none
	form      contextForm // by what grammar the context is read
	fields    string      // names of the fields that it may have, with blanks between
	changes   Changes     // 0: the kind only marks
}

const (
	originFields  = "module stack category name"
	captureFields = "name pool inputs"
)

// kinds has a row for each kind, by number. [Context] describes the grammar of contexts and
// [Event] what the rows have no room for: the order of events, and those about a native allocator,
// graph memory and the KV cache.
var kinds = [KindLost + 1]kindRow{
	KindArena: {
		name: "arena", addr: "start of its address reservation", requested: "most that it may reserve", provided: "size of its address reservation",
		context: "what it is for, and its policy", form: formOptions, changes: ChangesMapped,
		fields: "growth split headroom fraction gc trim placement below granularity coalesces pages fences takes gives pool tag main uuid " +
			"graph_memory store shape segments allocator provided class conf",
	},
	KindAlloc: {
		name: "alloc", addr: "chunk", requested: "requested", provided: "size of the chunk",
		context: "origin", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindFree: {
		name: "free", addr: "chunk", requested: "requested", provided: "size of the chunk",
		context: "who frees, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindFreeDone: {
		name: "free_done", addr: "chunk", requested: "requested", provided: "size of the chunk",
		context: "who frees, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindMap: {
		name: "map", addr: "start", requested: "the request that needs it; 0: none", provided: "mapped",
		context: "who requests, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesMapped,
	},
	KindUnmap: {
		name: "unmap", addr: "start", requested: "the request that takes the pages to map them elsewhere; 0: for no request", provided: "unmapped",
		context: "who unmaps, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesMapped,
	},
	KindGrowFailed: {name: "grow_failed", requested: "refused by the device"},
	KindReclaim:    {name: "reclaim", requested: "wanted", context: "who wants memory: framework, empty_cache, request; waited: one of these, once the device was waited for", form: formText},
	KindOOM: {
		name: "oom", requested: "requested", provided: "free memory of the device, of an imported recording; 0: not known",
		context: "origin", form: formOrigin, fields: originFields,
	},
	KindIteration:  {name: "iteration", requested: "number of the iteration that ends, from 0", context: "label", form: formText},
	KindPhaseBegin: {name: "phase_begin", context: "name, then uses=: the tags that the phase needs, with blanks between", form: formNamed, fields: "uses"},
	KindPhaseEnd:   {name: "phase_end", context: "that of its phase_begin", form: formNamed, fields: "uses"},
	KindStreamUse:  {name: "stream_use", addr: "chunk that the event's stream uses too", changes: ChangesLive},
	KindPoolBegin:  {name: "pool_begin", context: "the pool that requests now go to", fields: "pool"},
	KindPoolEnd:    {name: "pool_end", context: "the pool that requests no longer go to", fields: "pool"},
	KindPoolRelease: {
		name: "pool_release", context: "the pool that nothing uses any more; its last event of an arena", fields: "pool", changes: ChangesLive | ChangesMapped,
	},
	KindCheckpoint: {name: "checkpoint", requested: "number of live chunks", provided: "in these chunks", context: "the pool", fields: "pool"},
	KindRestore: {
		name: "restore", addr: "chunk", requested: "requested", provided: "size of the chunk",
		context: "origin", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindPause: {
		name: "pause", addr: "duration, ns", requested: "unmapped; 0: it failed, or nothing was mapped", provided: "copied to the host",
		context: "the tag, and by=source where the source of a pool did it; if it failed, why", fields: "tag by failed", changes: ChangesMapped,
	},
	KindResume: {
		name: "resume", addr: "duration, ns", requested: "mapped; 0: it failed, or nothing was left", provided: "copied from the host",
		context: "the tag, by=source where the source of a pool did it, and free=1 where pages without a block were wanted, too; if it failed, why",
		fields:  "tag by free failed", changes: ChangesMapped,
	},
	KindCaptureBegin: {name: "capture_begin", requested: "number of captures under way", context: "the graph", fields: captureFields},
	KindCaptureEnd:   {name: "capture_end", requested: "number of captures under way", context: "the graph", fields: captureFields},
	KindExternalAlloc: {
		name: "external_alloc", addr: "address", requested: "requested", provided: "requested",
		context: "the CUDA call of another library", fields: "call library managed host pool communicator ranks",
	},
	KindExternalFree: {name: "external_free", addr: "address", context: "the CUDA call of another library", fields: "call library managed host pool communicator ranks"},
	KindDeviceUsed:   {name: "device_used", requested: "of the device", provided: "of it in use", context: "without an arena: by whom", fields: "all pid"},
	KindMapFailed:    {name: "map_failed", addr: "start", requested: "refused by the device"},
	KindStack:        {name: "stack", requested: "number of the node, from 1", provided: "number of its parent, 0: none", context: "the frame", form: formText},
	KindLabel:        {name: "label", addr: "chunk", context: "what it holds", fields: "category name"},
	KindStatistics: {
		name: "statistics", addr: "greatest provided so far", requested: "reserved", provided: "provided", context: "the native allocator", form: formText,
	},
	KindOverhead: {
		name: "overhead", provided: "growth of driver overhead, signed", context: "what was loaded, and how it was measured",
		fields: "what name how others",
	},
	KindAlias:    {name: "alias", addr: "start", requested: "offset in the store", provided: "mapped there", context: "arena of the store", fields: "store", changes: ChangesMapped},
	KindUnalias:  {name: "unalias", addr: "start", requested: "offset in the store", provided: "unmapped there", context: "arena of the store", fields: "store", changes: ChangesMapped},
	KindShortage: {name: "shortage"},
	KindShrink:   {name: "shrink", addr: "chunk", requested: "requested", provided: "size of the chunk from now on", changes: ChangesLive},
	KindRegister: {
		name: "register", addr: "start of memory that others know by its physical pages, which stay mapped there", provided: "of it",
		context: "the call by which they know it", fields: "by",
	},
	KindDeregister: {name: "deregister", addr: "start of memory of which one registration is over", provided: "of it"},
	KindTake: {
		name: "take", requested: "that a request wants of free pages of another arena, before its own arena maps more",
		context: "the other arena; none: a stream is captured, so that none can be asked for", fields: "arena",
	},
	KindFence: {
		name: "fence", provided: "number of frees of the arena, from the first on, before which all work on all streams is over",
	},
	KindKVReserve: {name: "kv_reserve", addr: "sequence", requested: "first block, or padding slots", provided: "slots", context: "tokens of the prompt; whether it comes back from the host", fields: "prompt swap"},
	KindKVAppend:  {name: "kv_append", addr: "sequence", requested: "tokens"},
	KindKVShare:   {name: "kv_share", addr: "sequence", requested: "first block", provided: "slots", context: "its place in the block table", fields: "position prompt"},
	KindKVFree: {name: "kv_free", addr: "sequence", requested: "slots kept, or the first block", provided: "slots",
		context: "whether it goes to the host", fields: "swap"},
	KindKVCache: {
		name: "kv_cache", requested: "slots", provided: "bytes of a token", context: "the cache",
		fields: "layout block null engine name beams",
	},
	KindLost: {name: "lost"},
}

func (k Kind) row() *kindRow {
	if int(k) < len(kinds) {
		return &kinds[k]
	}
	return &kinds[KindInvalid]
}

// KindInfo describes the events of a kind. Texts of columns are "" where the column is 0; columns are
// in bytes unless the text has another unit.
type KindInfo struct {
	Kind                               Kind
	Addr, Requested, Provided, Context string
	Fields                             []string // names that the context may have
	Changes                            Changes  // 0: the kind only marks
}

// Kinds are all kinds, by number.
func Kinds() []KindInfo {
	var infos []KindInfo
	for k := range kinds {
		if r := &kinds[k]; r.name != "" {
			infos = append(infos, KindInfo{Kind(k), r.addr, r.requested, r.provided, r.context, strings.Fields(r.fields), r.changes})
		}
	}
	return infos
}

// Changes says what memory events of the kind change.
func (k Kind) Changes() Changes { return k.row().changes }

var kindsByName = func() map[string]Kind {
	m := make(map[string]Kind, len(kinds))
	for k := range kinds {
		if name := kinds[k].name; name != "" {
			m[name] = Kind(k)
		}
	}
	return m
}()

// String is the text of k in the dataset's kind column, or "kind(N)" for a number that
// has none.
func (k Kind) String() string {
	if name := k.row().name; name != "" {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Valid says whether k is one of the kinds above.
func (k Kind) Valid() bool { return k.row().name != "" }

// ParseKind is the inverse of [Kind.String]; ok is false for a text that names no kind.
func ParseKind(name string) (k Kind, ok bool) {
	k, ok = kindsByName[name]
	return k, ok
}
