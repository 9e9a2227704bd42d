package tune

import (
	"slices"

	"github.com/memprof/memprof/bfc"
)

// alike is the share by which two sizes may differ and still count as equal.
const alike = 0.01

// Recommend returns the index of the outcome to choose, or -1 if there is none. Candidates served all requests
// and make a steady iteration longer by maxSlowdown at most (0.01 is 1 %). Each of these rules keeps some of
// them: the least peak of R, and then the least R of steady iterations, both give or take 1 %; the fewest waits
// for the device; the least cost; the least work in the background; presets; the least peak of R; the first in the list.
func (r *Result) Recommend(maxSlowdown float64) int {
	var left []int
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; o.Refused == 0 && o.Slowdown() <= maxSlowdown {
			left = append(left, i)
		}
	}
	left = r.least(left, func(o *Outcome) float64 { return float64(o.PeakR) }, alike)
	left = r.least(left, func(o *Outcome) float64 { return float64(o.SteadyR) }, alike)
	left = r.least(left, func(o *Outcome) float64 { return o.Waits }, 0)
	left = r.least(left, func(o *Outcome) float64 { return float64(o.Cost) }, 0)
	left = r.least(left, func(o *Outcome) float64 { return float64(o.Background) }, 0)
	if len(left) == 0 {
		return -1
	}
	if preset := slices.IndexFunc(left, func(i int) bool { return isPreset(&r.Outcomes[i].Policy) }); preset >= 0 {
		return left[preset]
	}
	return r.least(left, func(o *Outcome) float64 { return float64(o.PeakR) }, 0)[0]
}

// isPreset says whether a policy is a preset, in what tune tries.
func isPreset(p *bfc.Policy) bool { return p.Handle == 0 && p.Trim == bfc.Trim{} }

// least keeps the outcomes whose value is the least, or greater by a share of it at most.
func (r *Result) least(of []int, value func(*Outcome) float64, share float64) []int {
	if len(of) == 0 {
		return nil
	}
	least := value(&r.Outcomes[of[0]])
	for _, i := range of {
		least = min(least, value(&r.Outcomes[i]))
	}
	var kept []int
	for _, i := range of {
		if value(&r.Outcomes[i]) <= least*(1+share) {
			kept = append(kept, i)
		}
	}
	return kept
}
