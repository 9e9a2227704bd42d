package compare

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []int64
		want   []int // places of those marked
	}{
		{"too few", []int64{1, 1, 900}, nil},
		{"all the same", []int64{5, 5, 5, 5}, nil},
		{"one in a course that does not move", []int64{1000, 1000, 1011, 1000}, []int{2}},
		{"less than 1 % off", []int64{1000, 1000, 1010, 1000}, nil},
		{"within the spread", []int64{900, 1000, 1100, 1000, 1200, 1400}, nil},
		// median 1000, median deviation 10: beyond 51.891
		{"at the bound", []int64{990, 1000, 1010, 1051, 949, 1000, 995}, nil},
		{"beyond the bound", []int64{990, 1000, 1010, 1052, 947, 1000, 990}, []int{3, 4}},
		{"the first", []int64{2000, 1000, 1000, 1000, 1000}, []int{0}},
	} {
		var got []int
		for i, marked := range Outliers(c.values) {
			if marked {
				got = append(got, i)
			}
		}
		assert.Diff(t, c.want, got, "%s", c.name)
	}
}
