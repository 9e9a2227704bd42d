package analysis

import "slices"

// TagUse is the greatest values of a tag, over all its arenas of a device: each at its own moment.
// What is paused is in none of them.
type TagUse struct {
	Tag              string
	MaxT, MaxC, MaxR int64
}

// MetricScope is what part of a device a result is of. A metric has a value in its scopes only: the
// result of a tag or a phase has few of a device's numbers, and the others are 0.
type MetricScope uint8

const (
	WholeDevice MetricScope = iota // every metric is of it
	OneTag                         // see [TagMetrics]
	OnePhase                       // see [PhaseMetrics]
)

// Stored are the values of a device's metrics where they were stored with the recording and its events were not read: see
// package summary. All other numbers of such a device are 0, except for those that ranks are compared by.
type Stored struct {
	Device       map[string]StoredValue
	Tags, Phases map[string]map[string]StoredValue // by the tag or phase
}

// StoredValue is what [Metric.Value] returned.
type StoredValue struct {
	Value float64
	Seq   int64
}

// part is a device of stored values, as far as a tag or a phase goes.
func (d *DeviceResult) part(scope MetricScope, parts map[string]map[string]StoredValue, name string) (*DeviceResult, bool) {
	values, ok := parts[name]
	return &DeviceResult{Scope: scope, Device: d.Device, Allocs: d.Allocs, Stored: &Stored{Device: values}}, ok
}

// Of says whether the metric has a value in a scope.
func (m *Metric) Of(scope MetricScope) bool {
	switch scope {
	case OneTag:
		return slices.Contains(tagMetrics, m.Name)
	case OnePhase:
		return slices.Contains(phaseMetrics, m.Name)
	}
	return true
}

// scoped makes metrics unknown outside their scopes.
func scoped(all []Metric) []Metric {
	for i := range all {
		m := all[i]
		all[i].Value = func(d *DeviceResult) (float64, int64, bool) {
			if !m.Of(d.Scope) {
				return 0, -1, false
			}
			if d.Stored != nil {
				if v, ok := d.Stored.Device[m.Name]; ok {
					return v.Value, v.Seq, true
				}
				return 0, -1, false
			}
			return m.Value(d)
		}
	}
	return all
}

// TagMetrics are the names of the metrics that a tag has by itself; see [Result.OfTag].
func TagMetrics() []string { return slices.Clone(tagMetrics) }

var tagMetrics = []string{
	"reserved.peak", "reserved.final", "requested.peak", "requested.at_peak", "provided.peak", "pending.at_peak", "live.peak",
	"waste.internal", "waste.internal.bytes", "waste.rounding", "waste.rounding.bytes", "waste.slack", "waste.slack.bytes",
	"waste.stranded", "waste.stranded.bytes", "waste.reserve", "waste.reserve.bytes", "waste.reusable", "waste.reusable.bytes", "waste.external", "waste.external.bytes", "waste.total", "waste.total.bytes",
	"idle.requested", "idle.provided",
}

// OfTag is a device as far as the arenas of a tag go, for the metrics of [TagMetrics]; false if it
// has none. Peak is the tag's part of the device's peak, its free memory as requests of the
// tag's arena with the most reserved see it.
func (r *Result) OfTag(d *DeviceResult, tag string) (*DeviceResult, bool) {
	if d.Stored != nil {
		return d.part(OneTag, d.Stored.Tags, tag)
	}
	at := slices.IndexFunc(d.Tags, func(u TagUse) bool { return u.Tag == tag })
	if at < 0 {
		return nil, false
	}
	use := &d.Tags[at]
	of := &DeviceResult{Scope: OneTag, Device: d.Device, Allocs: d.Allocs, MaxT: use.MaxT, MaxC: use.MaxC, MaxR: use.MaxR, Native: d.Native}
	of.Peak = Instant{Seq: d.Peak.Seq, Time: d.Peak.Time, Iteration: d.Peak.Iteration}
	of.Final = Instant{Seq: d.Final.Seq, Time: d.Final.Time, Iteration: d.Final.Iteration}
	var final, peak []*Instant
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != d.Device || a.Options["tag"] != tag {
			continue
		}
		if !a.Paused {
			final = append(final, &a.Final)
		}
		for j := range d.Map.Arenas {
			if d.Map.Arenas[j].Arena == a.ID {
				peak = append(peak, &d.Map.Arenas[j].At)
			}
		}
	}
	of.Final.Sum(final)
	of.Peak.Sum(peak)
	if d.Native != nil { // its chunks are unknown
		of.MaxC, of.Peak.C, of.Final.C = -1, -1, -1
	}
	return of, true
}

// PhaseMetrics are the names of the metrics that a phase has by itself; see [DeviceResult.OfPhase].
func PhaseMetrics() []string { return slices.Clone(phaseMetrics) }

var phaseMetrics = []string{"requested.peak", "provided.peak", "requested.at_peak", "live.peak"}

// OfPhase is a device as far as a phase goes, for the metrics of [PhaseMetrics]; false if the phase
// never was. The greatest T and C are those while it is the innermost one, and at the peak
// counts what was allocated in it.
func (d *DeviceResult) OfPhase(phase string) (*DeviceResult, bool) {
	if d.Stored != nil {
		return d.part(OnePhase, d.Stored.Phases, phase)
	}
	at := slices.IndexFunc(d.Phases, func(u PhaseUse) bool { return u.Phase == phase })
	if at < 0 {
		return nil, false
	}
	use, held := &d.Phases[at], d.Held.Phases.Of(phase)
	return &DeviceResult{
		Scope: OnePhase, Device: d.Device, Allocs: d.Allocs, MaxT: use.PeakT, MaxC: use.PeakC, Native: d.Native,
		Peak: Instant{Seq: d.Peak.Seq, Time: d.Peak.Time, Iteration: d.Peak.Iteration, T: held.Requested, C: held.Provided, Live: held.Blocks},
	}, true
}
