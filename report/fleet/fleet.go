// Package fleet reports on jobs of many processes by their summary tables: how every metric spreads over the ranks, which ranks
// lie far off, and how the imbalance changed over time. One screen, whatever the number of ranks.
package fleet

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/trace/dataset"
)

// Fleet gathers the tables of a job's processes.
type Fleet struct {
	Info     dataset.Info // of the first recording
	Paths    int          // recordings
	Events   int64
	Hosts    map[string]bool
	GPUs     map[string]int // devices by model
	Members  []Member
	Recovers int // processes that did not come to their own end

	units  map[string]string
	values map[string][]float64 // by metric: of each member; NaN where it has none
	course []series             // of each member
}

// Member is a device of a process.
type Member struct {
	Process string
	Host    string
	Device  int32
	Path    string // of its recording
}

// point is what is kept of an iteration.
type point struct {
	first, count        int64 // iterations
	requested, reserved float64
	duration            float64
}

type series []point

// New is a fleet without members.
func New() *Fleet {
	return &Fleet{Hosts: map[string]bool{}, GPUs: map[string]int{}, units: map[string]string{}, values: map[string][]float64{}}
}

// Add takes the table of a process. It keeps no row.
func (f *Fleet) Add(path string, t *summary.Table) {
	f.Events += t.Events
	f.Hosts[t.Host] = true
	if t.Ending.State != dataset.StateClosed {
		f.Recovers++
	}
	index := map[int32]int{}
	for _, c := range t.Cards {
		index[c.Device] = len(f.Members)
		f.Members = append(f.Members, Member{t.Process.Name, t.Host, c.Device, path})
		f.GPUs[c.GPU]++
		f.course = append(f.course, nil)
	}
	for i := range t.Rows {
		row := &t.Rows[i]
		at, ok := index[row.Device]
		switch {
		case !ok || row.Phase != "" || row.Tag != "" || row.Category != "":
		case row.Iterations > 0:
			f.iteration(at, row)
		default:
			f.put(at, row)
		}
	}
}

// put stores the value of a metric of a whole device.
func (f *Fleet) put(at int, row *summary.Row) {
	values := f.values[row.Metric]
	for len(values) < at {
		values = append(values, math.NaN())
	}
	f.values[row.Metric] = append(values, row.Value)
	f.units[row.Metric] = row.Unit
}

// iteration stores a value of iterations. The rows of a metric are in order.
func (f *Fleet) iteration(at int, row *summary.Row) {
	var into func(*point) *float64
	switch row.Metric {
	case "requested.peak":
		into = func(p *point) *float64 { return &p.requested }
	case "reserved.peak":
		into = func(p *point) *float64 { return &p.reserved }
	case summary.Duration:
		into = func(p *point) *float64 { return &p.duration }
	default:
		return
	}
	s := &f.course[at]
	i, found := sort.Find(len(*s), func(i int) int { return cmp.Compare(row.Iteration, (*s)[i].first) })
	if !found {
		*s = slices.Insert(*s, i, point{first: row.Iteration, count: row.Iterations})
	}
	*into(&(*s)[i]) = row.Value
}

// Spread is how a metric lies over the members that have it.
type Spread struct {
	Metric                             string
	Unit                               string
	Members                            int // that have it
	Least, Median, P95, Greatest, Mean float64
	LeastOf, GreatestOf                int // members
	Outliers                           int
	outliers                           []int // members, farthest from the median first
	Equal                              bool
}

