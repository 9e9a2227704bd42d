package gate

import (
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recordingOf has a process for each name, with one device that reserved so much.
func recordingOf(path string, world int, reserved map[string]int64) recording.Recording {
	run := recording.Recording{Path: path, Run: &dataset.Run{}}
	for _, name := range []string{"rank0", "rank1", "rank1-pid9", "rank2", "rank3", "pid5", "pid6", "pid7", "pid8"} {
		bytes, ok := reserved[name]
		if !ok {
			continue
		}
		rank, ranked := compare.RankOf(name)
		if !ranked {
			rank = -1
		}
		run.Run.Processes = append(run.Run.Processes, &dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: name, Rank: rank, WorldSize: world}})
		run.Results = append(run.Results, &analysis.Result{Process: name, Devices: []analysis.DeviceResult{{Memory: &analysis.Memory{MaxR: bytes, MaxT: bytes, Peak: ledger.Instant{Seq: -1}}, Allocs: 1}}})
	}
	return run
}

// judged holds a gate against the median of recordings.
func judged(t *testing.T, ranks, text string, recordings []recording.Recording) ([]Verdict, error) {
	t.Helper()
	choice, err := ParseRanks(ranks)
	assert.NoError(t, err)
	g, err := Parse(text)
	assert.NoError(t, err)
	verdicts, _, err := (&Judge{Ranks: choice, Aggregate: "median"}).one(&g, recording.Jobs(recordings))
	return verdicts, err
}

func TestCheckRanks(t *testing.T) {
	world := recordingOf("run", 3, map[string]int64{"rank0": 100, "rank1": 300, "rank1-pid9": 500, "rank2": 300})
	again := recordingOf("again", 3, map[string]int64{"rank0": 150, "rank1": 200, "rank2": 250})
	third := recordingOf("third", 3, map[string]int64{"rank0": 120, "rank1": 100, "rank2": 100})
	nodes := []recording.Recording{
		recordingOf("node0", 4, map[string]int64{"rank0": 100, "rank1": 200}),
		recordingOf("node1", 4, map[string]int64{"rank2": 300, "rank3": 1000}),
	}
	jobs := recordingOf("jobs", -1, map[string]int64{"pid5": 10, "pid6": 30})
	rerun := recordingOf("rerun", -1, map[string]int64{"pid7": 20, "pid8": 40})
	tests := []struct {
		name, rank, gate string
		runs             []recording.Recording
		want             []string // value, where, Verdict of each line
	}{
		{"the worst rank", "worst", "reserved.peak < 400B", []recording.Recording{world}, []string{"500 run: rank1-pid9, device 0 false"}},
		{"the worst from below", "worst", "reserved.peak >= 100B", []recording.Recording{world}, []string{"100 run: rank0, device 0 true"}},
		{"one rank, with all its processes", "1", "reserved.peak < 400B", []recording.Recording{world}, []string{"500 run: rank1-pid9, device 0 false"}},
		{"another", "2", "reserved.peak < 400B", []recording.Recording{world}, []string{"300 run: rank2, device 0 true"}},
		{"each rank", "all", "reserved.peak < 400B", []recording.Recording{world}, []string{
			"100 run: rank0, device 0 true", "500 run: rank1-pid9, device 0 false", "300 run: rank2, device 0 true",
		}},
		{"the mean of the ranks", "mean", "reserved.peak <= 300B", []recording.Recording{world}, []string{"300 run: mean of 3 ranks true"}},
		{"each rank's median", "all", "reserved.peak < 400B", []recording.Recording{world, again, third}, []string{
			"120 third: rank0, device 0 true", "200 again: rank1, device 0 true", "250 again: rank2, device 0 true",
		}},
		{"the median of the worst", "worst", "reserved.peak < 400B", []recording.Recording{world, again, third}, []string{"250 again: rank2, device 0 true"}},
		{"nodes of one job", "worst", "reserved.peak < 400B", nodes, []string{"1000 node1: rank3, device 0 false"}},
		{"the mean over nodes", "mean", "reserved.peak == 400B", nodes, []string{"400 node0: mean of 4 ranks true"}},
		{"imbalance over nodes", "worst", "imbalance.reserved <= 250%", nodes, []string{"2.5 node1: rank3, device 0 true"}},
		{"imbalance, once for all ranks", "all", "imbalance.requested < 160%", []recording.Recording{world}, []string{fmt.Sprint(500.0/300, " run: rank1-pid9, device 0 false")}},
		{"processes without ranks", "all", "reserved.peak < 20B", []recording.Recording{jobs}, []string{"10 jobs: pid5, device 0 true", "30 jobs: pid6, device 0 false"}},
		{"and again, as others", "all", "reserved.peak < 35B", []recording.Recording{jobs, rerun}, []string{"20 rerun: pid7, device 0 true", "40 rerun: pid8, device 0 false"}},
	}
	for _, test := range tests {
		verdicts, err := judged(t, test.rank, test.gate, test.runs)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		for _, v := range verdicts {
			text := fmt.Sprint(v.Found.Value, " ", v.Found.Where, " ", v.Holds)
			got = append(got, text)
		}
		assert.Diff(t, test.want, got, "%s", test.name)
	}
}

// What has no value is never a pass.
func TestCheckRanksWithoutValue(t *testing.T) {
	world := []recording.Recording{recordingOf("run", 2, map[string]int64{"rank0": 100, "rank1": 300})}
	alone := []recording.Recording{recordingOf("run", 1, map[string]int64{"rank0": 100})}
	tests := []struct {
		rank, gate string
		runs       []recording.Recording
		want       string
	}{
		{"7", "reserved.peak < 400B", world, "run: the recording has no allocation of rank 7: want 0 or 1"},
		{"worst", "imbalance.reserved < 110%", alone, `gate "imbalance.reserved < 110%": run has no value for imbalance.reserved: it has 1 rank`},
		{"1", "imbalance.reserved < 110%", world, `gate "imbalance.reserved < 110%": imbalance.reserved compares all ranks: it has no value with --rank 1`},
	}
	for _, test := range tests {
		_, err := judged(t, test.rank, test.gate, test.runs)
		assert.That(t, err != nil && err.Error() == test.want, "%s --rank %s: %v\nwant: %s", test.gate, test.rank, err, test.want)
	}
	for _, text := range []string{"", "-1", "best", "1.5"} {
		_, err := ParseRanks(text)
		assert.That(t, err != nil, "--rank %q was taken", text)
	}
}
