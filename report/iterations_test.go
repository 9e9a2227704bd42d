package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/iterations"
)

// Iterations are counted from 0, and so are the ones that have a number in a figure.
func TestIterationTicks(t *testing.T) {
	iterations := make([]iterations.Iteration, 90)
	for i := range iterations {
		iterations[i].Number = int64(i)
	}
	for n, want := range map[int][]string{
		3:  {"0", "1", "2"},
		90: {"0", "5", "10", "15", "20", "25", "30", "35", "40", "45", "50", "55", "60", "65", "70", "75", "80", "85"},
	} {
		var labels []string
		for _, tick := range iterationTicks(iterations[:n]) {
			labels = append(labels, tick.Label)
			if tick.Label == "0" && tick.Value != 1 {
				t.Errorf("the first bar is at %v", tick.Value)
			}
		}
		if diff := cmp.Diff(want, labels); diff != "" {
			t.Error(diff)
		}
	}
}
