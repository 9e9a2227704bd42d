package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestParseGate(t *testing.T) {
	tests := []struct {
		text, metric, op string
		limit            float64
	}{
		{"reserved.peak < 40GiB", "reserved.peak", "<", 40 << 30},
		{"leak.slope <= 0", "leak.slope", "<=", 0},
		{"  reserved.peak<=1.5g ", "reserved.peak", "<=", 3 << 29},
		{"reserved.peak == 2097152B", "reserved.peak", "==", 2 << 20},
		{"reserved.peak > 40GB", "reserved.peak", ">", 40e9},
		{"waste.external >= 25%", "waste.external", ">=", 0.25},
		{"waste.external < 0.5 %", "waste.external", "<", 0.005},
	}
	for _, test := range tests {
		g, err := Parse(test.text)
		if err != nil || g.Metric.Name != test.metric || g.Op != test.op || g.Limit != test.limit {
			t.Errorf("parseGate(%q) = %s %s %v, %v; want %s %s %v", test.text, g.Metric.Name, g.Op, g.Limit, err, test.metric, test.op, test.limit)
		}
	}
}

func TestParseGateRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "want METRIC OP LIMIT"},
		{"reserved.peak", "want METRIC OP LIMIT"},
		{"reserved.peak <", "want METRIC OP LIMIT"},
		{"reserved.peak != 1", "want METRIC OP LIMIT"},
		{"reserved.peak => 1GiB", "want METRIC OP LIMIT"},
		{"reserved.peek < 1GiB", `no metric "reserved.peek"`},
		{"reserved.peak < 25%", "a size, not a share"},
		{"reserved.peak < 5 parsecs", "parsecs"},
		{"reserved.peak < 40", `"40" needs a unit, like 40GiB or 40B`},
		{"reserved.peak < 1.5", `"1.5" needs a unit, like 1.5GiB or 1.5B`},
		{"reserved.peak < baseline + 100", `"100" needs a unit`},
		{"wast.external < 1%", "no metric \"wast.external\", did you mean waste.external"},
		{"waste.external < 0.25", "needs a %"},
		{"waste.external < 25MiB", "needs a %"},
		{"waste.external < many%", "not a percentage"},
		{"waste.external < NaN%", "not a percentage"},
	}
	for _, test := range tests {
		_, err := Parse(test.text)
		assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "parseGate(%q): %v; want %q", test.text, err, test.want)
	}
}

func TestGateHolds(t *testing.T) {
	tests := []struct {
		op     string
		value  float64
		holds  bool
		margin float64
	}{
		{op: "<", value: 99, holds: true, margin: 1},
		{op: "<", value: 100, holds: false, margin: 0},
		{op: "<=", value: 100, holds: true, margin: 0},
		{op: "<=", value: 101, holds: false, margin: -1},
		{op: ">", value: 100, holds: false, margin: 0},
		{op: ">", value: 101, holds: true, margin: 1},
		{op: ">=", value: 100, holds: true, margin: 0},
		{op: ">=", value: 99, holds: false, margin: -1},
		{op: "==", value: 100, holds: true, margin: 0},
		{op: "==", value: 97, holds: false, margin: -3},
		{op: "==", value: 103, holds: false, margin: -3},
	}
	for _, test := range tests {
		g := Gate{Op: test.op, Limit: 100}
		if g.holds(test.value) != test.holds || g.Margin(test.value) != test.margin {
			t.Errorf("%v %s 100: holds %v, margin %v; want %v, %v", test.value, test.op, g.holds(test.value), g.Margin(test.value), test.holds, test.margin)
		}
	}
}

