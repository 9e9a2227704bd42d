package analysis

import (
	"math"
	"slices"
)

// Unit is what the value of a Metric is in.
type Unit uint8

const (
	Bytes Unit = iota // also bytes an iteration
	Share             // 1 is the whole; a few are ratios that may exceed it, and their Help says so
	Count
)

// String is "bytes", "share" or "count".
func (u Unit) String() string {
	return [...]string{"bytes", "share", "count"}[u]
}

// Metric is a number of a device that has a name, to hold against a limit.
type Metric struct {
	Name string
	Unit Unit
	Help string // what it is, in one line
	// Value is the number, and the seq of the event after which it was true; -1 for a
	// number of the whole trace. It is not ok where the number does not follow from the trace:
	// iteration.* of a trace without iterations, category.* of one without origins, shares of
	// nothing. [Metric.Unknown] says why.
	Value func(*DeviceResult) (value float64, seq int64, ok bool)
}

// Metrics are all there are, in order of what they are about.
func Metrics() []Metric { return slices.Clone(metrics) }

// LookupMetric finds a metric by its exact name.
func LookupMetric(name string) (Metric, bool) {
	at := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if at < 0 {
		return Metric{}, false
	}
	return metrics[at], true
}

var metrics = scoped(slices.Concat(
	[]Metric{
		{"reserved.peak", Bytes, "greatest R, mapped memory", func(d *DeviceResult) (float64, int64, bool) {
			return float64(d.MaxR), d.Peak.Seq, true
		}},
		ofRun("reserved.final", Bytes, "R after the last event", func(d *DeviceResult) int64 { return d.Final.R }),
		ofRun("requested.peak", Bytes, "greatest T, asked for by live allocations", func(d *DeviceResult) int64 { return d.MaxT }),
		atPeak("requested.at_peak", "T at the peak", func(i *Instant) int64 { return i.T }),
		ofC(ofRun("provided.peak", Bytes, "greatest C, chunks of live allocations", func(d *DeviceResult) int64 { return d.MaxC })),
		atPeak("pending.at_peak", "freed and waiting for other streams at the peak", func(i *Instant) int64 { return i.Pending }),
		{"live.peak", Count, "live allocations at the peak", func(d *DeviceResult) (float64, int64, bool) {
			return float64(d.Peak.Live), d.Peak.Seq, true
		}},
		ofRun("other_libraries.peak", Bytes, "greatest sum of what other libraries took through the CUDA API", func(d *DeviceResult) int64 { return d.OtherLibraries.Peak }),
	},
	waste("internal", "chunks beyond requests, rounding and slack", Instant.Internal),
	ofChunks(waste("rounding", "requests rounded up to 256 bytes", func(i Instant) int64 { return i.Rounding })),
	ofChunks(waste("slack", "chunks beyond rounded requests", func(i Instant) int64 { return i.Slack })),
	ofChunks(waste("stranded", "free memory of arenas other than the one with the most reserved, whose requests cannot use it", func(i Instant) int64 { return i.Stranded })),
	ofChunks(waste("reserve", "free memory never handed out since it was mapped", func(i Instant) int64 { return i.Reserve })),
	ofChunks(waste("reusable", "free memory handed out before, in the largest free chunk", func(i Instant) int64 { return i.Reusable })),
	ofChunks(waste("external", "free memory handed out before, in smaller free chunks: fragmented", func(i Instant) int64 { return i.External })),
	waste("total", "R - T, all that is reserved and not asked for", func(i Instant) int64 { return i.R - i.T }),
	attributionMetrics,
	[]Metric{
		{"fragmentation.peak", Share, "(F - L)/F at the peak, L the largest free chunk; 0 when nothing is free", fragmentationAtPeak},
		{"idle.requested", Share, "1 - max T / max R", unused(func(d *DeviceResult) int64 { return d.MaxT })},
		ofC(Metric{"idle.provided", Share, "1 - max C / max R", unused(func(d *DeviceResult) int64 { return d.MaxC })}),
		{"iteration.first_excess", Share, "C1/C2 - 1, what the first iteration needs beyond the mean of the later ones; a ratio, which may exceed 100%", ofPaper(func(p *Paper) float64 { return p.FirstExcess })},
		{"iteration.steady_idle", Share, "1 - C2/R, what the later iterations leave of the final R, or of the greatest R where R shrank", ofPaper(func(p *Paper) float64 { return p.SteadyIdle })},
		{"iteration.own_idle", Share, "1 - C/R in the mean over the later iterations, each by its own peak R; for allocators that unmap", ofPaper(func(p *Paper) float64 { return 1 - p.OwnC2 })},
		ofLeak("leak.slope", "trend of what live and paused allocations requested, at iteration ends, an iteration, without the first", func(l *Leak) (Trend, float64) { return l.Iterations, l.Iterations.Slope }),
		ofLeak("leak.per_request", "how much that keeps rising a request, without the first: of an outermost phase, or of a sequence in a KV cache", func(l *Leak) (Trend, float64) { return l.Requests, l.Requests.Rise() }),
		ofLeak("leak.per_second", "how much that keeps rising a second: at iteration ends, or without iterations the least in windows of time", func(l *Leak) (Trend, float64) { return l.Seconds, l.Seconds.Rise() }),
		{"oom.count", Count, "requests that failed for good", func(d *DeviceResult) (float64, int64, bool) {
			if len(d.OOMs) > 0 {
				return float64(d.OOMCount), d.OOMs[0].Seq, true
			}
			return float64(d.OOMCount), -1, true
		}},
		ofRun("growth.count", Count, "growths of arenas", func(d *DeviceResult) int64 { return d.GrowthCount }),
		ofGrowths(ofRun("growth.fragmentation", Count, "growths although as much was free as the request needed", func(d *DeviceResult) int64 { return d.FragmentationGrowths })),
	},
	accountingMetrics,
	pauseMetrics,
	kvMetrics,
	graphMetrics,
))

