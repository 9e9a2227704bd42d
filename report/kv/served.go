package kv

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// sweeps says whether the results are of several rates.
func (k *Simulation) sweeps() bool {
	return slices.ContainsFunc(k.Results, func(r *kvcache.Result) bool { return r.Rate != k.Results[0].Rate })
}

// busiest is the simulation with only the results of the greatest rate: what slots are used for is of most
// interest there, and a row for each rate would be too many.
func (k *Simulation) busiest() *Simulation {
	if !k.sweeps() {
		return k
	}
	only := *k
	greatest := slices.MaxFunc(k.Results, func(a, b *kvcache.Result) int { return cmp.Compare(a.Rate, b.Rate) }).Rate
	only.Results = slices.DeleteFunc(slices.Clone(k.Results), func(r *kvcache.Result) bool { return r.Rate != greatest })
	return &only
}

// meansOver is what means are over: time where steps differ in it.
func (k *Simulation) meansOver() string {
	if k.Timing != nil {
		return "time"
	}
	return "steps"
}

// atRate names the rate of the results, where they are those of one rate.
func (k *Simulation) atRate() string {
	if len(k.Results) == 0 || k.Results[0].Rate == 0 || k.sweeps() {
		return ""
	}
	return fmt.Sprintf(", at %v requests/s", k.Results[0].Rate)
}

// servedSection says what the requests got under each policy and rate. There is none where steps have no time.
func servedSection(k *Simulation) (layout.Section, bool) {
	s := layout.Section{
		Title:   "Throughput and latency",
		Columns: columns("policy", "arriving/s", "finished/s", "tokens/s", "waiting", "latency", "p90", "batch", "preempted"),
	}
	for _, r := range k.Results {
		v := r.Served
		if v == nil {
			continue
		}
		arriving := "–"
		if r.Rate > 0 {
			arriving = strconv.FormatFloat(r.Rate, 'g', -1, 64)
		}
		s.Rows = append(s.Rows, layout.Row(r.Policy, arriving, figures3(v.Requests), figures3(v.Tokens), seconds(v.Waiting),
			seconds(v.Latency.Mean), seconds(v.Latency.P90), strconv.FormatFloat(r.Batch, 'f', 2, 64), plain.FormatCount(r.Preemptions)))
	}
	s.After = layout.Row("latency: from arrival to the last token, divided by the generated tokens, mean and 90th percentile;",
		"waiting: mean time before a request is first admitted", timingLine(k))
	return s, len(s.Rows) > 0
}

// timingLine says where the time of steps comes from.
func timingLine(k *Simulation) string {
	t := k.Timing
	if t == nil {
		return "time of steps: constant, whatever they compute (--timing)"
	}
	line := "time of steps: "
	if t.Name != "" {
		line += t.Name + ", "
	}
	line += t.Source
	if t.Error > 0 {
		line += fmt.Sprintf("; fitted steps are %s off in the mean", plain.FormatPercent(t.Error))
	}
	if k.Ranks > 1 {
		line += "; what GPUs say to each other is not in it"
	}
	return line
}

// figures3 is a number with three figures.
func figures3(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if v >= 1000 {
		return plain.FormatCount(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(max(v, 0.01))))), 64)
}

// seconds is a time in s or ms, with three figures.
func seconds(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 1:
		return figures3(v) + " s"
	}
	return figures3(1000*v) + " ms"
}
