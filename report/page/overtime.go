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

// stripesData are the allocations with most bytes times time, in order of birth.
type stripesData struct {
	Seq       packed `json:"seq"`
	Freed     packed `json:"freed"` // seq, -1 for never
	Birth     packed `json:"birth"`
	Life      packed `json:"life"` // ns
	Requested packed `json:"requested"`
	Origin    packed `json:"origin"`
	Arena     packed `json:"arena"`
	Addr      packed `json:"addr"` // from the arena's base
}

func newStripes(p *pack, all []keyframes.Stripe, r *analysis.Result) *stripesData {
	of := func(value func(*keyframes.Stripe) int64) packed { return columnOf(p, all, value) }
	return &stripesData{
		Seq: of(func(s *keyframes.Stripe) int64 { return s.Seq }), Freed: of(func(s *keyframes.Stripe) int64 { return s.Freed }),
		Birth: of(func(s *keyframes.Stripe) int64 { return s.Birth }), Life: of(func(s *keyframes.Stripe) int64 { return s.Gone - s.Birth }),
		Requested: of(func(s *keyframes.Stripe) int64 { return s.Requested }), Origin: of(func(s *keyframes.Stripe) int64 { return int64(s.Origin) }),
		Arena: of(func(s *keyframes.Stripe) int64 { return int64(s.Arena) }),
		Addr:  of(func(s *keyframes.Stripe) int64 { return s.Addr - r.Arenas[s.Arena].Base }),
	}
}
