package compare

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/memprof/memprof/analysis"
)

// Diff sets two sets of runs against each other, the repetitions of a job before and after
// something was changed.
//
// Of each number a run has one value: the greatest over its processes and devices, each at
// its own peak; that is the worst rank, as a greater value is the worse one for every
// [analysis.Metric]. Of a set the median counts, of an even number of values the greater one in the
// middle, so that it is a value that some run had. A change no greater than the distance
// between the least and the greatest value of either set is within noise: the job itself
// moves as much when nothing was changed. A set of one run tells nothing of its noise.
type Diff struct {
	Base, New int      // runs of each
	Metrics   []Change // [analysis.Metrics] and [RankMetrics] that any run has, in their order
	// The others have bytes, those that changed beyond noise first, by how much.
	Requested  []Change // greatest T of each iteration, by its place: "0" is the first, as elsewhere
	Reserved   []Change // greatest R likewise
	Phases     []Change // greatest T while a phase is the innermost
	Categories []Change // requested at the peak instant
	Modules    []Change // requested at the peak instant
	Sizes      []Change // requested at the peak instant in blocks of a size; the name is the size in bytes
}

// Change is one number in both sets.
type Change struct {
	Name      string
	Unit      analysis.Unit
	Base, New Spread
}

// Spread is what the runs of a set have for one number.
type Spread struct {
	Runs             int // that tell the number; the others are 0 when none does
	Min, Median, Max float64
}

// Outcome is what a [Change] amounts to.
type Outcome uint8

const (
	Grew Outcome = iota
	Shrank
	WithinNoise
	OneSided // only one of the sets tells the number
	Same
)

// String is "grew", "shrank", "within noise", "one-sided" or "same".
func (o Outcome) String() string {
	return [...]string{"grew", "shrank", "within noise", "one-sided", "same"}[o]
}

// Delta is the new median less the base's. It is not ok where only one set has the number.
func (c *Change) Delta() (delta float64, ok bool) {
	if c.Base.Runs == 0 || c.New.Runs == 0 {
		return 0, false
	}
	return c.New.Median - c.Base.Median, true
}

// Noise is the greater of the distances between least and greatest value of a set. It is not
// ok where neither set has two values.
func (c *Change) Noise() (noise float64, ok bool) {
	return max(c.Base.Max-c.Base.Min, c.New.Max-c.New.Min), max(c.Base.Runs, c.New.Runs) > 1
}

// Outcome compares the change with the noise.
func (c *Change) Outcome() Outcome {
	delta, ok := c.Delta()
	noise, _ := c.Noise()
	switch {
	case !ok:
		return OneSided
	case delta == 0:
		return Same
	case math.Abs(delta) <= noise:
		return WithinNoise
	case delta > 0:
		return Grew
	}
	return Shrank
}

// Compare sets runs against each other, each given by the results of all its processes.
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
			return listIterations(d, each, func(i *analysis.Iteration) int64 { return i.PeakT })
		}},
		{&d.Reserved, func(d *analysis.DeviceResult) listing {
			return listIterations(d, each, func(i *analysis.Iteration) int64 { return i.PeakR })
		}},
		{&d.Phases, listPhases},
		{&d.Categories, func(d *analysis.DeviceResult) listing { return listGroups(d, &d.Held.Categories) }},
		{&d.Modules, func(d *analysis.DeviceResult) listing { return listGroups(d, &d.Held.Modules) }},
		{&d.Sizes, listSizes},
	} {
		*part.to = changes(listRuns(base, part.of), listRuns(with, part.of))
	}
	return d
}

// metric adds one of the metrics unless no run has it.
func (d *Diff) metric(name string, unit analysis.Unit, base, with [][]*analysis.Result, of func([]*analysis.Result) (float64, bool)) {
	c := Change{Name: name, Unit: unit, Base: spread(base, of), New: spread(with, of)}
	if c.Base.Runs+c.New.Runs > 0 {
		d.Metrics = append(d.Metrics, c)
	}
}

// worst is the greatest value of a metric in a run.
func worst(run []*analysis.Result, m analysis.Metric) (value float64, ok bool) {
	for d := range used(run) {
		if v, _, known := m.Value(d); known && (!ok || v > value) {
			value, ok = v, true
		}
	}
	return value, ok
}

// used yields the devices of a run on which something was allocated.
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

// spread takes the values that runs have, of those that have one.
func spread[R any](runs []R, of func(R) (float64, bool)) Spread {
	var values []float64
	for _, run := range runs {
		if v, ok := of(run); ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	return Spread{Runs: len(values), Min: values[0], Median: values[len(values)/2], Max: values[len(values)-1]}
}

// listing is bytes by name, of a device or of a run.
type listing struct {
	names []string // of bytes, in the order in which they came
	bytes map[string]int64
	// A name that is not listed has at most so many bytes; -1 where nothing is known of it.
	bound int64
}

func (l *listing) set(name string, bytes int64) {
	if _, ok := l.bytes[name]; !ok {
		l.names = append(l.names, name)
	}
	l.bytes[name] = max(l.bytes[name], bytes)
}

func newListing() listing { return listing{bytes: map[string]int64{}} }

// value is the bytes of a name where they are certain.
func (l listing) value(name string) (float64, bool) {
	bytes, ok := l.bytes[name]
	return float64(bytes), ok || l.bound == 0
}

// listRuns lists each run, with the greatest bytes of a name over its devices. A name that a
// device does not list, and may have more of than any that do, is not in the run's list.
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

// changes compares all names of two sets.
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
				out = append(out, Change{Name: name, Unit: analysis.Bytes, Base: spread(base, of), New: spread(with, of)})
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

// beyond orders outcomes for [changes]: what grew and what shrank are one.
func beyond(c Change) Outcome { return max(c.Outcome(), Shrank) }

// longestRun is the most iterations that one Iteration of a device stands for.
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

// listIterations lists a number of each iteration by its place, from 0. The ones after the first
// are listed in runs of each, by the greatest, so that jobs of which neighbours are kept as one
// compare with others. Of an iteration that a job did not have nothing is known.
func listIterations(d *analysis.DeviceResult, each int64, of func(*analysis.Iteration) int64) listing {
	l := newListing()
	l.bound = -1
	place := int64(0) // of the first that an Iteration stands for
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

func listGroups(d *analysis.DeviceResult, b *analysis.Breakdown) listing {
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

// leastListed bounds what is not among the greatest: no group of it has more than all of it,
// nor more than the least that is listed.
func leastListed(l listing, rest int64) int64 {
	for _, name := range l.names {
		rest = min(rest, l.bytes[name])
	}
	return max(rest, 0)
}
