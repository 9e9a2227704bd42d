// Package fleet reports on jobs of many processes by their summary tables: how every metric spreads over the ranks, and which ranks
// lie far off. One screen, whatever the number of ranks.
package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
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
}

// Member is a device of a process.
type Member struct {
	Path    string `json:"recording"`
	Process string `json:"process"`
	Host    string `json:"host"`
	Device  int32  `json:"device"`
}

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
		f.Members = append(f.Members, Member{path, t.Process.Name, t.Host, c.Device})
		f.GPUs[c.GPU]++
	}
	for i := range t.Rows {
		row := &t.Rows[i]
		if at, ok := index[row.Device]; ok && row.Phase == "" && row.Tag == "" && row.Category == "" {
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

// Spread is how a metric lies over the members that have it.
type Spread struct {
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit"`
	Members    int     `json:"ranks"` // that have it
	Least      float64 `json:"least"`
	Median     float64 `json:"median"`
	P95        float64 `json:"p95"`
	Greatest   float64 `json:"greatest"`
	Mean       float64 `json:"mean"`
	leastOf    int     // members, as is greatestOf
	greatestOf int
	outliers   []int // members, farthest from the median first
	equal      bool
}

// Spreads are those of all metrics, in the order of `memprof check --list`, those of the summary last.
func (f *Fleet) Spreads() []Spread {
	order := map[string]int{}
	for i, m := range analysis.Metrics() {
		order[m.Name] = i + 1
	}
	rank := func(name string) int {
		if n := order[name]; n > 0 {
			return n
		}
		return len(order) + 1
	}
	var all []Spread
	for _, name := range slices.SortedFunc(maps.Keys(f.values), func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) }) {
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
	s.Least, s.Greatest, s.leastOf, s.greatestOf = values[0].value, values[n-1].value, values[0].member, values[n-1].member
	s.greatestOf = values[sort.Search(n, func(i int) bool { return values[i].value >= s.Greatest })].member // of several the first
	s.Median, s.P95 = values[n/2].value, values[min(n-1, int(math.Ceil(0.95*float64(n)))-1)].value
	s.equal = s.Least == s.Greatest
	if s.equal {
		return s
	}
	of := make([]float64, n)
	for i := range values {
		of[i] = values[i].value
	}
	for i, far := range compare.Outliers(of) {
		if far {
			s.outliers = append(s.outliers, values[i].member)
		}
	}
	distance := func(member int) float64 { return math.Abs(f.values[name][member] - s.Median) }
	slices.SortStableFunc(s.outliers, func(a, b int) int { return cmp.Compare(distance(b), distance(a)) })
	return s
}