// ofRun is a number of the whole trace.
func ofRun(name string, unit Unit, help string, of func(*DeviceResult) int64) Metric {
	return Metric{name, unit, help, func(d *DeviceResult) (float64, int64, bool) {
		return float64(of(d)), -1, true
	}}
}

// atPeak is bytes at the peak.
func atPeak(name, help string, of func(*Instant) int64) Metric {
	return Metric{name, Bytes, help, func(d *DeviceResult) (float64, int64, bool) {
		return float64(of(&d.Peak)), d.Peak.Seq, true
	}}
}

// waste returns the two metrics of a kind of waste at the peak: its share of R there, and its bytes.
func waste(kind, help string, of func(Instant) int64) []Metric {
	share := func(d *DeviceResult) (float64, int64, bool) {
		return share(of(d.Peak), d.Peak.R), d.Peak.Seq, d.Peak.R > 0 && of(d.Peak) >= 0
	}
	bytes := func(d *DeviceResult) (float64, int64, bool) {
		return float64(of(d.Peak)), d.Peak.Seq, of(d.Peak) >= 0
	}
	name := "waste." + kind
	return []Metric{
		{name, Share, help + "; share of R at the peak", share},
		{name + ".bytes", Bytes, help + "; at the peak", bytes},
	}
}

func fragmentationAtPeak(d *DeviceResult) (float64, int64, bool) {
	value, ok := d.Fragmentation()
	return value, d.Peak.Seq, ok
}

// Fragmentation is the frameworks' measure (F - L)/F at the peak, from 0 to 1; 0 when nothing
// is free. It is not ok where F or L is not known: of a native allocator, or a result
// without the map that L is taken from.
func (d *DeviceResult) Fragmentation() (value float64, ok bool) {
	free := d.Peak.Free()
	if free == 0 {
		return 0, true
	}
	return share(free-d.LargestFree, free), 0 < d.LargestFree && d.LargestFree <= free
}

// unused returns 1 - most / greatest R, with most the greatest value of something else.
func unused(of func(*DeviceResult) int64) func(*DeviceResult) (float64, int64, bool) {
	return func(d *DeviceResult) (float64, int64, bool) {
		return 1 - share(of(d), d.MaxR), -1, d.MaxR > 0
	}
}

func ofLeak(name, help string, of func(*Leak) (Trend, float64)) Metric {
	return Metric{name, Bytes, help, func(d *DeviceResult) (float64, int64, bool) {
		t, value := of(&d.Leak)
		return value, -1, t.Valid
	}}
}

func ofPaper(of func(*Paper) float64) func(*DeviceResult) (float64, int64, bool) {
	return func(d *DeviceResult) (float64, int64, bool) {
		value := of(&d.Paper)
		return value, -1, d.Paper.Valid && !math.IsNaN(value)
	}
}

// share is part/whole, 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// ofC is a metric of the greatest C, which is unknown if a native allocator's sums were never read.
func ofC(m Metric) Metric {
	return onlyIf(m, func(d *DeviceResult) bool { return d.MaxC >= 0 })
}

// ofChunks are metrics of chunks, which a native allocator does not report.
func ofChunks(metrics []Metric) []Metric {
	for i := range metrics {
		metrics[i] = onlyIf(metrics[i], func(d *DeviceResult) bool { return d.Native == nil })
	}
	return metrics
}

// ofGrowths is a metric of the verdicts of all growths.
func ofGrowths(m Metric) Metric {
	return onlyIf(m, func(d *DeviceResult) bool { return d.Native == nil || d.Native.Unjudged == 0 })
}

func onlyIf(m Metric, known func(*DeviceResult) bool) Metric {
	of := m.Value
	m.Value = func(d *DeviceResult) (float64, int64, bool) {
		value, seq, ok := of(d)
		return value, seq, ok && known(d)
	}
	return m
}
