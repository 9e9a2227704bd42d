package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
)

// attributionMetrics are about the origins of live allocations. None has a value in a trace without origins, and
// none of a phase in a trace without that phase.
var attributionMetrics = func() []Metric {
	var out []Metric
	for c := attribution.Weights; c <= attribution.Other; c++ {
		out = append(out, ofCategory(c, c.Rule())...)
	}
	for _, phase := range []string{"data", "forward", "backward", "optimizer", "other"} {
		out = append(out, ofPhase(phase)...)
	}
	return out
}()

// held are the live allocations at the peak, of a trace that says who requested them.
var held = ofWhole(func(d *DeviceResult) *DeviceResult {
	if d.Held == nil || !d.Held.Known {
		return nil
	}
	return d
})

// ofCategory is what blocks of a category requested at the peak: its share of T there, and
// its bytes.
func ofCategory(c attribution.Category, help string) []Metric {
	bytes := func(d *DeviceResult) int64 {
		g := d.Held.Categories.Of(c.String())
		return g.Requested
	}
	name := "category." + c.String()
	return []Metric{
		held.metric(name, Share, help+"; share of T at the peak", func(d *DeviceResult) (float64, int64, bool) {
			return share(bytes(d), d.Peak.T), d.Peak.Seq, d.Peak.T > 0
		}),
		held.metric(name+".bytes", Bytes, help+"; requested at the peak", func(d *DeviceResult) (float64, int64, bool) {
			return float64(bytes(d)), d.Peak.Seq, true
		}),
	}
}

func ofPhase(name string) []Metric {
	find := func(d *DeviceResult) int {
		return slices.IndexFunc(d.Phases, func(u attribution.PhaseUse) bool { return u.Phase == name })
	}
	use := ofWhole(func(d *DeviceResult) *attribution.PhaseUse {
		if at := find(d); at >= 0 {
			return &d.Phases[at]
		}
		return nil
	})
	repeated := ofWhole(func(d *DeviceResult) *DeviceResult {
		if find(d) < 0 || d.IterationCount() == 0 {
			return nil
		}
		return d
	})
	during := "while phase " + name + " is the innermost"
	if name == "other" {
		during = "outside of all phases"
	}
	return []Metric{
		use.number("phase."+name+".peak", Bytes, "greatest T "+during, func(u *attribution.PhaseUse) int64 { return u.PeakT }),
		repeated.metric("phase."+name+".allocated", Bytes, "requested "+during+", an iteration", func(d *DeviceResult) (float64, int64, bool) {
			return float64(d.Phases[find(d)].AllocBytes) / float64(d.IterationCount()), -1, true
		}),
	}
}