// TestJudge: the worst process and device of a run, the median of several runs.
func TestJudge(t *testing.T) {
	device := func(ordinal int32, reserved int64) analysis.DeviceResult {
		return analysis.DeviceResult{Device: ordinal, Memory: &analysis.Memory{MaxR: reserved, Peak: ledger.Instant{R: reserved, Seq: reserved}}, Allocs: 1}
	}
	run := func(path string, reserved ...int64) recording.Recording {
		result := &analysis.Result{Process: "rank0"}
		for i, r := range reserved {
			result.Devices = append(result.Devices, device(int32(i), r))
		}
		return recording.Recording{Path: path, Results: []*analysis.Result{result}}
	}
	tests := []struct {
		gate   string
		runs   []recording.Recording
		value  float64
		path   string
		device int32
		holds  bool
	}{
		{"reserved.peak < 100B", []recording.Recording{run("a", 10, 90, 20)}, 90, "a", 1, true},
		{"reserved.peak > 15B", []recording.Recording{run("a", 10, 90, 20)}, 10, "a", 0, false},
		{"reserved.peak < 100B", []recording.Recording{run("a", 120), run("b", 80), run("c", 95)}, 95, "c", 0, true},
		{"reserved.peak < 100B", []recording.Recording{run("a", 120), run("b", 80)}, 120, "a", 0, false},
		{"reserved.peak == 90B", []recording.Recording{run("a", 90, 89)}, 89, "a", 1, false},
	}
	for _, test := range tests {
		g, err := Parse(test.gate)
		assert.NoError(t, err)
		var jobs []recording.Job
		for _, run := range test.runs {
			jobs = append(jobs, recording.Job{run})
		}
		verdicts, _, err := (&Judge{Ranks: RankChoice{kind: "worst"}, Aggregate: "median"}).one(&g, jobs)
		assert.Must(t, err == nil && len(verdicts) == 1, "%s: %v, %v", test.gate, verdicts, err)
		got := verdicts[0]
		if got.Found.Value != test.value || got.Found.Where.Path != test.path || got.Found.Where.Device != test.device || got.Holds != test.holds {
			t.Errorf("%s: %+v, holds %v; want %v in %s on device %d, holds %v", test.gate, got.Found, got.Holds, test.value, test.path, test.device, test.holds)
		}
	}
	work := run("a", 100)
	held := &attribution.Result{Known: true, ByModule: true}
	held.Categories.Groups = []attribution.Group{{Name: "activations", Requested: 60}, {Name: "weights", Requested: 40}}
	held.Kinds.Groups = []attribution.Group{{Name: "h.*", Requested: 70}, {Requested: 30}}
	held.Stacks.Groups = []attribution.Group{{Frames: []string{"f (train.py:7)"}, Requested: 60}, {Frames: []string{"g (train.py:9)"}, Requested: 40}}
	work.Results[0].Devices[0].Held = held
	g, err := Parse("reserved.peak < baseline + 2%")
	assert.NoError(t, err)
	judge := Judge{Ranks: RankChoice{kind: "worst"}, Aggregate: "median", Baseline: &Baseline{}, Update: true}
	_, _, err = judge.one(&g, []recording.Job{{work}})
	assert.NoError(t, err)
	judge.Update, work.Results[0].Devices[0].MaxR = false, 150
	held.Categories.Groups[0].Requested, held.Kinds.Groups[0].Requested, held.Stacks.Groups[1].Requested = 110, 80, 85
	verdicts, _, err := judge.one(&g, []recording.Job{{work}})
	want := []Part{{"category", "activations", 50}, {"line", "train.py:9", 45}, {"module", "h.*", 10}}
	assert.That(t, err == nil && slices.Equal(verdicts[0].Grown, want), "grown: %+v, %v, want %v", verdicts, err, want)
	g, err = Parse("reserved.peak < 100B")
	assert.NoError(t, err)
	if _, _, err := (&Judge{Ranks: RankChoice{kind: "worst"}, Aggregate: "median"}).one(&g, []recording.Job{{{Path: "idle", Results: []*analysis.Result{{Devices: []analysis.DeviceResult{{}}}}}}}); err == nil {
		t.Error("a run without allocations was judged")
	}
}
