package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Subjects are what metrics are asked of: the subjects of a device, of a tag or a phase of it.
// Each is nil where the part has none, and whole otherwise.
type Subjects struct {
	Part           Part
	Demand         *Demand
	Memory         *Memory
	Growing        *Growing
	Failures       *Failures
	OtherLibraries *accounting.OtherLibraries
	Whole          *DeviceResult          // all else that follows from a whole recording
	Stored         map[string]StoredValue // in place of all others, by metric
}

// Part is what part of a recording a result is of.
type Part uint8

const (
	WholeDevice Part = iota // every metric is of it
	OneTag                  // the arenas of a tag; see [Result.OfTag]
	OnePhase                // what was allocated in a phase; see [DeviceResult.OfPhase]
)

// Demand is what was requested. PeakT and Live are at the peak, the event of PeakSeq.
type Demand struct {
	MaxT, MaxC  int64 // as in Memory
	PeakSeq     int64
	PeakT, Live int64
}

// Memory is what was requested and reserved, and what became of it.
type Memory struct {
	Peak             ledger.Instant // greatest T among those at greatest R
	Final            ledger.Instant // after the last event
	MaxT, MaxC, MaxR int64          // greatest bytes, each at its own moment; MaxC is -1 where it is not known
	Chunks           *Chunks        // nil where they are not known, of an allocator that was only observed
}

func (m *Memory) demand() *Demand {
	if m == nil {
		return nil
	}
	return &Demand{m.MaxT, m.MaxC, m.Peak.Seq, m.Peak.T, m.Peak.Live}
}

// Growing is how arenas grew.
type Growing struct {
	Growths              []Growth // in order; at most MaxGrowths are kept
	GrowthCount          int64    // all of them
	FragmentationGrowths int64    // those of all whose verdict is Fragmentation
	UnjudgedGrowths      int64    // those without a verdict: an allocator that was only observed, whose free bytes were not read
}

// Failures are the requests that failed for good.
type Failures struct {
	OOMs     []OOM // in order; at most MaxGrowths are kept
	OOMCount int64 // all of them
}

// Stored are the values of a device's metrics where they were stored with the recording and its events were not read: see
// package summary. Such a device has no subjects. Of its other fields only Allocs and the names of its card are set.
type Stored struct {
	Device       map[string]StoredValue
	Tags, Phases map[string]map[string]StoredValue // by the tag or phase
}

// StoredValue is what [Metric.Value] returned.
type StoredValue struct {
	Value float64
	Seq   int64
}

// subject is what metrics are about. A metric has a value of the parts that have its subject.
type subject[S any] struct {
	of    func(*Subjects) *S // nil where a part has none
	parts []Part             // that have one, beside whole devices
}

var (
	demand         = subject[Demand]{func(s *Subjects) *Demand { return s.Demand }, []Part{OneTag, OnePhase}}
	memory         = subject[Memory]{func(s *Subjects) *Memory { return s.Memory }, []Part{OneTag}}
	growing        = subject[Growing]{of: func(s *Subjects) *Growing { return s.Growing }}
	failures       = subject[Failures]{of: func(s *Subjects) *Failures { return s.Failures }}
	otherLibraries = subject[accounting.OtherLibraries]{of: func(s *Subjects) *accounting.OtherLibraries { return s.OtherLibraries }}
)

// ofWhole is a subject of whole devices only.
func ofWhole[S any](of func(*DeviceResult) *S) subject[S] {
	return subject[S]{of: func(s *Subjects) *S {
		if s.Whole == nil {
			return nil
		}
		return of(s.Whole)
	}}
}

// metric registers a metric of the subject.
func (s subject[S]) metric(name string, unit Unit, help string, value func(*S) (value float64, seq int64, ok bool)) Metric {
	return Metric{Name: name, Unit: unit, Help: help, parts: s.parts, value: func(of *Subjects) (float64, int64, bool) {
		if asked := s.of(of); asked != nil {
			return value(asked)
		}
		return 0, -1, false
	}}
}

