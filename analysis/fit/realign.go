package fit

// Two matches of a recording's steps can be of one length while one of them pairs a gradient with a scalar, where equal
// origins follow each other. realign looks again at what surrounds each step without a match, and prefers there what pairs
// steps with likely sizes.

const (
	around    = 256     // how many steps on both sides of a gap are matched again
	mostCells = 4 << 20 // of the table for it
	matched   = 1024    // what a match counts; a likely one counts 1 more
)

// stretch is a range of steps of both sequences.
type stretch struct{ fromA, toA, fromB, toB int }

// realign matches the steps around gaps again. likely says whether the bytes of a step of a and a step of b, which have the
// same key, fit each other.
func realign(a, b []uint64, match []int32, likely func(x, y int) bool) {
	for _, s := range gaps(match, len(b)) {
		if (s.toA-s.fromA+1)*(s.toB-s.fromB+1) > mostCells {
			continue
		}
		rematch(a[s.fromA:s.toA], b[s.fromB:s.toB], match[s.fromA:s.toA], int32(s.fromB), func(x, y int) bool { return likely(s.fromA+x, s.fromB+y) })
	}
}

// gaps are what surrounds steps of either sequence without a match. Between two there is a step with a match.
func gaps(match []int32, others int) (all []stretch) {
	expected := int32(0)
	for i := 0; i <= len(match); i++ {
		at := int32(others)
		if i < len(match) {
			at = match[i]
		}
		if at == expected {
			expected++
			continue
		}
		if at >= 0 {
			expected = at + 1
		}
		from, to := max(0, i-around), min(len(match), i+1+around)
		if n := len(all); n > 0 && from <= all[n-1].toA+1 {
			all[n-1].toA = to
			continue
		}
		all = append(all, stretch{fromA: from, toA: to})
	}
	for i := range all {
		s := &all[i]
		for s.fromA > 0 && match[s.fromA-1] < 0 {
			s.fromA--
		}
		for s.toA < len(match) && match[s.toA] < 0 {
			s.toA++
		}
		if s.fromA > 0 {
			s.fromB = int(match[s.fromA-1]) + 1
		}
		if s.toB = others; s.toA < len(match) {
			s.toB = int(match[s.toA])
		}
	}
	return all
}

// rematch is the table of Needleman and Wunsch: the best score of each two tails, filled from their ends.
func rematch(a, b []uint64, match []int32, first int32, likely func(x, y int) bool) {
	width := len(b) + 1
	best := make([]int32, (len(a)+1)*width)
	score := func(x, y int) int32 {
		switch {
		case a[x] != b[y]:
			return 0
		case likely(x, y):
			return matched + 1
		}
		return matched
	}
	for x := len(a) - 1; x >= 0; x-- {
		for y := len(b) - 1; y >= 0; y-- {
			most := max(best[(x+1)*width+y], best[x*width+y+1])
			if s := score(x, y); s > 0 {
				most = max(most, s+best[(x+1)*width+y+1])
			}
			best[x*width+y] = most
		}
	}
	for x, y := 0, 0; x < len(a); {
		match[x] = -1
		if y == len(b) {
			x++
			continue
		}
		s := score(x, y)
		switch {
		case s > 0 && best[x*width+y] == s+best[(x+1)*width+y+1]:
			match[x] = first + int32(y)
			x, y = x+1, y+1
		case best[x*width+y] == best[x*width+y+1]:
			y++
		default:
			x++
		}
	}
}
