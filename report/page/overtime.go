package page

import (
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/keyframes"
)

// newCategories are the requested bytes by category at the moments of most requested bytes: bytes has a column for each
// of names.
func newCategories(p *pack, points []attribution.CategoryPoint) columns {
	if len(points) == 0 {
		return nil
	}
	out := columnsOf(p, points, []column[attribution.CategoryPoint]{
		{"time", func(o *attribution.CategoryPoint) int64 { return o.Time }},
	})
	names, bytes := []string{}, []packed{}
	for _, c := range attribution.PresentCategories(points) {
		names = append(names, c.String())
		bytes = append(bytes, columnOf(p, points, func(o *attribution.CategoryPoint) int64 { return o.Bytes[c] }))
	}
	out["names"], out["bytes"] = names, bytes
	return out
}

// newStripes are the allocations with most bytes times time, in order of birth.
func newStripes(p *pack, all []keyframes.Stripe) columns {
	return columnsOf(p, all, []column[keyframes.Stripe]{
		{"seq", func(s *keyframes.Stripe) int64 { return s.Seq }},
		{"freed", func(s *keyframes.Stripe) int64 { return s.Freed }}, // seq, -1 for never
		{"birth", func(s *keyframes.Stripe) int64 { return s.Birth }},
		{"life", func(s *keyframes.Stripe) int64 { return s.Gone - s.Birth }}, // ns
		{"requested", func(s *keyframes.Stripe) int64 { return s.Requested }},
		{"origin", func(s *keyframes.Stripe) int64 { return int64(s.Origin) }},
	})
}
