package kv

import (
	"strconv"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// nameOf is a result's policy, and its engine where there are several.
func nameOf(r *kvcache.Result) string {
	if r.Engine == "" {
		return r.Policy
	}
	return r.Policy + ", " + r.Engine
}

// heldOf is what an engine held, in bytes: all of its memory where it gives nothing back.
func heldOf(k *Simulation, r *kvcache.Result) kvcache.Held {
	slot := float64(k.BytesPerToken)
	if r.Held == nil {
		all := slot * float64(r.Capacity)
		return kvcache.Held{Mean: all, Peak: all, FloorMean: all * r.Mean.Token, FloorPeak: slot * float64(peakTokens(r))}
	}
	h := *r.Held
	h.Mean, h.Peak, h.FloorMean, h.FloorPeak = h.Mean*slot, h.Peak*slot, h.FloorMean*slot, h.FloorPeak*slot
	return h
}

// peakTokens is the most tokens at once: the series keeps its peaks.
func peakTokens(r *kvcache.Result) int64 {
	var most int64
	for _, p := range r.Series {
		most = max(most, p.Shares.Token)
	}
	return most
}

// heldSection says what memory was held, beside what tokens needed. There is none where no policy gives any back.
func heldSection(k *Simulation) (layout.Section, bool) {
	s := layout.Section{
		Title: "Memory held",
		Columns: []layout.Column{
			layout.Words("policy"), layout.Numbers("arriving/s"), layout.Numbers("held"), layout.Numbers("peak"), layout.Numbers("floor"), layout.Numbers("peak floor"),
			layout.Numbers("pages mapped"), layout.Numbers("unmapped"),
		},
		After: layout.Row("held: mapped for the engine, mean over "+k.meansOver()+"; floor: what its tokens need (held is at least that);", "together: all engines at the same time"),
	}
	any := len(k.Together) > 0
	row := func(name string, rate float64, h kvcache.Held) {
		arriving := "–"
		if rate > 0 {
			arriving = strconv.FormatFloat(rate, 'g', -1, 64)
		}
		s.Rows = append(s.Rows, layout.Row(name, arriving, plain.FormatSize(int64(h.Mean)), plain.FormatSize(int64(h.Peak)), plain.FormatSize(int64(h.FloorMean)),
			plain.FormatSize(int64(h.FloorPeak)), plain.FormatCount(h.Mapped), plain.FormatCount(h.Unmapped)))
	}
	engines := 1
	if n := len(k.Together); n > 0 {
		engines = len(k.Results) / n
	}
	for i, r := range k.Results {
		any = any || r.Held != nil
		row(nameOf(r), r.Rate, heldOf(k, r))
		if at := i / engines; len(k.Together) > 0 && i%engines == engines-1 {
			t := k.Together[at]
			row(t.Policy+", together", t.Rate, *t.Held)
		}
	}
	return s, any
}
