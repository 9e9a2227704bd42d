package recording

import (
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// node is the recording of processes with these ranks, -1 for a process without one.
func node(path string, world int, ranks ...int) Recording {
	run := &dataset.Run{}
	for _, rank := range ranks {
		run.Processes = append(run.Processes, &dataset.Process{ProcessMeta: dataset.ProcessMeta{Rank: rank, WorldSize: world}})
	}
	return Recording{Path: path, Run: run}
}

// TestJobs: which recordings are nodes of one job.
func TestJobs(t *testing.T) {
	tests := []struct {
		name string
		runs []Recording
		want []string // the paths of each
	}{
		{"two nodes", []Recording{node("a", 4, 0, 1), node("b", 4, 2, 3)}, []string{"a b"}},
		{"two Jobs on two nodes", []Recording{node("a", 4, 0, 1), node("b", 4, 2, 3), node("c", 4, 0, 1), node("d", 4, 2, 3)}, []string{"a b", "c d"}},
		{"whole worlds", []Recording{node("a", 2, 0, 1), node("b", 2, 0, 1)}, []string{"a", "b"}},
		{"different worlds", []Recording{node("a", 4, 0, 1), node("b", 6, 2, 3)}, []string{"a", "b"}},
		{"no ranks", []Recording{node("a", -1, -1), node("b", -1, -1)}, []string{"a", "b"}},
		{"ranks and none", []Recording{node("a", 4, 0, 1), node("b", -1, -1)}, []string{"a", "b"}},
	}
	for _, test := range tests {
		var got []string
		for _, r := range Jobs(test.runs) {
			paths := ""
			for _, run := range r {
				paths += " " + run.Path
			}
			got = append(got, paths[1:])
		}
		assert.Diff(t, test.want, got, "%s", test.name)
	}
}

// TestPointsOf holds that the series of a job do not grow with its processes: 4,096 points are 1.4 MB a process.
func TestPointsOf(t *testing.T) {
	for _, c := range []struct{ wanted, processes, want int }{{4096, 0, 4096}, {4096, 128, 4096}, {4096, 129, 4064}, {16384, 64, 8192}, {4096, 10_000, 52}, {4096, 100_000, 32}} {
		assert.Equal(t, pointsOf(c.wanted, c.processes), c.want, "points of %d processes of which %d are wanted", c.processes, c.wanted)
	}
}
