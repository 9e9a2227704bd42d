package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache"
)

// KV is the memory of keys and values of one model and load, simulated under several policies.
type KV struct {
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
func KVText(w io.Writer, k *KV, o Options) error {
	return writeText(w, o, kvSections(k)...)
}

// KVMarkdown writes what KVText does as GitHub-flavoured Markdown.
func KVMarkdown(w io.Writer, k *KV) error {
	return writeMarkdown(w, kvSections(k)...)
}

func kvTitle(k *KV) string {
	title := "Keys and values"
	if k.Model != "" {
		title += " of " + k.Model
	}
	if k.Load != "" {
		title += " · " + shorten(k.Load, 60)
	}
	return title
}

func kvLine(k *KV) string {
	if k.BytesPerToken == 0 { // an engine need not say
		return ""
	}
	line := fmt.Sprintf("%s · %s bytes a token · %s", FormatSize(k.Memory), formatCount(k.BytesPerToken), plural(k.Memory/k.BytesPerToken, "slot"))
	if k.Ranks > 1 {
		line += fmt.Sprintf(" · on each of %d GPUs", k.Ranks)
	}
	if k.Sampling != "" && k.Sampling != "greedy" {
		line += " · " + k.Sampling
	}
	return line
}

func kvSections(k *KV) []section {
	sections := []section{{title: kvTitle(k), before: note(kvLine(k)), heading: true}}
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

func kvCardSection(k *KV) section {
	c := k.Card
	s := section{title: "The card", columns: []column{words("what"), numbers("bytes"), numbers("share")}}
	for _, part := range []struct {
		name  string
		bytes int64
	}{{"weights", c.Weights}, {"keys and values", c.KV}, {"rest", c.Rest}} {
		s.rows = append(s.rows, row(part.name, FormatSize(part.bytes), FormatPercent(ratio(part.bytes, c.Total))))
	}
	s.total = row("card", FormatSize(c.Total), FormatPercent(ratio(c.Total, c.Total)))
	return s
}

// kvRanksSection has a row of each rank, the same in all: one block table steers them.
func kvRanksSection(k *KV) section {
	s := section{
		title:   "GPUs",
		columns: []column{numbers("rank"), numbers("keys and values"), numbers("bytes a token"), numbers("slots")},
		after:   note("one block table, broadcast; each rank holds its heads of every token"),
	}
	for rank := range k.Ranks {
		s.rows = append(s.rows, row(strconv.Itoa(rank), FormatSize(k.Memory), formatCount(k.BytesPerToken), formatCount(k.Memory/k.BytesPerToken)))
	}
	s.elide(8, 4)
	return s
}

// kvSplitSection is the paper's figure 2 in numbers.
func kvSplitSection(k *KV) section {
	s := section{
		title: "Where the slots were, in the mean over steps",
		columns: []column{
			words("policy"), numbers("token"), numbers("reserve"), numbers("internal"), numbers("external"), numbers("cached"), numbers("null"),
			numbers("batch"), numbers("peak"),
		},
	}
	for _, r := range k.Results {
		m := kvMean(r)
		s.rows = append(s.rows, row(r.Policy, FormatPercent(m.Token), FormatPercent(m.Reserve), FormatPercent(m.Internal),
			FormatPercent(kvExternal(m)), FormatPercent(m.Cached), FormatPercent(m.Null),
			strconv.FormatFloat(r.Batch, 'f', 2, 64), formatCount(r.Peak)))
	}
	s.after = note("reserve: will be filled; internal: never filled, of a reservation or block; batch: requests at once")
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

func kvExternalSection(k *KV) section {
	s := section{
		title:   "External: what belongs to no reservation",
		columns: []column{words("policy"), numbers("external"), numbers("rounding"), numbers("stranded"), numbers("idle")},
		after:   note("stranded: free, but no piece serves the request that is next; idle: all else that is free"),
	}
	for _, r := range k.Results {
		m := kvMean(r)
		s.rows = append(s.rows, row(r.Policy, FormatPercent(kvExternal(m)), FormatPercent(m.Rounding), FormatPercent(m.Stranded), FormatPercent(m.Idle)))
	}
	return s
}

func kvRequestsSection(k *KV) section {
	s := section{
		title: "Requests",
		columns: []column{
			words("policy"), numbers("steps"), numbers("requests"), numbers("finished"), numbers("rejected"), numbers("preempted"),
			numbers("recomputed"), numbers("swapped out"), numbers("in"),
		},
		after: note("rejected: can never fit; recomputed: tokens; swapped: blocks, or under vmm rows of pages"),
	}
	for _, r := range k.Results {
		line := row(r.Policy, formatCount(r.Steps), formatCount(r.Requests), formatCount(r.Finished), formatCount(r.Rejected),
			formatCount(r.Preemptions), formatCount(r.Recomputed), formatCount(r.SwappedOut), formatCount(r.SwappedIn))
		if r.Rejected > 0 {
			line[4].tone = warned
		}
		s.rows = append(s.rows, line)
	}
	return s
}

// kvSharingSection tells what sharing saved of the blocks that tables named.
func kvSharingSection(k *KV) (section, bool) {
	s := section{
		title: "Sharing, of the blocks that block tables name",
		columns: []column{
			words("policy"), numbers("sequences"), numbers("prefixes"), numbers("equal"), numbers("copies"), numbers("prefix hits"), numbers("tokens"),
		},
		after: note("equal: at equal positions of unrelated requests, counted apart from what is saved"),
	}
	for _, r := range k.Results {
		if r.SavedBySequences == 0 && r.SavedByPrefix == 0 && r.SavedByEqual == 0 && r.Copies == 0 && r.PrefixHits == 0 {
			continue
		}
		s.rows = append(s.rows, row(r.Policy, FormatPercent(kvShare(r.SavedBySequences, r)), FormatPercent(kvShare(r.SavedByPrefix, r)),
			FormatPercent(kvShare(r.SavedByEqual, r)), formatCount(r.Copies), formatCount(r.PrefixHits), formatCount(r.PrefixTokens)))
	}
	return s, len(s.rows) > 0
}

// kvShare is a share of the blocks that tables name; NaN where they name none.
func kvShare(blocks float64, r *kvcache.Result) float64 {
	if r.LogicalBlocks == 0 {
		return math.NaN()
	}
	return blocks / r.LogicalBlocks
}

// kvMapSections are the sequences with their block tables, and the physical blocks in use.
func kvMapSections(r *kvcache.Result) []section {
	m := r.Map
	tables := section{
		title:   fmt.Sprintf("Block tables of %s after step %s", r.Policy, formatCount(m.Step)),
		columns: []column{numbers("request"), numbers("sequence"), numbers("tokens"), words("physical blocks")},
	}
	for _, q := range m.Sequences {
		blocks := make([]string, 0, len(q.Table))
		for _, b := range q.Table {
			blocks = append(blocks, strconv.Itoa(int(b)))
		}
		tables.rows = append(tables.rows, row(formatCount(q.Request), formatCount(q.Sequence), formatCount(int64(q.Tokens)),
			shorten(strings.Join(blocks, " "), 64)))
	}
	tables.elide(12, 6)
	blocks := section{
		title:   "Physical blocks",
		columns: []column{numbers("block"), numbers("references"), numbers("filled"), words("state")},
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
		blocks.rows = append(blocks.rows, row(formatCount(int64(i)), formatCount(int64(b.References)), fmt.Sprintf("%d/%d", b.Filled, m.BlockSize), state))
	}
	blocks.elide(12, 6)
	return []section{tables, blocks}
}