// Spreads are those of all metrics, in the order of `memprof check --list`, those of the summary last.
func (f *Fleet) Spreads() []Spread {
	order := map[string]int{}
	for i, m := range analysis.Metrics() {
		order[m.Name] = i + 1
	}
	names := make([]string, 0, len(f.values))
	for name := range f.values {
		names = append(names, name)
	}
	rank := func(name string) int {
		if n := order[name]; n > 0 {
			return n
		}
		return len(order) + 1
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	var all []Spread
	for _, name := range names {
		all = append(all, f.spread(name))
	}
	return all
}

func (f *Fleet) spread(name string) Spread {
	s := Spread{Metric: name, Unit: f.units[name]}
	type have struct {
		value  float64
		member int
	}
	var values []have
	sum := 0.0
	for i, v := range f.values[name] {
		if !math.IsNaN(v) {
			values = append(values, have{v, i})
			sum += v
		}
	}
	slices.SortStableFunc(values, func(a, b have) int { return cmp.Compare(a.value, b.value) })
	n := len(values)
	s.Members, s.Mean = n, sum/float64(n)
	s.Least, s.Greatest, s.LeastOf, s.GreatestOf = values[0].value, values[n-1].value, values[0].member, values[n-1].member
	s.GreatestOf = values[sort.Search(n, func(i int) bool { return values[i].value >= s.Greatest })].member // of several the first
	s.Median, s.P95 = values[n/2].value, values[min(n-1, int(math.Ceil(0.95*float64(n)))-1)].value
	s.Equal = s.Least == s.Greatest
	if n < 4 || s.Equal {
		return s
	}
	// Iglewicz and Hoaglin's rule, as package compare has it.
	distances := make([]float64, n)
	for i, v := range values {
		distances[i] = math.Abs(v.value - s.Median)
	}
	slices.Sort(distances)
	bound := max(3.5*1.4826*distances[n/2], 0.01*math.Abs(s.Median))
	slices.SortStableFunc(values, func(a, b have) int {
		return cmp.Compare(math.Abs(b.value-s.Median), math.Abs(a.value-s.Median))
	})
	for _, v := range values {
		if math.Abs(v.value-s.Median) <= bound {
			break
		}
		s.outliers = append(s.outliers, v.member)
	}
	s.Outliers = len(s.outliers)
	return s
}

// Stage is a run of iterations, and how unequal the members were in it.
type Stage struct {
	First, Last                   int64 // iterations
	Members                       int   // that have them
	Reserved, Requested, Duration Imbalance
}

// Imbalance compares the greatest member with the mean.
type Imbalance struct {
	Most, Mean float64
	Of         int // member
}

// Ratio is at least 1; 0 if nothing is known.
func (i Imbalance) Ratio() float64 {
	if i.Mean <= 0 {
		return 0
	}
	return i.Most / i.Mean
}

// Stages divides the iterations into at most n runs of equal length. A member has the greatest of its peaks and the
// sum of its durations there.
func (f *Fleet) Stages(n int64) []Stage {
	last := int64(-1)
	for _, s := range f.course {
		if len(s) > 0 {
			last = max(last, s[len(s)-1].first+s[len(s)-1].count-1)
		}
	}
	if last < 0 {
		return nil
	}
	size := (last + n) / n // iterations of a stage
	stages := make([]Stage, (last+size)/size)
	for i := range stages {
		stages[i] = Stage{First: int64(i) * size, Last: min(int64(i+1)*size-1, last)}
	}
	for member, s := range f.course {
		of := make([]point, len(stages))
		for _, p := range s {
			for at := p.first / size; at <= (p.first+p.count-1)/size; at++ {
				// Of iterations that are one row and lie in several stages, each has the peaks, and its part of the duration.
				overlap := min(p.first+p.count, (at+1)*size) - max(p.first, at*size)
				o := &of[at]
				o.count += overlap
				o.requested, o.reserved = max(o.requested, p.requested), max(o.reserved, p.reserved)
				o.duration += p.duration * float64(overlap) / float64(p.count)
			}
		}
		for i, o := range of {
			if o.count > 0 {
				stages[i].add(member, &o)
			}
		}
	}
	return stages
}

func (s *Stage) add(member int, p *point) {
	s.Members++
	for _, into := range []struct {
		*Imbalance
		value float64
	}{{&s.Reserved, p.reserved}, {&s.Requested, p.requested}, {&s.Duration, p.duration}} {
		i := into.Imbalance
		i.Mean += (into.value - i.Mean) / float64(s.Members)
		if s.Members == 1 || into.value > i.Most {
			i.Most, i.Of = into.value, member
		}
	}
}
