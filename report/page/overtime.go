package page

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/keyframes"
)

// categoriesData are the requested bytes by category at the moments of most requested bytes. Bytes has a column for each
// of Names.
type categoriesData struct {
	Names []string `json:"names"`
	Seq   packed   `json:"seq"`
	Time  packed   `json:"time"`
	R     packed   `json:"r"`
	Bytes []packed `json:"bytes"`
}

func newCategories(p *pack, points []attribution.CategoryPoint) *categoriesData {
	if len(points) == 0 {
		return nil
	}
	of := func(value func(*attribution.CategoryPoint) int64) packed { return columnOf(p, points, value) }
	out := &categoriesData{
		Names: []string{}, Bytes: []packed{},
		Seq:  of(func(o *attribution.CategoryPoint) int64 { return o.Seq }),
		Time: of(func(o *attribution.CategoryPoint) int64 { return o.Time }),
		R:    of(func(o *attribution.CategoryPoint) int64 { return o.R }),
	}
	for _, c := range attribution.PresentCategories(points) {
		out.Names = append(out.Names, c.String())
		out.Bytes = append(out.Bytes, of(func(o *attribution.CategoryPoint) int64 { return o.Bytes[c] }))
	}
	return out
}

// newStripes are the allocations with most bytes times time, in order of birth.
func newStripes(p *pack, all []keyframes.Stripe, r *analysis.Result) columns {
	return columnsOf(p, all, []column[keyframes.Stripe]{
		{"seq", func(s *keyframes.Stripe) int64 { return s.Seq }},
		{"freed", func(s *keyframes.Stripe) int64 { return s.Freed }}, // seq, -1 for never
		{"birth", func(s *keyframes.Stripe) int64 { return s.Birth }},
		{"life", func(s *keyframes.Stripe) int64 { return s.Gone - s.Birth }}, // ns
		{"requested", func(s *keyframes.Stripe) int64 { return s.Requested }},
		{"origin", func(s *keyframes.Stripe) int64 { return int64(s.Origin) }},
		{"arena", func(s *keyframes.Stripe) int64 { return int64(s.Arena) }},
		{"addr", func(s *keyframes.Stripe) int64 { return s.Addr - r.Arenas[s.Arena].Base }},
	})
}
