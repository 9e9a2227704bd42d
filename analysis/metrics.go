package analysis

import (
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
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
	// Replayed: only a device with Replays has a value.
	Replayed bool

	parts []Part // that have values, beside whole devices
	value func(*Subjects) (value float64, seq int64, ok bool)
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

var metrics = slices.Concat(
	[]Metric{
		demand.number("requested.peak", Bytes, "greatest T, asked for by live allocations", func(d *Demand) int64 { return d.MaxT }),
		ofReplay("torch.reserved.peak", "greatest R under PyTorch's own allocator as it was configured, by a replay", func(p *Replay) int64 { return p.Reserved },
			func(p *Replay) bool { return p.Allocator == "torch" }),
		ofReplay("least_card", "bytes that a card must have free before the job begins, under the recorded allocator, by replays", func(p *Replay) int64 { return p.LeastCard },
			func(p *Replay) bool { return p.Recorded }),
		memory.metric("reserved.peak", Bytes, "greatest R, mapped memory", func(m *Memory) (float64, int64, bool) {
			return float64(m.MaxR), m.Peak.Seq, true
		}),
		memory.number("reserved.final", Bytes, "R after the last event", func(m *Memory) int64 { return m.Final.R }),
		demand.metric("requested.at_peak", Bytes, "T at the peak", func(d *Demand) (float64, int64, bool) {
			return float64(d.PeakT), d.PeakSeq, true
		}),
		demand.metric("provided.peak", Bytes, "greatest C, chunks of live allocations", func(d *Demand) (float64, int64, bool) {
			return float64(d.MaxC), -1, d.MaxC >= 0
		}),
		memory.metric("pending.at_peak", Bytes, "freed and waiting for other streams at the peak", func(m *Memory) (float64, int64, bool) {
			return float64(m.Peak.Pending), m.Peak.Seq, true
		}),
		demand.metric("live.peak", Count, "live allocations at the peak", func(d *Demand) (float64, int64, bool) {
			return float64(d.Live), d.PeakSeq, true
		}),
		otherLibraries.number("other_libraries.peak", Bytes, "greatest sum of what other libraries took through the CUDA API", func(o *accounting.OtherLibraries) int64 { return o.Peak }),
	},
	waste("internal", "chunks beyond requests, rounding and slack", func(m *Memory) int64 { return m.Peak.Internal() }),
	waste("rounding", "requests rounded up to 256 bytes", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.Rounding) }),
	waste("slack", "chunks beyond rounded requests", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.Slack) }),
	waste("stranded", "free memory of arenas other than the one with the most reserved, whose requests cannot use it", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.Stranded) }),
	waste("reserve", "free memory never handed out since it was mapped", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.Reserve) }),
	waste("reusable", "free memory handed out before, in the largest free chunk", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.Reusable) }),
	waste("external", "free memory handed out before, in smaller free chunks: fragmented", func(m *Memory) int64 { return m.Chunks.Known(m.Peak.External) }),
	waste("total", "R - T, all that is reserved and not asked for", func(m *Memory) int64 { return m.Peak.R - m.Peak.T }),
	attributionMetrics,
	[]Metric{
		ofWhole(func(d *DeviceResult) *Memory { return d.Memory }).metric("fragmentation.peak", Share, "(F - L)/F at the peak, L the largest free chunk; 0 when nothing is free", func(m *Memory) (float64, int64, bool) {
			value, ok := m.Fragmentation()
			return value, m.Peak.Seq, ok
		}),
		idle("idle.requested", "1 - max T / max R", func(m *Memory) int64 { return m.MaxT }),
		idle("idle.provided", "1 - max C / max R", func(m *Memory) int64 { return m.MaxC }),
		ofPaper("iteration.first_excess", "C1/C2 - 1, what the first iteration needs beyond the mean of the later ones; a ratio, which may exceed 100%", func(p *iterations.Paper) float64 { return p.FirstExcess }),
		ofPaper("iteration.steady_idle", "1 - C2/R, what the later iterations leave of the final R, or of the greatest R where R shrank", func(p *iterations.Paper) float64 { return p.SteadyIdle }),
		ofPaper("iteration.own_idle", "1 - C/R in the mean over the later iterations, each by its own peak R; for allocators that unmap", func(p *iterations.Paper) float64 { return 1 - p.OwnC2 }),
		ofLeak("leak.slope", "bytes that leak, an iteration; 0 if none do", func(l *iterations.Leak) (float64, bool) { return l.Slope, l.Per == "iteration" }),
		ofLeak("leak.per_request", "bytes that leak a request, in a job without iterations: of an outermost phase, or of a sequence in a KV cache; 0 if none do", func(l *iterations.Leak) (float64, bool) { return l.Slope, l.Per == "request" }),
		ofLeak("leak.per_second", "bytes that leak, a second; 0 if none do", func(l *iterations.Leak) (float64, bool) { return l.PerSecond, true }),
		failures.metric("oom.count", Count, "requests that failed for good", func(f *Failures) (float64, int64, bool) {
			if len(f.OOMs) == 0 {
				return float64(f.OOMCount), -1, true
			}
			return float64(f.OOMCount), f.OOMs[0].Seq, true
		}),
		growing.number("growth.count", Count, "growths of arenas", func(g *Growing) int64 { return g.GrowthCount }),
		growing.metric("growth.fragmentation", Count, "growths although as much was free as the request needed", func(g *Growing) (float64, int64, bool) {
			return float64(g.FragmentationGrowths), -1, g.UnjudgedGrowths == 0
		}),
	},
	accountingMetrics,
	pauseMetrics,
	kvMetrics,
	graphMetrics,
)

