package kv

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// KV is the memory of keys and values of one model and load, simulated under several policies.
type Simulation struct {
	Model         string // empty if only BytesPerToken is known
	Ranks         int    // GPUs that the heads are divided over, at least 1
	Memory        int64  // bytes for keys and values on each rank
	BytesPerToken int64  // on each rank
	Card          *kvcache.Card
	Load          string // one line on the requests
	Sampling      string // greedy, parallel:4 and the like; empty where it is not known
	Results       []*kvcache.Result
}

// KVText writes the simulation for a terminal. It fails only where w does.
func Text(w io.Writer, k *Simulation, o layout.Options) error {
	return layout.WriteText(w, o, kvSections(k)...)
}

// KVMarkdown writes what KVText does as GitHub-flavoured Markdown.
func Markdown(w io.Writer, k *Simulation) error {
	return layout.WriteMarkdown(w, kvSections(k)...)
}

func kvTitle(k *Simulation) string {
	title := "Keys and values"
	if k.Model != "" {
		title += " of " + k.Model
	}
	if k.Load != "" {
		title += " · " + plain.Shorten(k.Load, 60)
	}
	return title
}

func kvLine(k *Simulation) string {
	if k.BytesPerToken == 0 { // an engine need not say
		return ""
	}
	line := fmt.Sprintf("%s · %s bytes a token · %s", units.FormatSize(k.Memory), units.FormatCount(k.BytesPerToken), units.Counted(k.Memory/k.BytesPerToken, "slot"))
	if k.Ranks > 1 {
		line += fmt.Sprintf(" · on each of %d GPUs", k.Ranks)
	}
	if k.Sampling != "" && k.Sampling != "greedy" {
		line += " · " + k.Sampling
	}
	return line
}

func kvSections(k *Simulation) []layout.Section {
	sections := []layout.Section{{Title: kvTitle(k), Before: layout.Note(kvLine(k)), Heading: true}}
	if k.Card != nil {
		sections = append(sections, kvCardSection(k))
	}
	if k.Ranks > 1 {
		sections = append(sections, kvRanksSection(k))
	}
	sections = append(sections, kvSplitSection(k), kvExternalSection(k), kvRequestsSection(k))
	if s, any := kvSharingSection(k); any {
		sections = append(sections, s)
	}
	for _, r := range k.Results {
		if r.Map != nil {
			sections = append(sections, kvMapSections(r)...)
		}
	}
	return sections
}

func kvCardSection(k *Simulation) layout.Section {
	c := k.Card
	s := layout.Section{Title: "The card", Columns: []layout.Column{layout.Words("what"), layout.Numbers("bytes"), layout.Numbers("share")}}
	for _, part := range []struct {
		name  string
		bytes int64
	}{{"weights", c.Weights}, {"keys and values", c.KV}, {"rest", c.Rest}} {
		s.Rows = append(s.Rows, layout.Row(part.name, units.FormatSize(part.bytes), units.FormatPercent(units.Ratio(part.bytes, c.Total))))
	}
	s.Total = layout.Row("card", units.FormatSize(c.Total), units.FormatPercent(units.Ratio(c.Total, c.Total)))
	return s
}

// kvRanksSection has a row of each rank, the same in all: one block table steers them.
func kvRanksSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title:   "GPUs",
		Columns: []layout.Column{layout.Numbers("rank"), layout.Numbers("keys and values"), layout.Numbers("bytes a token"), layout.Numbers("slots")},
		After:   layout.Note("one block table, broadcast; each rank holds its heads of every token"),
	}
	for rank := range k.Ranks {
		s.Rows = append(s.Rows, layout.Row(strconv.Itoa(rank), units.FormatSize(k.Memory), units.FormatCount(k.BytesPerToken), units.FormatCount(k.Memory/k.BytesPerToken)))
	}
	s.Elide(8, 4)
	return s
}

// kvSplitSection is the paper's figure 2 in numbers.
func kvSplitSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title: "Where the slots were, in the mean over steps",
		Columns: []layout.Column{
			layout.Words("policy"), layout.Numbers("token"), layout.Numbers("reserve"), layout.Numbers("internal"), layout.Numbers("external"), layout.Numbers("cached"), layout.Numbers("null"),
			layout.Numbers("batch"), layout.Numbers("peak"),
		},
	}
	for _, r := range k.Results {
		m := kvMean(r)
		s.Rows = append(s.Rows, layout.Row(r.Policy, units.FormatPercent(m.Token), units.FormatPercent(m.Reserve), units.FormatPercent(m.Internal),
			units.FormatPercent(kvExternal(m)), units.FormatPercent(m.Cached), units.FormatPercent(m.Null),
			strconv.FormatFloat(r.Batch, 'f', 2, 64), units.FormatCount(r.Peak)))
	}
	s.After = layout.Note("reserve: will be filled; internal: never filled, of a reservation or block; batch: requests at once")
	return s
}

// kvMean are the mean shares; NaN, printed "–", where no step was counted.
func kvMean(r *kvcache.Result) kvcache.Shares64 {
	if r.Steps > 0 {
		return r.Mean
	}
	no := math.NaN()
	return kvcache.Shares64{Token: no, Reserve: no, Internal: no, Rounding: no, Stranded: no, Idle: no, Cached: no, Null: no}
}

