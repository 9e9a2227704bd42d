package summary

import (
	"cmp"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/dataset"
)

// Row is one number of a process; see the package comment. All fields are written, so that every file has the same columns.
type Row struct {
	Device   int32   `json:"device"`
	Phase    string  `json:"phase"`
	Category string  `json:"category"`
	Tag      string  `json:"tag"`
	Metric   string  `json:"metric"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Seq      int64   `json:"seq"`
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
	Allocations = "allocations" // count
	Frees       = "frees"       // count
	Iterations  = "iterations"  // count
	Duration    = "duration"    // ns, time of the process's last event
	Memory      = "gpu.memory"  // bytes of the GPU; no row where that is unknown
	Used        = "gpu.used"    // most bytes that the driver reported for the GPU or the process; no row without readings
)

// Metrics of a phase that are no metrics of `memprof check`.
const (
	AllocatedBytes = "allocated.bytes" // bytes requested in it
	AllocatedCount = "allocated.count" // requests in it
)

// New makes the table of a process from its result.
func New(p *dataset.Process, host string, r *analysis.Result) *Table {
	t := &Table{Process: p.ProcessMeta, Host: host, Events: r.Events, Dropped: p.Dropped(), Ending: p.Ending}
	for i := range r.Devices {
		d := &r.Devices[i]
		t.Cards = append(t.Cards, Card{d.Device, d.Card, d.GPU, d.Driver})
		t.add(r, d)
	}
	return t
}

// add adds the rows of a device, its phases, tags and categories.
func (t *Table) add(r *analysis.Result, d *analysis.DeviceResult) {
	base := Row{Device: d.Device, Seq: -1}
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
	}
	for i := range d.Phases {
		of := base
		if of.Phase = d.Phases[i].Phase; of.Phase == "" {
			continue
		}
		if part, ok := d.OfPhase(of.Phase); ok {
			metrics(of, part)
		}
		add(of, Duration, "ns", float64(d.Phases[i].Duration))
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

// compare orders rows by device, phase, tag, category and metric.
func (r *Row) compare(b *Row) int {
	return cmp.Or(cmp.Compare(r.Device, b.Device), strings.Compare(r.Phase, b.Phase), strings.Compare(r.Tag, b.Tag), strings.Compare(r.Category, b.Category), strings.Compare(r.Metric, b.Metric))
}
