package kv

import (
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// kindsSection says what layers of each kind hold and waste. There is none but for policies that know kinds.
func kindsSection(k *Simulation) (layout.Section, bool) {
	s := layout.Section{
		Title: "Layers by what they keep",
		Columns: []layout.Column{
			layout.Words("policy"), layout.Words("kind"), layout.Numbers("layers"), layout.Numbers("tables"), layout.Numbers("block"), layout.Numbers("held"), layout.Numbers("needed"), layout.Numbers("waste"),
		},
		After: layout.Row("tables: block tables of a sequence (uniform: one for all layers); block: its tokens;",
			"waste: share of what is held that no layer needs: tokens outside the window, empty", "slots of blocks, and pages that are larger than what is in them (lower is better)"),
	}
	for _, r := range k.Results {
		var held, needed float64
		for _, u := range r.Kinds {
			held += u.Held
			needed += u.Needed
			tables := "–"
			if u.Groups > 0 {
				tables = plain.FormatCount(u.Groups)
			}
			s.Rows = append(s.Rows, layout.Row(r.Policy, u.Kind.String(), plain.FormatCount(int64(u.Kind.Layers)), tables, plain.FormatCount(u.Block),
				plain.FormatSize(int64(u.Held)), plain.FormatSize(int64(u.Needed)), plain.FormatPercent(u.Waste())))
		}
		if len(r.Kinds) > 1 && held > 0 {
			s.Rows = append(s.Rows, layout.Row(r.Policy, "all", "", "", "", plain.FormatSize(int64(held)), plain.FormatSize(int64(needed)), plain.FormatPercent(1-needed/held)))
		}
	}
	return s, len(s.Rows) > 0
}
