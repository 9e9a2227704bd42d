package compare

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
)

// Diff compares two sets of runs: the repetitions of a job before and after a change.
//
// A run has one value for each number: that of its worst process and device, each at its own peak. It is the greatest,
// or of a number of which more is better the least.
//
// A set is represented by its median. A change is within noise if both sets may be of one job: by a rank test and
// its effect size, or where the sets are too small for that, by their ranges and means. The noise is unknown if each
// set has one run; then every difference counts. A change of less than 0.1 % is too small to matter, however sure.
type Diff struct {
	Base, New int      // runs of each
	Metrics   []Change // [analysis.Metrics] and [RankMetrics] that any run has, in their order
	// The lists below are in bytes. Changes beyond noise come first, then those within noise, those of
	// numbers that one set has, and numbers that are the same; each of these by delta, the greatest first.
	Requested  []Change // greatest T of each iteration; the name is its index, "0" for the first, or "9–12" in long jobs
	Reserved   []Change // greatest R of each iteration, named alike
	Phases     []Change // greatest T while a phase is the innermost
	Categories []Change // requested at the peak
	Modules    []Change // requested at the peak
	Stacks     []Change // requested at the peak, by call stack: frames, innermost first, with " < " between
	Lines      []Change // requested at the peak, by the innermost frame: its source line
	Sizes      []Change // requested at the peak in blocks of a size; the name is the size in bytes
}

// Change is one number in both sets.
type Change struct {
	Name      string
	Unit      analysis.Unit
	Base, New Spread
	Direction Direction
	// Effect is the effect size, from -1 to 1: of all pairs of a run of each set, in how many more the new one is greater. Beyond says
	// that the sets differ by more than noise.
	Effect float64
	Beyond bool
}

// Spread is the least, median and greatest value of one number in a set of runs.
type Spread struct {
	Runs             int // runs that have the number; if 0, so are the other fields
	Min, Median, Max float64
}

// Outcome classifies a [Change] by its delta and its noise.
type Outcome uint8

const (
	Grew Outcome = iota
	Shrank
	WithinNoise
	TooSmall // surely changed, by less than matters
	OneSided // only one of the sets has the number
	Same
)

// String is "grew", "shrank", "within noise", "too small", "one-sided" or "same".
func (o Outcome) String() string {
	return [...]string{"grew", "shrank", "within noise", "too small", "one-sided", "same"}[o]
}

// Delta returns the new median minus the base median; ok is false if only one set has the number.
func (c *Change) Delta() (delta float64, ok bool) {
	if c.Base.Runs == 0 || c.New.Runs == 0 {
		return 0, false
	}
	return c.New.Median - c.Base.Median, true
}

// Noise returns the greatest value minus the least, in the set where that is more; ok is false if neither
// set has two values.
func (c *Change) Noise() (noise float64, ok bool) {
	return max(c.Base.Max-c.Base.Min, c.New.Max-c.New.Min), max(c.Base.Runs, c.New.Runs) > 1
}

// Outcome says what the change is.
func (c *Change) Outcome() Outcome {
	delta, ok := c.Delta()
	switch {
	case !ok:
		return OneSided
	case delta == 0:
		return Same
	case !c.Beyond:
		return WithinNoise
	case math.Abs(delta) < c.least():
		return TooSmall
	case delta > 0:
		return Grew
	}
	return Shrank
}

// least is the least delta that matters.
func (c *Change) least() float64 {
	if c.Unit == analysis.Share {
		return leastShare
	}
	return leastShare * max(math.Abs(c.Base.Median), math.Abs(c.New.Median))
}

// newChange compares one number of the runs that have it.
func newChange(name string, unit analysis.Unit, base, with []float64) Change {
	c := Change{Name: name, Unit: unit, Base: spread(base), New: spread(with)}
	c.Effect, c.Beyond = differ(base, with)
	return c
}

