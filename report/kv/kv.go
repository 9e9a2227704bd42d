// Package kv reports KV caches: what their slots hold, of a simulation under several policies and of
// what an engine recorded.
package kv

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Simulation is the KV cache of one model and load, served under several policies.
type Simulation struct {
	Model         string // empty if only BytesPerToken is known
	Ranks         int    // GPUs that the heads are divided over, at least 1
	Memory        int64  // bytes of the cache on each rank
	BytesPerToken int64  // on each rank; 0 if an engine did not report it
	Card          *models.Card
	Load          string            // one line about the requests
	Sampling      string            // greedy, parallel:4, ...; empty if not known
	Timing        *serving.Timing   // nil: steps of constant time, or recorded ones
	Results       []*kvcache.Result // of each policy one, or one for each rate
	Stages        int               // GPUs that the layers are divided over; 0 or 1: one
}

func titleOf(k *Simulation) string {
	title := "KV cache"
	if k.Model != "" {
		title += " of " + k.Model
	}
	if k.Load != "" {
		title += " · " + plain.Shorten(k.Load, 60)
	}
	return title
}

func lineOf(k *Simulation) string {
	if k.BytesPerToken == 0 { // not reported by the engine
		return ""
	}
	line := fmt.Sprintf("%s · %s bytes per token · %s", plain.FormatSize(k.Memory), plain.FormatCount(k.BytesPerToken), plain.Counted(k.Memory/k.BytesPerToken, "slot"))
	if n := k.Ranks * max(1, k.Stages); n > 1 {
		line += fmt.Sprintf(" · on each of %d GPUs", n)
	}
	if k.Sampling != "" && k.Sampling != "greedy" {
		line += " · " + k.Sampling
	}
	return line
}

// Sections are the simulation: its memory, and what each policy made of it.
func Sections(k *Simulation) []layout.Section {
	sections := []layout.Section{{Title: titleOf(k), Before: layout.Note(lineOf(k)), Heading: true}}
	if k.Card != nil {
		sections = append(sections, cardSection(k))
	}
	if s, any := servedSection(k); any {
		sections = append(sections, s)
	}
	k = k.busiest()
	sections = append(sections, slotsSection(k), externalSection(k))
	if s, any := kindsSection(k); any {
		sections = append(sections, s)
	}
	sections = append(sections, requestsSection(k))
	if s, any := sharingSection(k); any {
		sections = append(sections, s)
	}
	return sections
}

// columns are one of words and the others of numbers.
func columns(words string, numbers ...string) []layout.Column {
	all := []layout.Column{layout.Words(words)}
	for _, name := range numbers {
		all = append(all, layout.Numbers(name))
	}
	return all
}

func cardSection(k *Simulation) layout.Section {
	c := k.Card
	s := layout.Section{Title: "GPU memory", Columns: columns("part", "bytes", "share of the GPU")}
	for _, part := range []struct {
		name  string
		bytes int64
	}{{"weights", c.Weights}, {"KV cache", c.KV}, {"rest", c.Rest}} {
		s.Rows = append(s.Rows, layout.Row(part.name, plain.FormatSize(part.bytes), plain.FormatPercent(plain.Ratio(part.bytes, c.Total))))
	}
	s.Total = layout.Row("= GPU", plain.FormatSize(c.Total), plain.FormatPercent(plain.Ratio(c.Total, c.Total)))
	return s
}

