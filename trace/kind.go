package trace

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what happened. This file is the one description of the kinds: the list of them in
// hooks/capture/spool/record.h and `memprof help events` are written from it
// (go test ./cmd/memprof -run TestKindsOfTheHook -update).
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
	KindTotals        Kind = 45
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
	says      string // what happened
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
		name: "arena", says: "an arena was made",
		addr: "start of the address reservation", requested: "most that it may reserve", provided: "size of the address reservation",
		context: "what it is for, and its policy", form: formOptions, changes: ChangesMapped,
		fields: "growth split headroom fraction gc trim placement below granularity coalesces pages fences takes gives pool tag main total uuid " +
			"graph_memory store shape segments allocator provided class conf",
	},
	KindAlloc: {
		name: "alloc", says: "a chunk was handed out",
		addr: "chunk", requested: "the request", provided: "size of the chunk",
		context: "origin", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindFree: {
		name: "free", says: "the job freed a chunk",
		addr: "chunk", requested: "the request", provided: "size of the chunk",
		context: "who frees, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindFreeDone: {
		name: "free_done", says: "a freed chunk that other streams used became reusable",
		addr: "chunk", requested: "the request", provided: "size of the chunk",
		context: "who frees, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindMap: {
		name: "map", says: "physical memory was mapped: a growth at the end of the arena, or pages inside it again",
		addr: "start", requested: "size of the request that needs it; 0: none", provided: "mapped",
		context: "who requests, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesMapped,
	},
	KindUnmap: {
		name: "unmap", says: "free pages were unmapped",
		addr: "start", requested: "size of the request that maps as much elsewhere; 0: for no request", provided: "unmapped",
		context: "who unmaps, in an imported recording", form: formOrigin, fields: originFields, changes: ChangesMapped,
	},
	KindGrowFailed: {name: "grow_failed", says: "the device refused a growth", requested: "refused by the device"},
	KindReclaim:    {name: "reclaim", says: "an attempt failed, or, without an arena, another library needs memory: unmaps follow", requested: "wanted", context: "who wants memory: framework, empty_cache, request; waited: one of these, once the device was waited for", form: formText},
	KindOOM: {
		name: "oom", says: "a request failed",
		requested: "the request", provided: "free memory of the device, of an imported recording; 0: not known",
		context: "origin", form: formOrigin, fields: originFields,
	},
	KindIteration:  {name: "iteration", says: "an iteration ended", requested: "number of the iteration that ends, from 0", context: "label", form: formText},
	KindPhaseBegin: {name: "phase_begin", says: "a phase began", context: "name, then uses=: the tags that the phase needs, with blanks between", form: formNamed, fields: "uses"},
	KindPhaseEnd:   {name: "phase_end", says: "a phase ended", context: "that of its phase_begin", form: formNamed, fields: "uses"},
	KindStreamUse:  {name: "stream_use", says: "the stream of the event uses a live chunk of another stream", addr: "chunk", changes: ChangesLive},
	KindPoolBegin:  {name: "pool_begin", says: "requests go to a pool from now on", context: "the pool", fields: "pool"},
	KindPoolEnd:    {name: "pool_end", says: "requests no longer go to a pool", context: "the pool", fields: "pool"},
	KindPoolRelease: {
		name: "pool_release", says: "nothing uses a pool any more; the last event of the arena",
		context: "the pool", fields: "pool", changes: ChangesLive | ChangesMapped,
	},
	KindCheckpoint: {name: "checkpoint", says: "the live chunks of a pool were noted", requested: "number of live chunks", provided: "in these chunks", context: "the pool", fields: "pool"},
	KindRestore: {
		name: "restore", says: "a chunk of a checkpoint is live again, at its place",
		addr: "chunk", requested: "the request", provided: "size of the chunk",
		context: "origin", form: formOrigin, fields: originFields, changes: ChangesLive,
	},
	KindPause: {
		name: "pause", says: "the memory of a tag was unmapped; its addresses stay",
		addr: "duration, ns", requested: "unmapped; 0: it failed, or nothing was mapped", provided: "copied to the host",
		context: "the tag, and by=source where the source of a pool did it; if it failed, why", fields: "tag by failed", changes: ChangesMapped,
	},
	KindResume: {
		name: "resume", says: "the memory of a tag was mapped again",
		addr: "duration, ns", requested: "mapped; 0: it failed, or nothing was left", provided: "copied from the host",
		context: "the tag, by=source where the source of a pool did it, and free=1 where pages without a block were wanted, too; if it failed, why",
		fields:  "tag by free failed", changes: ChangesMapped,
	},
	KindCaptureBegin: {name: "capture_begin", says: "the capture of a CUDA graph began", requested: "number of captures under way", context: "the graph", fields: captureFields},
	KindCaptureEnd:   {name: "capture_end", says: "the capture of a CUDA graph ended", requested: "number of captures under way", context: "the graph", fields: captureFields},
	KindExternalAlloc: {
		name: "external_alloc", says: "another library allocated memory",
		addr: "address", requested: "the request", provided: "the same",
		context: "the CUDA call of another library", fields: "call library managed host pool",
	},
	KindExternalFree: {
		name: "external_free", says: "another library freed memory",
		addr: "address", requested: "of a segment that a native allocator had before its first event: 1 if it is of the small pool",
		provided: "of a block that it had: the block's size; its alloc comes next",
		context:  "the CUDA call of another library, or the native allocator", fields: "call library managed host pool",
	},
	KindDeviceUsed: {name: "device_used", says: "the used memory of a device was read", requested: "all memory of the device", provided: "used", context: "without an arena: by whom", fields: "all pid"},
	KindMapFailed:  {name: "map_failed", says: "the device refused to map pages inside an arena again", addr: "start", requested: "refused by the device"},
	KindStack:      {name: "stack", says: "a node of the tree of call stacks", requested: "number of the node, from 1", provided: "number of its parent, 0: none", context: "the frame", form: formText},
	KindLabel:      {name: "label", says: "what a live chunk holds", addr: "chunk", context: "what it holds", fields: "category name optimizer workspace workspace_most"},
	KindStatistics: {
		name: "statistics", says: "the sums of an allocator that is observed",
		addr: "greatest provided so far", requested: "reserved", provided: "provided", context: "the native allocator", form: formText,
	},
	KindOverhead: {
		name: "overhead", says: "driver overhead changed",
		provided: "growth of driver overhead, signed", context: "what was loaded, and how it was measured",
		fields: "what name how others",
	},
	KindAlias:    {name: "alias", says: "a range of a graph memory got pages of its store", addr: "start", requested: "offset in the store", provided: "mapped there", context: "arena of the store", fields: "store", changes: ChangesMapped},
	KindUnalias:  {name: "unalias", says: "a range of a graph memory returned pages", addr: "start", requested: "offset in the store", provided: "unmapped there", context: "arena of the store", fields: "store", changes: ChangesMapped},
	KindShortage: {name: "shortage", says: "the device is short of memory: the allocator of the arena counts pages from now on"},
	KindShrink:   {name: "shrink", says: "a live chunk lost its slack", addr: "chunk", requested: "the request", provided: "size of the chunk from now on", changes: ChangesLive},
	KindRegister: {
		name: "register", says: "others know memory by its physical pages, which stay mapped where they are",
		addr: "start", provided: "registered",
		context: "the call by which they know it", fields: "by",
	},
	KindDeregister: {name: "deregister", says: "one registration of memory is over", addr: "start", provided: "registered"},
	KindTake: {
		name: "take", says: "a request looked for free pages of another arena",
		requested: "wanted, before the arena of the request maps more",
		context:   "the other arena", fields: "arena",
	},
	KindFence: {
		name: "fence", says: "all work on all streams is over that was queued before frees of the arena",
		provided: "how many of its frees, counted from the first",
	},
	KindKVReserve: {name: "kv_reserve", says: "a sequence got slots of a KV cache", addr: "sequence", requested: "first block, or padding slots", provided: "slots", context: "tokens of the prompt; whether it comes back from the host", fields: "prompt swap"},
	KindKVAppend:  {name: "kv_append", says: "tokens filled slots of a sequence", addr: "sequence", requested: "tokens"},
	KindKVShare:   {name: "kv_share", says: "a sequence uses blocks of other sequences, or kept ones", addr: "sequence", requested: "first block", provided: "slots", context: "its place in the block table", fields: "position prompt"},
	KindKVFree: {name: "kv_free", says: "a sequence gave up its slots", addr: "sequence", requested: "slots kept, or the first block", provided: "slots",
		context: "whether it goes to the host", fields: "swap"},
	KindKVCache: {
		name: "kv_cache", says: "describes a KV cache",
		requested: "slots", provided: "bytes of a token", context: "the cache",
		fields: "layout block null engine name beams",
	},
	KindTotals: {
		name: "totals", says: "what the process, or memprof's allocator on a device, has counted so far",
		addr:      "events before this one, requests, frees, or driver calls",
		requested: "of the requests, or of the frees; calls: their duration, ns; events: 1 for the last of the process",
		provided:  "calls: how long the GPU was waited for, ns",
		context:   "what is counted: events, requests, frees, calls", fields: "of",
	},
	KindLost: {name: "lost", says: "a process died between claiming this slot and filling it; written by readers of a spool only"},
}