// Compare compares two sets of runs. A run is the results of all its processes.
func Compare(base, with [][]*analysis.Result) *Diff {
	d := &Diff{Base: len(base), New: len(with)}
	for _, m := range analysis.Metrics() {
		d.metric(m.Name, m.Unit, base, with, func(run []*analysis.Result) (float64, bool) { return worst(run, m) })
	}
	for _, m := range RankMetrics() {
		d.metric(m.Name, m.Unit, base, with, func(run []*analysis.Result) (float64, bool) {
			return m.Of(CompareRanks(run)).Ratio()
		})
	}
	each := max(longestRun(base), longestRun(with))
	for _, part := range []struct {
		to *[]Change
		of func(*analysis.DeviceResult) listing
	}{
		{&d.Requested, func(d *analysis.DeviceResult) listing {
			return listIterations(d, each, func(i *iterations.Iteration) int64 { return i.PeakT })
		}},
		{&d.Reserved, func(d *analysis.DeviceResult) listing {
			return listIterations(d, each, func(i *iterations.Iteration) int64 { return i.PeakR })
		}},
		{&d.Phases, listPhases},
		{&d.Categories, func(d *analysis.DeviceResult) listing { return listGroups(d, &d.Held.Categories) }},
		{&d.Modules, func(d *analysis.DeviceResult) listing { return listGroups(d, &d.Held.Modules) }},
		{&d.Stacks, func(d *analysis.DeviceResult) listing { return listStacks(d, stackName) }},
		{&d.Lines, func(d *analysis.DeviceResult) listing { return listStacks(d, lineName) }},
		{&d.Sizes, listSizes},
	} {
		*part.to = changes(listRuns(base, part.of), listRuns(with, part.of))
	}
	return d
}

// metric appends the change of one metric to d.Metrics, unless no run has the metric.
func (d *Diff) metric(name string, unit analysis.Unit, base, with [][]*analysis.Result, of func([]*analysis.Result) (float64, bool)) {
	c := newChange(name, unit, values(base, of), values(with, of))
	c.Direction = DirectionOf(name)
	if c.Base.Runs+c.New.Runs > 0 {
		d.Metrics = append(d.Metrics, c)
	}
}

// worst returns the worst value of a metric over the devices of a run.
func worst(run []*analysis.Result, m analysis.Metric) (value float64, ok bool) {
	for d := range used(run) {
		if v, _, known := m.Value(d.Subjects()); known && (!ok || (v > value) != (DirectionOf(m.Name) == HigherBetter)) {
			value, ok = v, true
		}
	}
	return value, ok
}

// used yields the devices of a run that have allocations.
func used(run []*analysis.Result) iter.Seq[*analysis.DeviceResult] {
	return func(yield func(*analysis.DeviceResult) bool) {
		for _, r := range run {
			for i := range r.Devices {
				if d := &r.Devices[i]; d.Allocs > 0 && !yield(d) {
					return
				}
			}
		}
	}
}

