package bfc

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// live says whether a span of a circle has a position.
func (p positions) live(position, circle uint32) bool {
	return p.from <= position && position < p.to || p.from <= position+circle && position+circle < p.to
}

// naiveArrangement looks at every position.
type naiveArrangement struct {
	obstacles []byteRange
	leaving   []leaver
	circle    uint32
	blocks    []byteRange
	spans     []positions
}

func (n *naiveArrangement) place(size uint64, p positions) uint64 {
	if p.none() {
		return noPlace
	}
	taken := slices.Clone(n.obstacles)
	for _, l := range n.leaving {
		if p.from < l.until {
			taken = append(taken, l.byteRange)
		}
	}
	for i, r := range n.blocks {
		for position := range n.circle {
			if p.live(position, n.circle) && n.spans[i].live(position, n.circle) {
				taken = append(taken, r)
				break
			}
		}
	}
	slices.SortFunc(taken, func(a, b byteRange) int { return cmp.Compare(a.from, b.from) })
	at := uint64(0)
	for _, r := range taken {
		if r.from >= at && r.from-at >= size {
			break
		}
		at = max(at, r.to)
	}
	if at != noPlace {
		n.blocks, n.spans = append(n.blocks, byteRange{at, at + size}), append(n.spans, p)
	}
	return at
}

// Blocks come to lie where a search from end to end finds the lowest address, whether few of
// them are live together or so many that they are sorted in another way, and near and far.
func TestArrangement(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		length := uint32(1 + random.IntN(150))
		step := uint64(Granule) << random.IntN(24)
		var obstacles []byteRange
		end := uint64(0)
		for range random.IntN(4) {
			next := end + step*random.Uint64N(200)
			obstacles = append(obstacles, byteRange{end, next})
			end = next + step*(1+random.Uint64N(300))
		}
		if random.IntN(2) == 0 {
			end = noPlace
		}
		obstacles = append(obstacles, byteRange{end, noPlace})
		var leaving []leaver
		for range random.IntN(5) {
			from := step * random.Uint64N(500)
			leaving = append(leaving, leaver{byteRange{from, from + step}, random.Uint32N(length + 1)})
		}
		fast := newArrangement(obstacles, leaving, 2*length)
		slow := naiveArrangement{obstacles: obstacles, leaving: leaving, circle: 2 * length}
		for _, from := range random.Perm(int(2 * length)) {
			span := positions{uint32(from), uint32(from)}
			if random.IntN(10) > 0 {
				span.to += 1 + random.Uint32N(min(2*length, 3*length-1-uint32(from)%length))
			}
			size := step * (1 + random.Uint64N(20))
			if got, want := fast.place(size, span), slow.place(size, span); got != want {
				t.Fatalf("seed %d: %d bytes live at %v of %d are at %d, want %d", seed, size, span, 2*length, got, want)
			}
		}
	}
}

func TestPairs(t *testing.T) {
	for name, test := range map[string]struct {
		lifetimes []lifetime
		length    uint32
		want      uint64
	}{
		"nothing":         {nil, 0, 0},
		"one by one":      {[]lifetime{{from: 0, to: 1, end: endsSame}, {from: 2, to: 3, end: endsSame}}, 4, 0},
		"together":        {[]lifetime{{from: 0, to: 3, end: endsSame}, {from: 1, to: 5, end: endsSame}, {from: 2, to: 4, end: endsSame}}, 6, 3},
		"into the next":   {[]lifetime{{from: 0, to: 2, end: endsNext}, {from: 1, to: 3, end: endsSame}}, 4, 3},
		"without a place": {[]lifetime{{from: 0, end: endsLater}, {from: 1, to: 3, end: endsSame}, {from: 2, end: endsLater}}, 4, 0},
	} {
		if got := pairs(test.lifetimes, test.length); got != test.want {
			t.Errorf("%s: %d pairs, want %d", name, got, test.want)
		}
	}
}