// number registers a metric that is a number of the whole trace.
func (s subject[S]) number(name string, unit Unit, help string, of func(*S) int64) Metric {
	return s.metric(name, unit, help, func(asked *S) (float64, int64, bool) {
		return float64(of(asked)), -1, true
	})
}

// Of says whether a part has a value of the metric.
func (m *Metric) Of(part Part) bool { return part == WholeDevice || slices.Contains(m.parts, part) }

// MetricsOf are the names of the metrics that a part has values of.
func MetricsOf(part Part) []string {
	var names []string
	for i := range metrics {
		if metrics[i].Of(part) {
			names = append(names, metrics[i].Name)
		}
	}
	return names
}

// Value is the number, and the seq of the event after which it was true; -1 for a number of the whole trace. It is
// not ok where the number does not follow from the trace: iteration.* of a trace without iterations, category.* of
// one without origins, shares of nothing. [Metric.Unknown] says why.
func (m *Metric) Value(of *Subjects) (value float64, seq int64, ok bool) {
	if of.Stored == nil {
		return m.value(of)
	}
	if stored, known := of.Stored[m.Name]; known {
		return stored.Value, stored.Seq, true
	}
	return 0, -1, false
}

// Subjects are those of the whole device.
func (d *DeviceResult) Subjects() *Subjects {
	if d.Stored != nil {
		return &Subjects{Stored: d.Stored.Device}
	}
	return &Subjects{Demand: d.Memory.demand(), Memory: d.Memory, Growing: d.Growing, Failures: d.Failures, OtherLibraries: d.OtherLibraries, Whole: d}
}

// TagUse is the greatest values of a tag, over all its arenas of a device: each at its own moment.
// What is paused is in none of them.
type TagUse struct {
	Tag              string
	MaxT, MaxC, MaxR int64
}

// OfTag is what a device has of a tag; false if it has none. Peak is the tag's part of the device's peak, its free
// memory as requests of the tag's arena with the most reserved see it.
func (r *Result) OfTag(d *DeviceResult, tag string) (*Subjects, bool) {
	if d.Stored != nil {
		values, ok := d.Stored.Tags[tag]
		return &Subjects{Part: OneTag, Stored: values}, ok
	}
	at := slices.IndexFunc(d.Tags, func(u TagUse) bool { return u.Tag == tag })
	if at < 0 {
		return nil, false
	}
	use := &d.Tags[at]
	peak := ledger.Instant{Seq: d.Peak.Seq, Time: d.Peak.Time, Iteration: d.Peak.Iteration}
	final := ledger.Instant{Seq: d.Final.Seq, Time: d.Final.Time, Iteration: d.Final.Iteration}
	var atEnd, atPeak []*ledger.Instant
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != d.Device || a.Options["tag"] != tag {
			continue
		}
		if !a.Paused {
			atEnd = append(atEnd, &a.Final)
		}
		for j := range d.Map.Arenas {
			if d.Map.Arenas[j].Arena == a.ID {
				atPeak = append(atPeak, &d.Map.Arenas[j].At)
			}
		}
	}
	final.Sum(atEnd)
	peak.Sum(atPeak)
	peak.C, final.C = d.Chunks.Known(peak.C), d.Chunks.Known(final.C)
	memory := &Memory{peak, final, use.MaxT, d.Chunks.Known(use.MaxC), use.MaxR, d.Chunks}
	return &Subjects{Part: OneTag, Demand: memory.demand(), Memory: memory}, true
}

// OfPhase is what a device has of a phase; false if the phase never was. The greatest T and C are those while it is
// the innermost one, and at the peak counts what was allocated in it.
func (d *DeviceResult) OfPhase(phase string) (*Subjects, bool) {
	if d.Stored != nil {
		values, ok := d.Stored.Phases[phase]
		return &Subjects{Part: OnePhase, Stored: values}, ok
	}
	at := slices.IndexFunc(d.Phases, func(u attribution.PhaseUse) bool { return u.Phase == phase })
	if at < 0 {
		return nil, false
	}
	use, held := &d.Phases[at], d.Held.Phases.Of(phase)
	return &Subjects{Part: OnePhase, Demand: &Demand{use.PeakT, use.PeakC, d.Peak.Seq, held.Requested, held.Blocks}}, true
}