// values returns a number of the runs that have it, in ascending order.
func values[R any](runs []R, of func(R) (float64, bool)) []float64 {
	var all []float64
	for _, run := range runs {
		if v, ok := of(run); ok {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

// spread is that of values in ascending order.
func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Runs: len(values), Min: values[0], Median: median(values), Max: values[len(values)-1]}
}

// listing is bytes by name, of a device or of a run. It may be only the head of a longer list.
type listing struct {
	names []string         // the keys of bytes, in the order of the first set
	bytes map[string]int64 // bytes by name
	bound int64            // the most bytes that a name without an entry can have; -1 if unknown
}

// set makes bytes the value of a name, unless the name has a greater one.
func (l *listing) set(name string, bytes int64) {
	if _, ok := l.bytes[name]; !ok {
		l.names = append(l.names, name)
	}
	l.bytes[name] = max(l.bytes[name], bytes)
}

func newListing() listing { return listing{bytes: map[string]int64{}} }

// value returns the bytes of a name. A name without an entry has 0 bytes if the list is complete; else its
// bytes are unknown.
func (l listing) value(name string) (float64, bool) {
	bytes, ok := l.bytes[name]
	return float64(bytes), ok || l.bound == 0
}

// listRuns returns a listing for each run: the greatest bytes of each name over the devices of the run. It
// leaves out a name if a device without an entry for it may have more bytes than the devices with one.
func listRuns(runs [][]*analysis.Result, of func(*analysis.DeviceResult) listing) []listing {
	var out []listing
	for _, run := range runs {
		var devices []listing
		all := newListing()
		all.bound = -1
		for d := range used(run) {
			l := of(d)
			if l.bound < 0 && len(l.names) == 0 {
				continue
			}
			devices = append(devices, l)
			all.bound = max(all.bound, l.bound)
			for _, name := range l.names {
				all.set(name, l.bytes[name])
			}
		}
		all.names = slices.DeleteFunc(all.names, func(name string) bool {
			uncertain := slices.ContainsFunc(devices, func(l listing) bool {
				_, listed := l.bytes[name]
				return !listed && l.bound > all.bytes[name]
			})
			if uncertain {
				delete(all.bytes, name)
			}
			return uncertain
		})
		out = append(out, all)
	}
	return out
}

// changes returns a change for each name that any run of the two sets has, in the order of [Diff].
func changes(base, with []listing) []Change {
	var out []Change
	seen := map[string]bool{}
	for _, set := range [][]listing{base, with} {
		for _, l := range set {
			for _, name := range l.names {
				if seen[name] {
					continue
				}
				seen[name] = true
				of := func(l listing) (float64, bool) { return l.value(name) }
				out = append(out, newChange(name, analysis.Bytes, values(base, of), values(with, of)))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int {
		x, _ := a.Delta()
		y, _ := b.Delta()
		return cmp.Or(cmp.Compare(beyond(a), beyond(b)), cmp.Compare(math.Abs(y), math.Abs(x)))
	})
	return out
}

// beyond is the sort key of an outcome. Grew and Shrank have the same one, so that they sort by delta.
func beyond(c Change) Outcome { return max(c.Outcome(), Shrank) }

// longestRun returns the most iterations that one [iterations.Iteration] of any device stands for, at least 1.
// It is more than 1 for long jobs.
func longestRun(runs [][]*analysis.Result) int64 {
	each := int64(1)
	for _, run := range runs {
		for d := range used(run) {
			for i := range d.Iterations {
				each = max(each, 1+d.Iterations[i].More)
			}
		}
	}
	return each
}

// listIterations lists one number of each iteration by its index, from 0. If each is more than 1, the
// iterations after the first are listed in groups of each, by the greatest value of the group: a long job
// has one [iterations.Iteration] for several iterations, and only groups compare with another job. The bytes
// of an iteration that a job did not have are unknown.
func listIterations(d *analysis.DeviceResult, each int64, of func(*iterations.Iteration) int64) listing {
	l := newListing()
	l.bound = -1
	place := int64(0) // index of the first iteration that d.Iterations[i] stands for
	for i := range d.Iterations {
		name := strconv.FormatInt(place, 10)
		if each > 1 && place > 0 {
			first := place - (place-1)%each
			name = fmt.Sprintf("%d–%d", first, first+each-1)
		}
		l.set(name, of(&d.Iterations[i]))
		place += 1 + d.Iterations[i].More
	}
	return l
}

// listPhases lists the greatest T of each phase. Without phases in the trace all are unknown; otherwise a
// phase without an entry never occurred, and has 0 bytes.
func listPhases(d *analysis.DeviceResult) listing {
	l := newListing()
	if len(d.Phases) == 0 {
		l.bound = -1
	}
	for i := range d.Phases {
		l.set(d.Phases[i].Phase, d.Phases[i].PeakT)
	}
	return l
}

// listGroups lists the requested bytes of each group at the peak. Only the greatest groups have an entry.
func listGroups(d *analysis.DeviceResult, b *attribution.Breakdown) listing {
	l := newListing()
	if !d.Held.Known {
		l.bound = -1
		return l
	}
	for i := range b.Groups {
		l.set(b.Groups[i].Name, b.Groups[i].Requested)
	}
	if b.RestGroups > 0 {
		l.bound = leastListed(l, b.Rest.Requested)
	}
	return l
}

// stackName and lineName name a call stack by all of its frames, and by the innermost; "" for none.
func stackName(g *attribution.Group) string { return strings.Join(g.Frames, " < ") }

func lineName(g *attribution.Group) string {
	if len(g.Frames) == 0 {
		return ""
	}
	return g.Frames[0]
}

// listStacks lists the requested bytes at the peak of call stacks by a name. All are unknown where no stack was
// recorded. Only the greatest stacks have an entry.
func listStacks(d *analysis.DeviceResult, name func(*attribution.Group) string) listing {
	l := newListing()
	b := &d.Held.Stacks
	if !slices.ContainsFunc(b.Groups, func(g attribution.Group) bool { return len(g.Frames) > 0 }) {
		l.bound = -1
		return l
	}
	for i := range b.Groups {
		n := name(&b.Groups[i])
		l.set(n, l.bytes[n]+b.Groups[i].Requested)
	}
	if b.RestGroups > 0 {
		l.bound = b.Rest.Requested
	}
	return l
}

// listSizes lists the requested bytes at the peak by the size of the block. Only the sizes with the most
// bytes have an entry.
func listSizes(d *analysis.DeviceResult) listing {
	l := newListing()
	rest := d.Peak.T
	for _, h := range d.TopSizes {
		l.set(strconv.FormatInt(h.Size, 10), h.Requested)
		rest -= h.Requested
	}
	l.bound = leastListed(l, rest)
	return l
}

// leastListed returns the most bytes that a group without an entry can have. It cannot have more than rest,
// the bytes of all these groups together, or more than the smallest entry, because the greatest groups are
// listed.
func leastListed(l listing, rest int64) int64 {
	for _, name := range l.names {
		rest = min(rest, l.bytes[name])
	}
	return max(rest, 0)
}
