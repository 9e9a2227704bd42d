package summary

import (
	"cmp"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/dataset"
)

// Row is one number of a process; see the package comment. All fields are written, so that every file has the same columns.
type Row struct {
	Device     int32   `json:"device"`
	Iteration  int64   `json:"iteration"`
	Iterations int64   `json:"iterations"`
	Phase      string  `json:"phase"`
	Category   string  `json:"category"`
	Tag        string  `json:"tag"`
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit"`
	Value      float64 `json:"value"`
	Seq        int64   `json:"seq"`
}

// Table is the summary of one process.
type Table struct {
	Process dataset.ProcessMeta
	Host    string
	Events  int64
	Dropped int64 // events before the first, by a ring
	Ending  dataset.Ending
	Cards   []Card // of its devices
	Rows    []Row
}

// Card is what is known of the GPU of a device.
type Card struct {
	Device int32  `json:"device"`
	Card   string `json:"card"` // tells it from every other one of all runs
	GPU    string `json:"gpu"`  // model
	Driver string `json:"driver"`
}

// Metrics of a whole device that are no metrics of `memprof check`.
const (
	Allocations = "allocations"  // count
	Frees       = "frees"        // count
	Iterations  = "iterations"   // count
	Duration    = "duration"     // ns, time of the process's last event
	Memory      = "gpu.memory"   // bytes of the GPU; no row where that is unknown
	Used        = "gpu.used"     // most bytes that the driver reported for the GPU or the process; no row without readings
	UsedByAll   = "gpu.used_all" // count, 1: Used is of all processes on the GPU
	First       = "first_use"    // ns, when the process first held memory of the device
)

// Metrics of an iteration that are no metrics of `memprof check`.
const (
	RequestedEnd   = "requested.end"   // bytes live at its end
	AllocatedBytes = "allocated.bytes" // bytes requested in it
	AllocatedCount = "allocated.count" // requests in it
)

// New makes the table of a process from its result.
func New(p *dataset.Process, host string, r *analysis.Result) *Table {
	t := &Table{Process: p.ProcessMeta, Host: host, Events: r.Events, Dropped: p.Dropped(), Ending: p.Ending}
	for i := range r.Devices {
		d := &r.Devices[i]
		t.Cards = append(t.Cards, Card{d.Device, d.Card, d.GPU, d.Driver})
		t.whole(r, d)
		t.byIteration(d)
	}
	return t
}

// whole adds the rows of a whole device, its phases, tags and categories.
func (t *Table) whole(r *analysis.Result, d *analysis.DeviceResult) {
	base := Row{Device: d.Device, Iteration: -1, Seq: -1}
	add := func(row Row, metric, unit string, value float64) {
		row.Metric, row.Unit, row.Value = metric, unit, value
		t.Rows = append(t.Rows, row)
	}
	metrics := func(row Row, of *analysis.Subjects) {
		for _, m := range analysis.Metrics() {
			if value, seq, ok := m.Value(of); ok {
				row.Seq = seq
				add(row, m.Name, m.Unit.String(), value)
			}
		}
	}
	metrics(base, d.Subjects())
	add(base, Allocations, "count", float64(d.Allocs))
	add(base, Frees, "count", float64(d.Frees))
	add(base, Iterations, "count", float64(d.IterationCount()))
	add(base, Duration, "ns", float64(r.Duration))
	if d.Total > 0 {
		add(base, Memory, "bytes", float64(d.Total))
	}
	if a := d.Account; a != nil && a.UsedPeak >= 0 {
		add(base, Used, "bytes", float64(a.UsedPeak))
		if a.Scope != accounting.ScopeProcess {
			add(base, UsedByAll, "count", 1)
		}
	}
	if len(d.Series.Points) > 0 {
		add(base, First, "ns", float64(d.Series.Points[0].Start))
	}
	for i := range d.Phases {
		of := base
		if of.Phase = d.Phases[i].Phase; of.Phase == "" {
			continue
		}
		if part, ok := d.OfPhase(of.Phase); ok {
			metrics(of, part)
		}
		add(of, "duration", "ns", float64(d.Phases[i].Duration))
		add(of, AllocatedBytes, "bytes", float64(d.Phases[i].AllocBytes))
		add(of, AllocatedCount, "count", float64(d.Phases[i].Allocs))
	}
	for i := range d.Tags {
		of := base
		of.Tag = d.Tags[i].Tag
		if part, ok := r.OfTag(d, of.Tag); ok {
			metrics(of, part)
		}
	}
	if !d.Held.Known {
		return
	}
	for c := attribution.Weights; c <= attribution.Other; c++ {
		of := base
		of.Category, of.Seq = c.String(), d.Peak.Seq
		held := d.Held.Categories.Of(of.Category)
		add(of, "requested.at_peak", "bytes", float64(held.Requested))
		add(of, "live.peak", "count", float64(held.Blocks))
	}
}

