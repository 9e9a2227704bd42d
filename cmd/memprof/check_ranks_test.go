package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
)

// recordingOf has a process for each name, with one device that reserved so much.
func recordingOf(path string, world int, reserved map[string]int64) analyzedRun {
	run := analyzedRun{path: path, run: &trace.Run{}}
	for _, name := range []string{"rank0", "rank1", "rank1-pid9", "rank2", "rank3", "pid5", "pid6", "pid7", "pid8"} {
		bytes, ok := reserved[name]
		if !ok {
			continue
		}
		rank, ranked := analysis.RankOf(name)
		if !ranked {
			rank = -1
		}
		run.run.Processes = append(run.run.Processes, &trace.Process{ProcessMeta: trace.ProcessMeta{Name: name, Rank: rank, WorldSize: world}})
		run.results = append(run.results, &analysis.Result{Process: name, Devices: []analysis.DeviceResult{{Allocs: 1, MaxR: bytes, MaxT: bytes, Peak: analysis.Instant{Seq: -1}}}})
	}
	return run
}

func TestCheckRanks(t *testing.T) {
	world := recordingOf("run", 3, map[string]int64{"rank0": 100, "rank1": 300, "rank1-pid9": 500, "rank2": 300})
	again := recordingOf("again", 3, map[string]int64{"rank0": 150, "rank1": 200, "rank2": 250})
	third := recordingOf("third", 3, map[string]int64{"rank0": 120, "rank1": 100, "rank2": 100})
	nodes := []analyzedRun{
		recordingOf("node0", 4, map[string]int64{"rank0": 100, "rank1": 200}),
		recordingOf("node1", 4, map[string]int64{"rank2": 300, "rank3": 1000}),
	}
	jobs := recordingOf("jobs", -1, map[string]int64{"pid5": 10, "pid6": 30})
	rerun := recordingOf("rerun", -1, map[string]int64{"pid7": 20, "pid8": 40})
	tests := []struct {
		name, rank, gate string
		runs             []analyzedRun
		want             []string // value, where, verdict of each line
	}{
		{"the worst rank", "worst", "reserved.peak < 400B", []analyzedRun{world}, []string{"500 run: rank1-pid9, device 0 false"}},
		{"the worst from below", "worst", "reserved.peak >= 100B", []analyzedRun{world}, []string{"100 run: rank0, device 0 true"}},
		{"one rank, with all its processes", "1", "reserved.peak < 400B", []analyzedRun{world}, []string{"500 run: rank1-pid9, device 0 false"}},
		{"another", "2", "reserved.peak < 400B", []analyzedRun{world}, []string{"300 run: rank2, device 0 true"}},
		{"each rank", "all", "reserved.peak < 400B", []analyzedRun{world}, []string{
			"100 run: rank0, device 0 true", "500 run: rank1-pid9, device 0 false", "300 run: rank2, device 0 true",
		}},
		{"the mean of the ranks", "mean", "reserved.peak <= 300B", []analyzedRun{world}, []string{"300 run: mean of 3 ranks true"}},
		{"each rank's median", "all", "reserved.peak < 400B", []analyzedRun{world, again, third}, []string{
			"120 third: rank0, device 0 true", "200 again: rank1, device 0 true", "250 again: rank2, device 0 true",
		}},
		{"the median of the worst", "worst", "reserved.peak < 400B", []analyzedRun{world, again, third}, []string{"250 again: rank2, device 0 true"}},
		{"nodes of one job", "worst", "reserved.peak < 400B", nodes, []string{"1000 node1: rank3, device 0 false"}},
		{"the mean over nodes", "mean", "reserved.peak == 400B", nodes, []string{"400 node0: mean of 4 ranks true"}},
		{"imbalance over nodes", "worst", "imbalance.reserved <= 250%", nodes, []string{"2.5 node1: rank3, device 0 true"}},
		{"imbalance, once for all ranks", "all", "imbalance.requested < 160%", []analyzedRun{world}, []string{fmt.Sprint(500.0/300, " run: rank1-pid9, device 0 false")}},
		{"processes without ranks", "all", "reserved.peak < 20B", []analyzedRun{jobs}, []string{"10 jobs: pid5, device 0 true", "30 jobs: pid6, device 0 false"}},
		{"and again, as others", "all", "reserved.peak < 35B", []analyzedRun{jobs, rerun}, []string{"20 rerun: pid7, device 0 true", "40 rerun: pid8, device 0 false"}},
	}
	for _, test := range tests {
		choice, err := parseRankChoice(test.rank)
		if err != nil {
			t.Fatal(err)
		}
		g, err := parseGate(test.gate)
		if err != nil {
			t.Fatal(err)
		}
		verdicts, _, err := (&judging{choice: choice, aggregate: "median"}).judge(&g, repetitions(test.runs))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		for _, v := range verdicts {
			text := fmt.Sprint(v.found.value, " ", v.found.where, " ", v.holds)
			got = append(got, text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// What has no value is never a pass.
func TestCheckRanksWithoutValue(t *testing.T) {
	world := []analyzedRun{recordingOf("run", 2, map[string]int64{"rank0": 100, "rank1": 300})}
	alone := []analyzedRun{recordingOf("run", 1, map[string]int64{"rank0": 100})}
	tests := []struct {
		rank, gate string
		runs       []analyzedRun
		want       string
	}{
		{"7", "reserved.peak < 400B", world, "run: no allocation of rank 7 in it: there is nothing to check"},
		{"worst", "imbalance.reserved < 110%", alone, `gate "imbalance.reserved < 110%": run has no value for imbalance.reserved: it has 1 rank`},
		{"1", "imbalance.reserved < 110%", world, `gate "imbalance.reserved < 110%": imbalance.reserved compares all ranks: it has no value with --rank 1`},
	}
	for _, test := range tests {
		choice, err := parseRankChoice(test.rank)
		if err != nil {
			t.Fatal(err)
		}
		g, err := parseGate(test.gate)
		if err != nil {
			t.Fatal(err)
		}
		var coded *exit.Error
		if _, _, err := (&judging{choice: choice, aggregate: "median"}).judge(&g, repetitions(test.runs)); !errors.As(err, &coded) || coded.Code != exit.Usage || err.Error() != test.want {
			t.Errorf("%s --rank %s: %v\nwant exit code 2: %s", test.gate, test.rank, err, test.want)
		}
	}
	for _, text := range []string{"", "-1", "best", "1.5"} {
		if _, err := parseRankChoice(text); err == nil {
			t.Errorf("--rank %q was taken", text)
		}
	}
}

// TestRepetitions: which recordings are nodes of one job.
func TestRepetitions(t *testing.T) {
	low := map[string]int64{"rank0": 1, "rank1": 1}
	high := map[string]int64{"rank2": 1, "rank3": 1}
	tests := []struct {
		name string
		runs []analyzedRun
		want []string // the paths of each
	}{
		{"two nodes", []analyzedRun{recordingOf("a", 4, low), recordingOf("b", 4, high)}, []string{"a b"}},
		{"two repetitions on two nodes", []analyzedRun{recordingOf("a", 4, low), recordingOf("b", 4, high), recordingOf("c", 4, low), recordingOf("d", 4, high)}, []string{"a b", "c d"}},
		{"whole worlds", []analyzedRun{recordingOf("a", 2, low), recordingOf("b", 2, low)}, []string{"a", "b"}},
		{"different worlds", []analyzedRun{recordingOf("a", 4, low), recordingOf("b", 6, high)}, []string{"a", "b"}},
		{"no ranks", []analyzedRun{recordingOf("a", -1, map[string]int64{"pid5": 1}), recordingOf("b", -1, map[string]int64{"pid6": 1})}, []string{"a", "b"}},
		{"ranks and none", []analyzedRun{recordingOf("a", 4, low), recordingOf("b", -1, map[string]int64{"pid6": 1})}, []string{"a", "b"}},
	}
	for _, test := range tests {
		var got []string
		for _, r := range repetitions(test.runs) {
			paths := ""
			for _, run := range r {
				paths += " " + run.path
			}
			got = append(got, paths[1:])
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestNameCards: a hidden card moves the process's numbers.
func TestNameCards(t *testing.T) {
	info := &trace.Info{ID: "run1", GPUs: []trace.GPU{{Index: 0, UUID: "GPU-a", Memory: 10}, {Index: 1, UUID: "GPU-b", Memory: 20}}}
	result := &analysis.Result{
		Devices: []analysis.DeviceResult{{Device: 0}, {Device: 1}, {Device: 2}},
		Arenas: []analysis.ArenaInfo{
			{Device: 0, Options: map[string]string{"uuid": "GPU-b"}},
			{Device: 2, Options: map[string]string{"uuid": "MIG-c"}},
		},
	}
	nameCards(result, info)
	type card struct {
		Card  string
		Total int64
	}
	var got []card
	for _, d := range result.Devices {
		got = append(got, card{d.Card, d.Total})
	}
	if diff := cmp.Diff([]card{{"run1/GPU-b", 20}, {"run1/GPU-b", 20}, {}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	simulated := &analysis.Result{Devices: []analysis.DeviceResult{{Device: 0}}}
	nameCards(simulated, &trace.Info{ID: "run1", GPUs: []trace.GPU{{Index: 0, Memory: 10}}})
	if d := simulated.Devices[0]; d.Card != "" || d.Total != 10 {
		t.Errorf("simulated: card %q of %d, want none of 10", d.Card, d.Total)
	}
}