func kvExternal(m kvcache.Shares64) float64 { return m.Rounding + m.Stranded + m.Idle }

func kvExternalSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title:   "External: what belongs to no reservation",
		Columns: []layout.Column{layout.Words("policy"), layout.Numbers("external"), layout.Numbers("rounding"), layout.Numbers("stranded"), layout.Numbers("idle")},
		After:   layout.Note("stranded: free, but no piece serves the request that is next; idle: all else that is free"),
	}
	for _, r := range k.Results {
		m := kvMean(r)
		s.Rows = append(s.Rows, layout.Row(r.Policy, units.FormatPercent(kvExternal(m)), units.FormatPercent(m.Rounding), units.FormatPercent(m.Stranded), units.FormatPercent(m.Idle)))
	}
	return s
}

func kvRequestsSection(k *Simulation) layout.Section {
	s := layout.Section{
		Title: "Requests",
		Columns: []layout.Column{
			layout.Words("policy"), layout.Numbers("steps"), layout.Numbers("requests"), layout.Numbers("finished"), layout.Numbers("rejected"), layout.Numbers("preempted"),
			layout.Numbers("recomputed"), layout.Numbers("swapped out"), layout.Numbers("in"),
		},
		After: layout.Note("rejected: can never fit; recomputed: tokens; swapped: blocks, or under vmm rows of pages"),
	}
	for _, r := range k.Results {
		line := layout.Row(r.Policy, units.FormatCount(r.Steps), units.FormatCount(r.Requests), units.FormatCount(r.Finished), units.FormatCount(r.Rejected),
			units.FormatCount(r.Preemptions), units.FormatCount(r.Recomputed), units.FormatCount(r.SwappedOut), units.FormatCount(r.SwappedIn))
		if r.Rejected > 0 {
			line[4].Tone = layout.Warned
		}
		s.Rows = append(s.Rows, line)
	}
	return s
}

// kvSharingSection tells what sharing saved of the blocks that tables named.
func kvSharingSection(k *Simulation) (layout.Section, bool) {
	s := layout.Section{
		Title: "Sharing, of the blocks that block tables name",
		Columns: []layout.Column{
			layout.Words("policy"), layout.Numbers("sequences"), layout.Numbers("prefixes"), layout.Numbers("equal"), layout.Numbers("copies"), layout.Numbers("prefix hits"), layout.Numbers("tokens"),
		},
		After: layout.Note("equal: at equal positions of unrelated requests, counted apart from what is saved"),
	}
	for _, r := range k.Results {
		if r.SavedBySequences == 0 && r.SavedByPrefix == 0 && r.SavedByEqual == 0 && r.Copies == 0 && r.PrefixHits == 0 {
			continue
		}
		s.Rows = append(s.Rows, layout.Row(r.Policy, units.FormatPercent(kvShare(r.SavedBySequences, r)), units.FormatPercent(kvShare(r.SavedByPrefix, r)),
			units.FormatPercent(kvShare(r.SavedByEqual, r)), units.FormatCount(r.Copies), units.FormatCount(r.PrefixHits), units.FormatCount(r.PrefixTokens)))
	}
	return s, len(s.Rows) > 0
}

// kvShare is a share of the blocks that tables name; NaN where they name none.
func kvShare(blocks float64, r *kvcache.Result) float64 {
	if r.LogicalBlocks == 0 {
		return math.NaN()
	}
	return blocks / r.LogicalBlocks
}

// kvMapSections are the sequences with their block tables, and the physical blocks in use.
func kvMapSections(r *kvcache.Result) []layout.Section {
	m := r.Map
	tables := layout.Section{
		Title:   fmt.Sprintf("Block tables of %s after step %s", r.Policy, units.FormatCount(m.Step)),
		Columns: []layout.Column{layout.Numbers("request"), layout.Numbers("sequence"), layout.Numbers("tokens"), layout.Words("physical blocks")},
	}
	for _, q := range m.Sequences {
		blocks := make([]string, 0, len(q.Table))
		for _, b := range q.Table {
			blocks = append(blocks, strconv.Itoa(int(b)))
		}
		tables.Rows = append(tables.Rows, layout.Row(units.FormatCount(q.Request), units.FormatCount(q.Sequence), units.FormatCount(int64(q.Tokens)),
			plain.Shorten(strings.Join(blocks, " "), 64)))
	}
	tables.Elide(12, 6)
	blocks := layout.Section{
		Title:   "Physical blocks",
		Columns: []layout.Column{layout.Numbers("block"), layout.Numbers("references"), layout.Numbers("filled"), layout.Words("state")},
	}
	for i, b := range m.Blocks {
		state := "used"
		switch {
		case b.Null:
			state = "null"
		case b.References == 0 && b.Cached:
			state = "cached"
		case b.References == 0:
			continue
		case b.References > 1:
			state = "shared"
		}
		blocks.Rows = append(blocks.Rows, layout.Row(units.FormatCount(int64(i)), units.FormatCount(int64(b.References)), fmt.Sprintf("%d/%d", b.Filled, m.BlockSize), state))
	}
	blocks.Elide(12, 6)
	return []layout.Section{tables, blocks}
}
