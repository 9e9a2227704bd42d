package fit

import "slices"

// mostEdits bounds how many requests and frees two recordings may not have in common: the search takes their square in memory.
const mostEdits = 3000

// align returns, for each element of a, the element of b that is the same, or -1: of all ways to match them in their order one
// that matches most. ok is false where more than mostEdits elements of both have no match. The method is Myers' (An O(ND)
// difference algorithm, 1986): row d has how far each diagonal gets with d elements unmatched.
func align(a, b []uint64) (match []int32, ok bool) {
	match = slices.Repeat([]int32{-1}, len(a))
	reach := make([]int32, 2*mostEdits+3) // by diagonal, from -mostEdits-1 on
	at := func(diagonal int) *int32 { return &reach[diagonal+mostEdits+1] }
	var rows [][]int32
	for d := 0; d <= mostEdits; d++ {
		for k := -d; k <= d; k += 2 {
			x := int32(0)
			switch {
			case d == 0:
			case k == -d || k != d && *at(k - 1) < *at(k + 1):
				x = *at(k + 1)
			default:
				x = *at(k - 1) + 1
			}
			for int(x) < len(a) && int(x)-k < len(b) && a[x] == b[int(x)-k] {
				x++
			}
			*at(k) = x
			if int(x) >= len(a) && int(x)-k >= len(b) {
				backtrack(rows, match, len(a), len(b))
				return match, true
			}
		}
		rows = append(rows, slices.Clone(reach[mostEdits+1-d:mostEdits+2+d]))
	}
	return nil, false
}

// backtrack follows the rows back from the ends of both sequences, and notes what was matched.
func backtrack(rows [][]int32, match []int32, x, y int) {
	for d := len(rows); d > 0; d-- {
		row := rows[d-1] // of the diagonals 1-d to d-1
		reach := func(k int) int32 { return row[k+d-1] }
		k := x - y
		before := k - 1
		if k == -d || k != d && reach(k-1) < reach(k+1) {
			before = k + 1
		}
		fromX := int(reach(before))
		for fromY := fromX - before; x > fromX && y > fromY; {
			x, y = x-1, y-1
			match[x] = int32(y)
		}
		x, y = fromX, fromX-before
	}
	for x > 0 && y > 0 {
		x, y = x-1, y-1
		match[x] = int32(y)
	}
}
