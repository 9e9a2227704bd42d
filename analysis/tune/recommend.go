package tune

// alike is how far apart two sizes may be and still count as the same: a share.
const alike = 0.01

// Recommend is the index of the outcome to choose, or -1 if none will do. It must have served all
// requests and cost a steady step no more than maxSlowdown (0.01: a hundredth). Of those, the ones
// with the least peak of R, of them the ones with the least R in steady state, each within
// one part in a hundred; of what is left the one with the fewest waits for the device, then the
// least cost, then the one that comes first.
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
	return left[0]
}

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
