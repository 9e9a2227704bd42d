package analysis

// graphMetrics are about the memory of CUDA graphs. None has a value in a trace without captures.
var graphMetrics = []Metric{
	ofGraphs("graphs.captures", Count, "captures that ended", func(g *Graphs) int64 { return g.Captures }),
	ofStores("graphs.physical", "greatest R of pools that were captured in and of graph memories, summed", func(s *GraphStore) int64 { return s.Physical }),
	ofStores("graphs.sum", "footprints of all shapes", func(s *GraphStore) int64 { return s.Sum }),
	ofGraphs("graphs.max", Bytes, "the greatest footprint of a shape", func(g *Graphs) (most int64) {
		for i := range g.Stores {
			most = max(most, g.Stores[i].Max)
		}
		return most
	}),
	ofStores("graphs.saved", "what the same footprints would take apart, beyond what they take", func(s *GraphStore) int64 { return s.Saved }),
	ofStores("graphs.untouched", "mapped in pools and graph memories for no shape", func(s *GraphStore) int64 { return s.Untouched }),
	{"graphs.avoidable", Bytes, "what pools hold beyond what aliasing would, as replayed", func(d *DeviceResult) (float64, int64, bool) {
		bytes, ok := int64(0), d.Graphs != nil
		if ok {
			for _, w := range d.Graphs.WhatIfs {
				ok = ok && w.Why == ""
				bytes += max(0, w.Physical-w.Aliased)
			}
		}
		return float64(bytes), -1, ok
	}},
}

func ofGraphs(name string, unit Unit, help string, of func(*Graphs) int64) Metric {
	return Metric{name, unit, help, func(d *DeviceResult) (float64, int64, bool) {
		if d.Graphs == nil {
			return 0, -1, false
		}
		return float64(of(d.Graphs)), -1, true
	}}
}

// ofStores is the sum over all stores.
func ofStores(name, help string, of func(*GraphStore) int64) Metric {
	return ofGraphs(name, Bytes, help, func(g *Graphs) (sum int64) {
		for i := range g.Stores {
			sum += of(&g.Stores[i])
		}
		return sum
	})
}
