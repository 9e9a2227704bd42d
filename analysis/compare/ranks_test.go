package compare

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestRankOf(t *testing.T) {
	type answer struct {
		rank int
		ok   bool
	}
	for process, want := range map[string]answer{
		"rank0": {0, true}, "rank12": {12, true}, "rank3-pid4711": {3, true}, "rank3-pid4711-2": {3, true},
		"pid4711": {}, "device": {}, "rank": {}, "rank-1": {}, "rank03": {}, "rank1x": {}, "ranks1": {}, "": {},
	} {
		rank, ok := RankOf(process)
		if !ok {
			rank = 0
		}
		assert.Equal(t, (answer{rank, ok}), want, "RankOf(%q)", process)
	}
}

// member is a result of one device; its max R and max T are both reserved bytes.
func member(process, card string, total, reserved int64) *analysis.Result {
	return &analysis.Result{Process: process, Duration: 100, Devices: []analysis.DeviceResult{{
		Memory: &analysis.Memory{MaxT: reserved, MaxR: reserved}, Allocs: 1, Card: card, Total: total, Series: analysis.Series{Points: []analysis.Point{{Start: 10}}},
	}}}
}

func TestCompareRanks(t *testing.T) {
	later := member("rank1-pid9", "b", 1000, 500)
	later.Devices[0].Series.Points[0].Start = 101 // after rank1 had ended
	withLibraries := member("rank2", "c", 1000, 300)
	withLibraries.Devices[0].OtherLibraries = &accounting.OtherLibraries{Peak: 250}
	idle := member("rank7", "d", 1000, 900)
	idle.Devices[0].Allocs = 0
	read := func(r *analysis.Result, scope accounting.Scope, used, baseline int64) *analysis.Result {
		r.Devices[0].Account = &accounting.Account{Scope: scope, UsedPeak: used, UsedBeforeJob: baseline}
		return r
	}
	type row struct {
		Process           string
		Number            int
		Used, Left, Total int64
	}
	tests := []struct {
		name      string
		results   []*analysis.Result
		rows      []row
		ratio     float64 // 0: none
		first     int
		imbalance Imbalance
	}{
		{"nothing", nil, nil, 0, -1, Imbalance{Row: -1}},
		{
			"one process", []*analysis.Result{member("rank0", "a", 1000, 400)},
			[]row{{"rank0", 0, 400, 600, 1000}}, 0, 0, Imbalance{Ranks: 1, Most: 400, Mean: 400},
		},
		{
			"what other libraries hold counts, a device without allocations does not",
			[]*analysis.Result{member("rank0", "a", 1000, 500), withLibraries, idle},
			[]row{{"rank0", 0, 500, 500, 1000}, {"rank2", 2, 550, 450, 1000}},
			1.25, 1, Imbalance{Ranks: 2, Most: 500, Mean: 400},
		},
		{
			"a rank that was started again counts once, with its greater peak",
			[]*analysis.Result{member("rank0", "a", 1000, 300), member("rank1", "b", 1000, 200), later},
			[]row{{"rank0", 0, 300, 700, 1000}, {"rank1", 1, 200, 800, 1000}, {"rank1-pid9", 1, 500, 500, 1000}},
			1.25, 2, Imbalance{Ranks: 2, Most: 500, Mean: 400, Row: 2},
		},
		{
			"processes without a rank are in no imbalance, if others have one",
			[]*analysis.Result{member("pid5", "c", 1000, 900), member("rank0", "a", 1000, 100), member("rank1", "b", 1000, 100)},
			[]row{{"pid5", -1, 900, 100, 1000}, {"rank0", 0, 100, 900, 1000}, {"rank1", 1, 100, 900, 1000}},
			1, 0, Imbalance{Ranks: 2, Most: 100, Mean: 100, Row: 1},
		},
		{
			"without ranks each process counts as one; those on one GPU share what is left",
			[]*analysis.Result{member("pid5", "a", 1000, 300), member("pid6", "a", 1000, 500), member("pid7", "b", 1000, 700)},
			[]row{{"pid5", -1, 800, 200, 1000}, {"pid6", -1, 800, 200, 1000}, {"pid7", -1, 700, 300, 1000}},
			1.4, 1, Imbalance{Ranks: 3, Most: 700, Mean: 500, Row: 2},
		},
		{
			"unknown GPUs are shared by none, and what is left is unknown",
			[]*analysis.Result{member("rank0", "", 0, 300), member("rank1", "", 0, 500)},
			[]row{{"rank0", 0, 300, -1, 0}, {"rank1", 1, 500, -1, 0}},
			1.25, -1, Imbalance{Ranks: 2, Most: 500, Mean: 400, Row: 1},
		},
		{
			"the driver's reading for a process counts, driver overhead included",
			[]*analysis.Result{read(member("rank0", "a", 1000, 300), accounting.ScopeProcess, 450, 0), read(member("rank1", "a", 1000, 100), accounting.ScopeProcess, 90, 0)},
			[]row{{"rank0", 0, 550, 450, 1000}, {"rank1", 1, 550, 450, 1000}},
			1.5, 0, Imbalance{Ranks: 2, Most: 300, Mean: 200},
		},
		{
			"the driver's reading for a GPU includes all its processes",
			[]*analysis.Result{read(member("rank0", "a", 1000, 300), accounting.ScopeDevice, 500, 50), read(member("rank1", "a", 1000, 100), accounting.ScopeDevice, 500, 50)},
			[]row{{"rank0", 0, 500, 500, 1000}, {"rank1", 1, 500, 500, 1000}},
			1.5, 0, Imbalance{Ranks: 2, Most: 300, Mean: 200},
		},
		{
			"a process's own reading of the GPU includes all its processes",
			[]*analysis.Result{read(member("rank0", "a", 1000, 300), accounting.ScopeCard, 500, 0), member("rank1", "a", 1000, 100)},
			[]row{{"rank0", 0, 500, 500, 1000}, {"rank1", 1, 600, 400, 1000}},
			1.5, 1, Imbalance{Ranks: 2, Most: 300, Mean: 200},
		},
		{
			"readings that are missing change nothing",
			[]*analysis.Result{read(member("rank0", "a", 1000, 400), accounting.ScopeProcess, -1, 0)},
			[]row{{"rank0", 0, 400, 600, 1000}}, 0, 0, Imbalance{Ranks: 1, Most: 400, Mean: 400},
		},
		{
			"using more than the GPU has leaves nothing",
			[]*analysis.Result{member("rank0", "a", 1000, 1200)},
			[]row{{"rank0", 0, 1200, 0, 1000}}, 0, 0, Imbalance{Ranks: 1, Most: 1200, Mean: 1200},
		},
	}
	for _, test := range tests {
		ranks := CompareRanks(test.results)
		var rows []row
		for _, r := range ranks.Rows {
			rows = append(rows, row{r.Process, r.Number, r.Used, r.Left, r.Device.Total})
		}
		assert.Diff(t, test.rows, rows, "%s", test.name)
		assert.Diff(t, test.imbalance, ranks.Reserved, "%s: imbalance", test.name)
		ratio, ok := ranks.Reserved.Ratio()
		assert.That(t, ratio == test.ratio && ok == (test.ratio != 0), "%s: ratio %v, %v, want %v", test.name, ratio, ok, test.ratio)
		assert.That(t, ranks.First == test.first, "%s: row %d would run out first, want %d", test.name, ranks.First, test.first)
	}
}

func TestRankMetrics(t *testing.T) {
	a, b := member("rank0", "a", 1000, 100), member("rank1", "b", 1000, 300)
	a.Devices[0].MaxT, b.Devices[0].MaxT = 90, 10
	ranks := CompareRanks([]*analysis.Result{a, b})
	got := map[string]float64{}
	for _, m := range RankMetrics() {
		got[m.Name], _ = m.Of(ranks).Ratio()
	}
	assert.Diff(t, map[string]float64{"imbalance.reserved": 1.5, "imbalance.requested": 1.8}, got)
}
