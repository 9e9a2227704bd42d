package kv

import (
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Sizes are what the layers of a model keep, and what sequences of some lengths take in pages of one size.
type Sizes struct {
	Model     string        `json:"model"`
	Ranks     int           `json:"ranks"`   // GPUs that the heads are divided over; all sizes are of one
	Stages    int           `json:"stages"`  // GPUs that the layers are divided over
	Weights   *int64        `json:"weights"` // bytes; null where they are not known
	Memory    *int64        `json:"memory"`  // bytes of the cache; null where none are given, and then Pages and what follows from it
	Card      *models.Card  `json:"card"`
	Token     int64         `json:"bytes_per_token"` // in all layers that keep tokens
	State     int64         `json:"bytes_per_sequence"`
	Page      int64         `json:"page"`
	Pages     *int64        `json:"pages"`
	Kinds     []KindSize    `json:"kinds"`
	Sequences []SequenceUse `json:"sequences"`
}

// KindSize is layers that keep the same.
type KindSize struct {
	Kind    string  `json:"kind"`
	Layers  int     `json:"layers"`
	Bytes   int64   `json:"bytes"` // of a token in one layer; of a state its own
	Tables  int64   `json:"tables"`
	Block   int64   `json:"block"`   // tokens of a page
	Padding float64 `json:"padding"` // share of the pages that holds nothing, even when they are full
}

// SequenceUse is what one sequence takes.
type SequenceUse struct {
	Tokens int64    `json:"tokens"`
	Pages  int64    `json:"pages"`
	Held   int64    `json:"held"`
	Needed int64    `json:"needed"`
	Waste  float64  `json:"waste"`           // 1 - needed/held
	Share  *float64 `json:"share"`           // of all pages
	AtOnce *float64 `json:"at_once"`         // such sequences that fit
	Fit    *int64   `json:"tokens_that_fit"` // in such sequences
}

// Compute fills in what follows from the kinds, blocks of so many tokens, and the memory.
func (s *Sizes) Compute(kinds []models.LayerKind, block int64, lengths []int64) {
	l := models.Unify(kinds, block)
	s.Page, s.Token = l.Page, models.SlotBytes(kinds)
	if s.Memory != nil {
		pages := *s.Memory / l.Page
		s.Pages = &pages
	}
	for _, g := range l.Groups {
		if g.Keep == models.State {
			_, states := g.Kept(0)
			s.State += states * g.Bytes * int64(g.Layers)
		}
		full := g.Block * g.Bytes * int64(g.Layers)
		s.Kinds = append(s.Kinds, KindSize{g.String(), g.Layers, g.Bytes, g.Groups, g.Block, 1 - plain.Ratio(full, g.Groups*l.Page)})
	}
	for _, tokens := range lengths {
		u := SequenceUse{Tokens: tokens}
		for i := range l.Groups {
			pages, needed := l.Groups[i].Pages(tokens)
			u.Pages, u.Needed = u.Pages+pages, u.Needed+needed
		}
		u.Held = u.Pages * l.Page
		u.Waste = 1 - plain.Ratio(u.Needed, u.Held)
		if s.Pages != nil && *s.Pages > 0 {
			share, atOnce := plain.Ratio(u.Pages, *s.Pages), plain.Ratio(*s.Pages, u.Pages)
			fit := int64(atOnce * float64(tokens))
			u.Share, u.AtOnce, u.Fit = &share, &atOnce, &fit
		}
		s.Sequences = append(s.Sequences, u)
	}
}

// SizesJSON writes the sizes as one indented JSON object. It fails only if w does.
func SizesJSON(w io.Writer, s *Sizes) error { return plain.WriteJSON(w, s) }

// SizesSections are the sizes of layers, and of sequences.
func SizesSections(s *Sizes) []layout.Section {
	line := fmt.Sprintf("%s bytes a token, %s of states a sequence · pages of %s", plain.FormatCount(s.Token), plain.FormatSize(s.State), plain.FormatSize(s.Page))
	if s.Pages != nil {
		line += fmt.Sprintf(" · %s: %s", plain.FormatSize(*s.Memory), plain.Counted(*s.Pages, "page"))
	}
	if s.Weights != nil {
		line += " · weights " + plain.FormatSize(*s.Weights)
	}
	if n := s.Ranks * s.Stages; n > 1 {
		line += fmt.Sprintf(" · on each of %d GPUs", n)
	}
	sections := []layout.Section{{Title: "KV cache of " + s.Model, Before: layout.Note(line), Heading: true}}
	if s.Card != nil {
		sections = append(sections, cardSection(&Simulation{Card: s.Card}))
	}
	kinds := layout.Section{
		Title: "Layers by what they keep", Columns: columns("kind", "layers", "a layer's token or state", "tables", "block", "padding"),
		After: layout.Row("tables: block tables of a sequence; block: tokens of a page;", "padding: share of a full page that holds nothing (lower is better)"),
	}
	for _, k := range s.Kinds {
		kinds.Rows = append(kinds.Rows, layout.Row(k.Kind, plain.FormatCount(int64(k.Layers)), plain.FormatSize(k.Bytes), plain.FormatCount(k.Tables),
			plain.FormatCount(k.Block), plain.FormatPercent(k.Padding)))
	}
	used := layout.Section{
		Title: "One sequence", Columns: columns("tokens", "pages", "held", "needed", "waste"),
		After: layout.Row("waste: share of the pages held that no layer needs (lower is better)"),
	}
	if s.Pages != nil {
		used.Columns = append(used.Columns, columns("", "of the cache", "fit at once", "tokens that fit")[1:]...)
		used.After = append(used.After, layout.Row("tokens that fit: in sequences of this length; vLLM logs those of the longest as",
			"its \"GPU KV cache size\", where windows also have room for the tokens of a step")...)
	}
	used.Columns[0].Number = true
	for _, u := range s.Sequences {
		row := layout.Row(plain.FormatCount(u.Tokens), plain.FormatCount(u.Pages), plain.FormatSize(u.Held), plain.FormatSize(u.Needed), plain.FormatPercent(u.Waste))
		if u.Share != nil {
			row = append(row, layout.Row(plain.FormatPercent(*u.Share), fmt.Sprintf("%.2f", *u.AtOnce), plain.FormatCount(*u.Fit))...)
		}
		used.Rows = append(used.Rows, row)
	}
	return append(sections, kinds, used)
}
