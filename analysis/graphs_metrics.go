package analysis

import (
	"github.com/memprof/memprof/analysis/graphs"
)

// graphMetrics are about the memory of CUDA graphs. None has a value in a trace without captures.
var graphMetrics = []Metric{
	captured.number("graphs.captures", Count, "captures that ended", func(g *graphs.Result) int64 { return g.Captures }),
	ofStores("graphs.physical", "greatest R of pools that were captured in and of graph memories, summed", func(s *graphs.Store) int64 { return s.Physical }),
	ofStores("graphs.sum", "footprints of all shapes", func(s *graphs.Store) int64 { return s.Sum }),
	captured.number("graphs.max", Bytes, "the greatest footprint of a shape", func(g *graphs.Result) (most int64) {
		for i := range g.Stores {
			most = max(most, g.Stores[i].Max)
		}
		return most
	}),
	ofStores("graphs.saved", "what the same footprints would take apart, beyond what they take", func(s *graphs.Store) int64 { return s.Saved }),
	ofStores("graphs.untouched", "mapped in pools and graph memories for no shape", func(s *graphs.Store) int64 { return s.Untouched }),
	captured.metric("graphs.avoidable", Bytes, "what pools hold beyond what aliasing would, as replayed", func(g *graphs.Result) (float64, int64, bool) {
		bytes, ok := int64(0), true
		for _, w := range g.WhatIfs {
			ok = ok && w.Why == ""
			bytes += max(0, w.Physical-w.Aliased)
		}
		return float64(bytes), -1, ok
	}),
}

var captured = ofWhole(func(d *DeviceResult) *graphs.Result { return d.Graphs })

// ofStores is the sum over all stores.
func ofStores(name, help string, of func(*graphs.Store) int64) Metric {
	return captured.number(name, Bytes, help, func(g *graphs.Result) (sum int64) {
		for i := range g.Stores {
			sum += of(&g.Stores[i])
		}
		return sum
	})
}