func (k Kind) row() *kindRow {
	if int(k) < len(kinds) {
		return &kinds[k]
	}
	return &kinds[KindInvalid]
}

// KindInfo describes the events of a kind: its name, and what happened. Texts of columns are "" where the column is 0; columns are
// in bytes unless the text has another unit.
type KindInfo struct {
	Kind                               Kind
	Name, Says                         string
	Addr, Requested, Provided, Context string
	Fields                             []string // names that the context may have
}

// Column is what a column holds in the events of a kind.
type Column struct{ Name, Holds string }

// Columns are the columns that depend on the kind and are not 0 in it.
func (k *KindInfo) Columns() []Column {
	all := []Column{{"addr", k.Addr}, {"requested", k.Requested}, {"provided", k.Provided}, {"context", k.Context}}
	return slices.DeleteFunc(all, func(c Column) bool { return c.Holds == "" })
}

// Kinds are all kinds, by number.
func Kinds() []KindInfo {
	var infos []KindInfo
	for k := range kinds {
		if r := &kinds[k]; r.name != "" {
			infos = append(infos, KindInfo{Kind(k), r.name, r.says, r.addr, r.requested, r.provided, r.context, strings.Fields(r.fields)})
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

// MarshalText returns the kind's name, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Valid says whether k is one of the kinds above.
func (k Kind) Valid() bool { return k.row().name != "" }

// ParseKind is the inverse of [Kind.String]; ok is false for a text that names no kind.
func ParseKind(name string) (k Kind, ok bool) {
	k, ok = kindsByName[name]
	return k, ok
}
