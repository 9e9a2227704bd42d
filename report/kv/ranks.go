package kv

import (
	"fmt"
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Rank is a KV cache of one process and device, beside those of the others.
type Rank struct {
	Process string  `json:"process"`
	Device  int32   `json:"device"`
	Cache   string  `json:"cache"`
	Slots   int64   `json:"slots"`
	Token   float64 `json:"token"` // share of the slots that hold a token, in the mean
	Batch   float64 `json:"batch"`
	Worst   bool    `json:"worst"` // the least Token of all
	result  *kv.Result
}

// Ranks are the KV caches of all processes, in their order; none if there are fewer than two. Of equal ones the first
// is the worst.
func Ranks(results []*analysis.Result) []Rank {
	ranks := []Rank{}
	worst := -1
	for _, r := range results {
		for i := range r.Devices {
			for _, c := range r.Devices[i].KV {
				if c.Fault != "" || c.Recorded.Capacity == 0 {
					continue
				}
				name := c.Name
				if name == "" {
					name = c.Engine
				}
				if worst < 0 || c.Recorded.Mean.Token < ranks[worst].Token {
					worst = len(ranks)
				}
				ranks = append(ranks, Rank{
					Process: r.Process, Device: r.Devices[i].Device, Cache: name, Slots: c.Recorded.Capacity,
					Token: c.Recorded.Mean.Token, Batch: c.Recorded.Batch, result: c,
				})
			}
		}
	}
	if len(ranks) < 2 {
		return []Rank{}
	}
	ranks[worst].Worst = true
	return ranks
}

// RanksSection has the KV caches of several processes or devices side by side, and names the worst.
func RanksSection(results []*analysis.Result) (layout.Section, bool) {
	s := layout.Section{
		Title: "KV caches side by side",
		Columns: []layout.Column{
			layout.Words("process"), layout.Numbers("GPU"), layout.Words("cache"), layout.Numbers("slots"), layout.Numbers("token"), layout.Numbers("reserve"), layout.Numbers("internal"),
			layout.Numbers("idle"), layout.Numbers("cached"), layout.Numbers("batch"), layout.Numbers("swapped"),
		},
		After: layout.Note("shares of the slots, mean over time; token: holds a token (higher is better); swapped: blocks to the host and back"),
	}
	ranks := Ranks(results)
	var sum float64
	for _, r := range ranks {
		sum += r.Token
		m := r.result.Recorded.Mean
		line := layout.Row(plain.Shorten(r.Process, 15), plain.FormatCount(int64(r.Device)), plain.Shorten(r.Cache, 20), plain.FormatCount(r.Slots), plain.FormatPercent(m.Token),
			plain.FormatPercent(m.Reserve), plain.FormatPercent(m.Internal), plain.FormatPercent(m.Idle), plain.FormatPercent(m.Cached), strconv.FormatFloat(r.Batch, 'f', 2, 64),
			plain.FormatCount(r.result.Recorded.SwappedOut+r.result.Recorded.SwappedIn))
		if r.Worst {
			line[4].Tone = layout.Warned
		}
		s.Rows = append(s.Rows, line)
	}
	s.Elide(24, 8)
	for _, r := range ranks {
		if r.Worst {
			s.After = append(s.After, layout.Cell{Tone: layout.Strong, Text: fmt.Sprintf("worst: %s on GPU %d, %s of its slots hold a token, %s in the mean of all",
				plain.Shorten(r.Process, 24), r.Device, plain.FormatPercent(r.Token), plain.FormatPercent(sum/float64(len(ranks))))})
		}
	}
	return s, len(ranks) > 1
}
