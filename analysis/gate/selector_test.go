package gate

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestParseSelector(t *testing.T) {
	tests := []struct {
		text string
		want Selector
		err  string
	}{
		{text: "tag=kv", want: Selector{Tag: "kv"}},
		{text: ` phase = "prefill" , rank=3, job=python3 train.py*`, want: Selector{Phase: "prefill", Rank: "3", Job: "python3 train.py*"}},
		{text: "tag=", err: "{tag=}: want KEY=VALUE, with commas between, KEY one of job, phase, rank, tag"},
		{text: "kv", err: "{kv}: want KEY=VALUE, with commas between, KEY one of job, phase, rank, tag"},
		{text: "tag=a,tag=b", err: "tag is given twice"},
		{text: "device=0", err: `unknown key "device" in a selector: want one of job, phase, rank, tag`},
		{text: "job=[", err: `job "[": syntax error in pattern`},
	}
	for _, test := range tests {
		got, err := parseSelector(test.text)
		if test.err != "" {
			assert.That(t, err != nil && err.Error() == test.err, "%q: %v, want %s", test.text, err, test.err)
			continue
		}
		assert.That(t, err == nil && got == test.want, "%q: %+v, %v; want %+v", test.text, got, err, test.want)
	}
}

// selected is a recording of a job with a tag and a phase on its one device.
func selected(path string, command ...string) recording.Recording {
	d := analysis.DeviceResult{
		Memory: &analysis.Memory{MaxR: 100, MaxT: 90, Peak: ledger.Instant{R: 100, T: 90, Seq: 7}}, Allocs: 1,
		Tags:   []analysis.TagUse{{Tag: "kv", MaxT: 30, MaxC: 35, MaxR: 40}},
		Phases: []attribution.PhaseUse{{Phase: "prefill", PeakT: 60}}, Held: &attribution.Result{},
	}
	return recording.Recording{Path: path, Run: &dataset.Run{Info: dataset.Info{Command: command}}, Results: []*analysis.Result{{Process: "rank0", Devices: []analysis.DeviceResult{d}}}}
}

// A gate with a selector is about what that finds, and one that finds nothing is a mistake.
func TestJudgeSelected(t *testing.T) {
	jobs := []recording.Job{{selected("out/train-1", "python3", "/src/train.py")}, {selected("out/serve", "vllm", "serve")}}
	tests := []struct {
		gate string
		want float64
		runs int
		err  string
	}{
		{gate: "reserved.peak < 1KiB", want: 100, runs: 2},
		{gate: "reserved.peak{tag=kv} < 1KiB", want: 40, runs: 2},
		{gate: "requested.peak{tag=kv} < 1KiB", want: 30, runs: 2},
		{gate: "requested.peak{phase=prefill} < 1KiB", want: 60, runs: 2},
		{gate: "requested.peak{job=train-*} < 1KiB", want: 90, runs: 1},
		{gate: "requested.peak{job=python3*} < 1KiB", want: 90, runs: 1},
		{gate: "requested.peak{job=vllm serve,tag=kv} < 1KiB", want: 30, runs: 1},
		{gate: "reserved.peak{rank=0} < 1KiB", want: 100, runs: 2},
		{gate: "reserved.peak{rank=1} < 1KiB", err: "out/train-1: the recording has no allocation of rank 1: want 0"},
		{gate: "reserved.peak{tag=weights} < 1KiB", err: `gate "reserved.peak{tag=weights} < 1KiB": out/train-1 has no tag "weights": want kv`},
		{gate: "requested.peak{phase=decode} < 1KiB", err: `gate "requested.peak{phase=decode} < 1KiB": out/train-1 has no phase "decode": want prefill`},
		{gate: "reserved.peak{job=eval} < 1KiB", err: `no recording has a directory or command like "eval": want out/train-1 or out/serve`},
	}
	for _, test := range tests {
		g, err := Parse(test.gate)
		assert.NoError(t, err)
		verdicts, _, err := (&Judge{Ranks: RankChoice{kind: "worst"}, Aggregate: "median"}).one(&g, jobs)
		if test.err != "" {
			assert.That(t, err != nil && err.Error() == test.err, "%s: %v, want %s", test.gate, err, test.err)
			continue
		}
		if err != nil || len(verdicts) != 1 || verdicts[0].Found.Value != test.want || verdicts[0].Runs != test.runs {
			t.Errorf("%s: %+v, %v; want %v of %d runs", test.gate, verdicts, err, test.want, test.runs)
		}
	}
}

// Values of different selectors are different values of the baseline.
func TestBaselineSelector(t *testing.T) {
	base := &Baseline{Path: t.TempDir() + "/base.json"}
	jobs := []recording.Job{{selected("run")}}
	for _, text := range []string{"reserved.peak < baseline", "reserved.peak{tag=kv} < baseline"} {
		g, err := Parse(text)
		assert.NoError(t, err)
		if _, _, err := (&Judge{Ranks: RankChoice{kind: "worst"}, Aggregate: "median", Baseline: base, Update: true}).one(&g, jobs); err != nil {
			t.Fatal(err)
		}
	}
	writeBaseline(t, base)
	again, err := ReadBaseline(base.Path)
	assert.NoError(t, err)
	value := func(selector string, bytes float64) Value {
		return Value{Metric: "reserved.peak", Selector: selector, Rank: "worst", Worst: "max", Aggregate: "median", Unit: "bytes", Value: bytes, Runs: 1}
	}
	assert.Diff(t, []Value{value("", 100), value("{tag=kv}", 40)}, again.values, "values")
}
