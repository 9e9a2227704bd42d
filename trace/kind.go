package trace

import "fmt"

// kindNames are the texts of the dataset's kind column.
var kindNames = map[Kind]string{
	KindArena:         "arena",
	KindAlloc:         "alloc",
	KindFree:          "free",
	KindFreeDone:      "free_done",
	KindMap:           "map",
	KindUnmap:         "unmap",
	KindGrowFailed:    "grow_failed",
	KindReclaim:       "reclaim",
	KindOOM:           "oom",
	KindIteration:     "iteration",
	KindPhaseBegin:    "phase_begin",
	KindPhaseEnd:      "phase_end",
	KindStreamUse:     "stream_use",
	KindPoolBegin:     "pool_begin",
	KindPoolEnd:       "pool_end",
	KindPoolRelease:   "pool_release",
	KindCheckpoint:    "checkpoint",
	KindRestore:       "restore",
	KindPause:         "pause",
	KindResume:        "resume",
	KindCaptureBegin:  "capture_begin",
	KindCaptureEnd:    "capture_end",
	KindExternalAlloc: "external_alloc",
	KindExternalFree:  "external_free",
	KindDeviceUsed:    "device_used",
	KindMapFailed:     "map_failed",
	KindStack:         "stack",
	KindLabel:         "label",
	KindStatistics:    "statistics",
	KindOverhead:      "overhead",
	KindAlias:         "alias",
	KindUnalias:       "unalias",
	KindKVReserve:     "kv_reserve",
	KindKVAppend:      "kv_append",
	KindKVShare:       "kv_share",
	KindKVFree:        "kv_free",
	KindKVCache:       "kv_cache",
	KindLost:          "lost",
}

var kindsByName = func() map[string]Kind {
	m := make(map[string]Kind, len(kindNames))
	for k, name := range kindNames {
		m[name] = k
	}
	return m
}()

// String is the text of k in the dataset's kind column, or "kind(N)" for a number that
// has none.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Valid says whether k is one of the kinds above.
func (k Kind) Valid() bool {
	_, ok := kindNames[k]
	return ok
}

// ParseKind is the inverse of [Kind.String]; ok is false for a text that names no kind.
func ParseKind(name string) (k Kind, ok bool) {
	k, ok = kindsByName[name]
	return k, ok
}
