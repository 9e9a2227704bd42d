package tune

import "github.com/memprof/memprof/bfc"

// triedHandles are sizes of a handle besides the default that preset compact is replayed with, in bytes: smaller ones
// leave less of a page unused, larger ones need fewer driver calls where pages move.
var triedHandles = []uint64{2 << 20, 8 << 20, 16 << 20, 32 << 20}

// Compared are the policies worth comparing: the presets, compact with a trim at the end of each iteration, and
// compact with other handles.
func Compared() []bfc.Policy {
	trimmed := bfc.Compact.Policy()
	trimmed.Trim.When = bfc.TrimIteration
	all := []bfc.Policy{bfc.Classic.Policy(), bfc.Compact.Policy(), trimmed}
	for _, handle := range triedHandles {
		p := bfc.Compact.Policy()
		p.Handle = handle
		all = append(all, p)
	}
	return all
}