// waste returns the two metrics of a kind of waste at the peak: its share of R there, and its bytes.
func waste(kind, help string, of func(*Memory) int64) []Metric {
	name := "waste." + kind
	return []Metric{
		memory.metric(name, Share, help+"; share of R at the peak", func(m *Memory) (float64, int64, bool) {
			return share(of(m), m.Peak.R), m.Peak.Seq, m.Peak.R > 0 && of(m) >= 0
		}),
		memory.metric(name+".bytes", Bytes, help+"; at the peak", func(m *Memory) (float64, int64, bool) {
			return float64(of(m)), m.Peak.Seq, of(m) >= 0
		}),
	}
}

// Fragmentation is the frameworks' measure (F - L)/F at the peak, from 0 to 1; 0 when nothing
// is free. It is not ok where F or L is not known, as in a result without the map that L is taken from.
func (m *Memory) Fragmentation() (value float64, ok bool) {
	free, largest := m.Peak.Free(), m.Chunks.Largest()
	return share(free-largest, free), free == 0 || 0 < largest && largest <= free
}

// idle is 1 - most / greatest R, with most the greatest value of something else, -1 where that is not known.
func idle(name, help string, most func(*Memory) int64) Metric {
	return memory.metric(name, Share, help, func(m *Memory) (float64, int64, bool) {
		return 1 - share(most(m), m.MaxR), -1, m.MaxR > 0 && most(m) >= 0
	})
}

// ofReplay is a metric of the first of a device's Replays that is wanted, of several the recorded one.
func ofReplay(name, help string, of func(*Replay) int64, wanted func(*Replay) bool) Metric {
	m := ofWhole(func(d *DeviceResult) *DeviceResult { return d }).metric(name, Bytes, help, func(d *DeviceResult) (value float64, seq int64, ok bool) {
		for i := range d.Replays {
			if p := &d.Replays[i]; wanted(p) && p.LeftOut == "" && (!ok || p.Recorded) {
				value, ok = float64(of(p)), true
			}
		}
		return value, -1, ok
	})
	m.Replayed = true
	return m
}

func ofLeak(name, help string, of func(*iterations.Leak) (value float64, ok bool)) Metric {
	return ofWhole(func(d *DeviceResult) *iterations.Leak { return d.Leak }).metric(name, Bytes, help, func(l *iterations.Leak) (float64, int64, bool) {
		value, ok := of(l)
		return value, -1, ok && l.Verdict != iterations.TooShort && l.Verdict != ""
	})
}

func ofPaper(name, help string, of func(*iterations.Paper) float64) Metric {
	return ofWhole(func(d *DeviceResult) *iterations.Paper { return d.Paper }).metric(name, Share, help, func(p *iterations.Paper) (float64, int64, bool) {
		value := of(p)
		return value, -1, !math.IsNaN(value)
	})
}

// share is part/whole, 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
