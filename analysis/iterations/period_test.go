package iterations

import "testing"

func TestPeriodOfSizes(t *testing.T) {
	repeat := func(n int, sizes ...int64) (out []int64) {
		for range n {
			out = append(out, sizes...)
		}
		return out
	}
	ten := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	other := []int64{31, 32, 33, 34, 35, 36, 37}
	layered := append(append(repeat(6, ten...), other...), 99) // ten six times, within an iteration
	for name, test := range map[string]struct {
		sizes  []int64
		period int
		from   int
	}{
		"empty":            {nil, 0, 0},
		"regular":          {repeat(8, ten...), 10, 0},
		"start differs":    {append(append([]int64{}, other...), repeat(8, ten...)...), 10, 7},
		"end differs":      {append(repeat(9, ten...), other...), 10, 0},
		"both differ":      {append(append(append([]int64{}, other...), repeat(9, ten...)...), other...), 10, 7},
		"inner loop":       {repeat(6, layered...), len(layered), 0},
		"too short a loop": {repeat(100, 1, 2, 3), 0, 0},
		"twice only":       {repeat(2, ten...), 0, 0},
		"none": {func() (out []int64) {
			for i := range int64(500) {
				out = append(out, i*i)
			}
			return
		}(), 0, 0},
	} {
		history := make([]Request, len(test.sizes))
		for i, size := range test.sizes {
			history[i].Requested = size
		}
		if period, from, _ := findPeriod(history); period != test.period || period > 0 && from != test.from {
			t.Errorf("%s: period %d from %d, want %d from %d", name, period, from, test.period, test.from)
		}
	}
}
