package analysis

// attributionMetrics are about the origins of live allocations. None has a value in a trace without origins, and
// none of a phase in a trace without that phase.
var attributionMetrics = func() []Metric {
	help := map[Category]string{
		Weights:     "parameters and buffers, as labelled",
		Gradients:   "gradients, as labelled",
		Optimizer:   "the optimizer's state, as labelled",
		Activations: "allocated in forward and alive beyond it",
		Inputs:      "inputs, as labelled, or allocated in the data phase and alive beyond it",
		KVCache:     "KV caches, as labelled",
		CUDAGraphs:  "pools of CUDA graphs",
		Workspace:   "allocated in a phase and freed within it",
		Other:       "no label; phase and lifetime do not decide",
	}
	var out []Metric
	for c := Weights; c <= Other; c++ {
		out = append(out, ofCategory(c, help[c])...)
	}
	for _, phase := range []string{"data", "forward", "backward", "optimizer", "other"} {
		out = append(out, ofPhase(phase)...)
	}
	return out
}()

// ofCategory is what blocks of a category requested at the peak: its share of T there, and
// its bytes.
func ofCategory(c Category, help string) []Metric {
	bytes := func(d *DeviceResult) int64 {
		g := d.Held.Categories.Of(c.String())
		return g.Requested
	}
	name := "category." + c.String()
	return []Metric{
		{name, Share, help + "; share of T at the peak", func(d *DeviceResult) (float64, int64, bool) {
			return share(bytes(d), d.Peak.T), d.Peak.Seq, d.Held.Known && d.Peak.T > 0
		}},
		{name + ".bytes", Bytes, help + "; requested at the peak", func(d *DeviceResult) (float64, int64, bool) {
			return float64(bytes(d)), d.Peak.Seq, d.Held.Known
		}},
	}
}

func ofPhase(name string) []Metric {
	of := func(d *DeviceResult) (PhaseUse, bool) {
		for _, u := range d.Phases {
			if u.Phase == name {
				return u, true
			}
		}
		return PhaseUse{}, false
	}
	during := "while phase " + name + " is the innermost"
	if name == "other" {
		during = "outside of all phases"
	}
	return []Metric{
		{"phase." + name + ".peak", Bytes, "greatest T " + during, func(d *DeviceResult) (float64, int64, bool) {
			u, ok := of(d)
			return float64(u.PeakT), -1, ok
		}},
		{"phase." + name + ".allocated", Bytes, "requested " + during + ", an iteration", func(d *DeviceResult) (float64, int64, bool) {
			u, ok := of(d)
			if n := d.IterationCount(); n > 0 {
				return float64(u.AllocBytes) / float64(n), -1, ok
			}
			return 0, -1, false
		}},
	}
}