// byIteration adds the rows of each iteration.
func (t *Table) byIteration(d *analysis.DeviceResult) {
	points := d.ByCategory
	for i := range d.Iterations {
		it := &d.Iterations[i]
		row := Row{Device: d.Device, Iteration: it.Number, Iterations: 1 + it.More, Seq: it.EndSeq}
		add := func(metric, unit string, value int64) {
			if value >= 0 {
				row.Metric, row.Unit, row.Value = metric, unit, float64(value)
				t.Rows = append(t.Rows, row)
			}
		}
		add("requested.peak", "bytes", it.PeakT)
		add("provided.peak", "bytes", it.PeakC)
		add("reserved.peak", "bytes", it.PeakR)
		add(RequestedEnd, "bytes", it.EndT)
		add(AllocatedBytes, "bytes", it.AllocBytes)
		add(AllocatedCount, "count", it.Allocs)
		add(Duration, "ns", it.End-it.Start)

		// The moment of most requested bytes within the iteration, of those that are kept.
		var most *attribution.CategoryPoint
		for len(points) > 0 && points[0].Seq <= it.EndSeq {
			if p := &points[0]; p.Seq >= it.StartSeq && (most == nil || p.Bytes.Sum() > most.Bytes.Sum()) {
				most = p
			}
			points = points[1:]
		}
		if most == nil {
			continue
		}
		row.Seq = most.Seq
		for c, bytes := range most.Bytes {
			if bytes != 0 {
				row.Category = attribution.Category(c).String()
				add("requested.peak", "bytes", bytes)
			}
		}
	}
	t.phaseIterations(d)
}

// phaseIterations adds the phases of the iterations that have them, the first and the last.
func (t *Table) phaseIterations(d *analysis.DeviceResult) {
	for i := range d.PhaseIterations {
		of := &d.PhaseIterations[i]
		number, ok := d.IterationNumber(of.Iteration)
		if !ok {
			continue
		}
		for _, use := range of.Uses {
			if use.Phase == "" {
				continue
			}
			row := Row{Device: d.Device, Iteration: number, Iterations: 1, Phase: use.Phase, Seq: -1}
			for _, v := range []struct {
				metric, unit string
				value        int64
			}{{"requested.peak", "bytes", use.PeakT}, {"provided.peak", "bytes", use.PeakC}, {AllocatedBytes, "bytes", use.AllocBytes}, {Duration, "ns", use.Duration}} {
				if v.value >= 0 {
					row.Metric, row.Unit, row.Value = v.metric, v.unit, float64(v.value)
					t.Rows = append(t.Rows, row)
				}
			}
		}
	}
}

// sort brings rows into the order of a file, in which neighbouring iterations can be joined.
func (t *Table) sort() {
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return a.compare(&b) })
}

// compare orders rows: those of the whole process first, and those of equal texts by iteration.
func (r *Row) compare(b *Row) int {
	whole := func(r *Row) int64 { return min(1, r.Iterations) }
	return cmp.Or(cmp.Compare(whole(r), whole(b)), cmp.Compare(r.Device, b.Device), strings.Compare(r.Phase, b.Phase), strings.Compare(r.Tag, b.Tag),
		strings.Compare(r.Category, b.Category), strings.Compare(r.Metric, b.Metric), cmp.Compare(r.Iteration, b.Iteration))
}

// join makes neighbouring iterations one, in a table that is sorted. It returns false if there is nothing to join.
func (t *Table) join() bool {
	rows := t.Rows[:0:0]
	joined := false
	odd := false // the row before is the first of a pair
	for i := range t.Rows {
		row := t.Rows[i]
		last := len(rows) - 1
		if odd && row.follows(&rows[last]) {
			rows[last].merge(&row)
			odd, joined = false, true
			continue
		}
		rows = append(rows, row)
		odd = row.Iterations > 0
	}
	t.Rows = rows
	return joined
}

// follows says whether the row is of the iterations right behind those of another one, and of the same thing.
func (r *Row) follows(b *Row) bool {
	return r.Iterations > 0 && r.Device == b.Device && r.Phase == b.Phase && r.Tag == b.Tag && r.Category == b.Category && r.Metric == b.Metric && r.Iteration == b.Iteration+b.Iterations
}

// merge adds the row of the iterations that follow.
func (r *Row) merge(next *Row) {
	r.Iterations = next.Iteration + next.Iterations - r.Iteration
	switch r.Metric {
	case RequestedEnd:
		r.Value, r.Seq = next.Value, next.Seq
	case AllocatedBytes, AllocatedCount, Duration:
		r.Value, r.Seq = r.Value+next.Value, next.Seq
	default:
		if next.Value > r.Value {
			r.Value, r.Seq = next.Value, next.Seq
		}
	}
}
