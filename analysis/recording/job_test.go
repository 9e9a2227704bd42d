package recording

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// recordingOf has a process for each name, with one device that reserved so much.
func recordingOf(path string, world int, reserved map[string]int64) Recording {
	run := Recording{Path: path, Run: &trace.Run{}}
	for _, name := range []string{"rank0", "rank1", "rank1-pid9", "rank2", "rank3", "pid5", "pid6", "pid7", "pid8"} {
		bytes, ok := reserved[name]
		if !ok {
			continue
		}
		rank, ranked := analysis.RankOf(name)
		if !ranked {
			rank = -1
		}
		run.Run.Processes = append(run.Run.Processes, &trace.Process{ProcessMeta: trace.ProcessMeta{Name: name, Rank: rank, WorldSize: world}})
		run.Results = append(run.Results, &analysis.Result{Process: name, Devices: []analysis.DeviceResult{{Allocs: 1, MaxR: bytes, MaxT: bytes, Peak: analysis.Instant{Seq: -1}}}})
	}
	return run
}

// TestJobs: which recordings are nodes of one job.
func TestJobs(t *testing.T) {
	low := map[string]int64{"rank0": 1, "rank1": 1}
	high := map[string]int64{"rank2": 1, "rank3": 1}
	tests := []struct {
		name string
		runs []Recording
		want []string // the paths of each
	}{
		{"two nodes", []Recording{recordingOf("a", 4, low), recordingOf("b", 4, high)}, []string{"a b"}},
		{"two Jobs on two nodes", []Recording{recordingOf("a", 4, low), recordingOf("b", 4, high), recordingOf("c", 4, low), recordingOf("d", 4, high)}, []string{"a b", "c d"}},
		{"whole worlds", []Recording{recordingOf("a", 2, low), recordingOf("b", 2, low)}, []string{"a", "b"}},
		{"different worlds", []Recording{recordingOf("a", 4, low), recordingOf("b", 6, high)}, []string{"a", "b"}},
		{"no ranks", []Recording{recordingOf("a", -1, map[string]int64{"pid5": 1}), recordingOf("b", -1, map[string]int64{"pid6": 1})}, []string{"a", "b"}},
		{"ranks and none", []Recording{recordingOf("a", 4, low), recordingOf("b", -1, map[string]int64{"pid6": 1})}, []string{"a", "b"}},
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
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
