package tune

import (
	"math"
	"slices"

	"github.com/memprof/memprof/bfc"
)

// triedHandles are sizes of a handle besides the default that preset compact is replayed with, in bytes: smaller ones
// leave less of a page unused, larger ones need fewer driver calls where pages move.
var triedHandles = []uint64{2 << 20, 8 << 20, 16 << 20, 32 << 20}

// Compared are the policies among which Recommend chooses: the presets, compact with a trim at the end of each iteration, and
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

// LeaveOutAlike leaves out the outcomes with other handles whose peak and driver calls differ by less than 1 % from those of
// the same preset with its own handles.
func (r *Result) LeaveOutAlike() {
	r.Outcomes = slices.DeleteFunc(r.Outcomes, func(o Outcome) bool {
		if o.Policy.Handle == 0 {
			return false
		}
		usual := slices.IndexFunc(r.Outcomes, func(u Outcome) bool {
			return u.Policy.Handle == 0 && u.Policy.Preset == o.Policy.Preset && u.Policy.Trim == o.Policy.Trim
		})
		if usual < 0 {
			return false
		}
		u := &r.Outcomes[usual]
		near := func(a, b float64) bool { return math.Abs(a-b) <= alike*b }
		return o.Refused == u.Refused && near(float64(o.PeakR), float64(u.PeakR)) && near(o.Calls.Sum(), u.Calls.Sum())
	})
}