// slotsSection says what the slots were used for: figure 2 of the vLLM paper, in numbers.
func slotsSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title:   "Use of the slots, mean over " + k.meansOver() + k.atRate(),
		Columns: columns("policy", "token", "reserve", "internal", "external", "blocked", "idle", "cached", "null", "batch"),
	}
	for _, r := range k.Results {
		m := meanOf(r)
		s.Rows = append(s.Rows, layout.Row(r.Policy, plain.FormatPercent(m.Token), plain.FormatPercent(m.Reserve), plain.FormatPercent(m.Internal),
			plain.FormatPercent(m.External()), plain.FormatPercent(m.Blocked), plain.FormatPercent(m.Idle), plain.FormatPercent(m.Cached), plain.FormatPercent(m.Null),
			fmt.Sprintf("%.2f (%s)", r.Batch, plain.FormatCount(r.Peak))))
	}
	s.After = layout.Row(
		"shares of all slots; token: holds a token (higher is better); reserve: reserved, filled later;",
		"internal: reserved, never filled; external: lost to fragmentation;",
		"blocked: free, but in all too few for the first waiting request; idle: free otherwise;",
		"cached: prefixes of finished requests; null: the null block; batch: running, mean (most)")
	return s
}

// meanOf returns the mean shares, NaN (printed "–") if no step was counted.
func meanOf(r *kvcache.Result) kvcache.Shares64 {
	if r.Steps > 0 {
		return r.Mean
	}
	no := math.NaN()
	return kvcache.Shares64{Token: no, Reserve: no, Internal: no, Rounding: no, Fragmented: no, Blocked: no, Idle: no, Cached: no, Null: no}
}

func externalSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title:   "External fragmentation",
		Columns: columns("policy", "external", "rounding", "fragmented"),
		After:   layout.Row("rounding: added to reservations by the allocator;", "fragmented: free, enough for the first waiting request, in too small pieces"),
	}
	for _, r := range k.Results {
		m := meanOf(r)
		s.Rows = append(s.Rows, layout.Row(r.Policy, plain.FormatPercent(m.External()), plain.FormatPercent(m.Rounding), plain.FormatPercent(m.Fragmented)))
	}
	return s
}

func requestsSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title:   "Requests",
		Columns: columns("policy", "steps", "requests", "finished", "rejected", "preempted", "recomputed", "swap out", "swap in"),
		After:   layout.Row("rejected: larger than the whole cache; recomputed: tokens of preempted requests;", "swap: blocks moved"),
	}
	for _, r := range k.Results {
		line := layout.Row(r.Policy, plain.FormatCount(r.Steps), plain.FormatCount(r.Requests), plain.FormatCount(r.Finished), plain.FormatCount(r.Rejected),
			plain.FormatCount(r.Preemptions), plain.FormatCount(r.Recomputed), plain.FormatCount(r.SwappedOut), plain.FormatCount(r.SwappedIn))
		if r.Rejected > 0 {
			line[4].Tone = layout.Warned
		}
		s.Rows = append(s.Rows, line)
	}
	return s
}

// sharingSection says how many of the blocks that block tables name were shared.
func sharingSection(k *Simulation) (layout.Section, bool) {
	s := layout.Section{
		Title:   "Shared blocks, as shares of the blocks that block tables name",
		Columns: columns("policy", "by sequences", "by prefixes", "equal", "copies", "prefix hits", "hit tokens"),
		After:   layout.Note("equal: equal blocks of unrelated requests, which are not shared; copies: blocks copied on write"),
	}
	for _, r := range k.Results {
		if r.SavedBySequences == 0 && r.SavedByPrefix == 0 && r.SavedByEqual == 0 && r.Copies == 0 && r.PrefixHits == 0 {
			continue
		}
		s.Rows = append(s.Rows, layout.Row(r.Policy, plain.FormatPercent(shareOfBlocks(r.SavedBySequences, r)), plain.FormatPercent(shareOfBlocks(r.SavedByPrefix, r)),
			plain.FormatPercent(shareOfBlocks(r.SavedByEqual, r)), plain.FormatCount(r.Copies), plain.FormatCount(r.PrefixHits), plain.FormatCount(r.PrefixTokens)))
	}
	return s, len(s.Rows) > 0
}

// shareOfBlocks is the share of the blocks that block tables name; NaN if they name none.
func shareOfBlocks(blocks float64, r *kvcache.Result) float64 {
	if r.LogicalBlocks == 0 {
		return math.NaN()
	}
	return blocks / r.LogicalBlocks
}
