package compare

import (
	"math"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// studied is a result with peaks of C and T, first and later, over a final R of 1000 bytes.
func studied(process string, t1, c1, t2, c2 int64) *analysis.Result {
	var log iterations.Log
	log.Add(iterations.Iteration{PeakT: t1, PeakC: c1, PeakR: 800})
	for range 2 {
		log.Add(iterations.Iteration{PeakT: t2, PeakC: c2, PeakR: 1000})
	}
	return &analysis.Result{Process: process, Devices: []analysis.DeviceResult{{Allocs: 1, Iterations: log.List, Paper: log.Paper(1000)}}}
}

func valuesOf(of func(*StudyMeasure) float64) map[string]float64 {
	values := map[string]float64{}
	for _, m := range StudyMeasures() {
		if v := of(&m); !math.IsNaN(v) {
			values[m.Name] = math.Round(v*1e4) / 1e4
		}
	}
	return values
}

func TestStudyMeasures(t *testing.T) {
	var s Study
	s.Add("alexnet", []*analysis.Result{studied("pid1", 600, 800, 300, 400)})
	s.Add("pair", []*analysis.Result{studied("rank0", 400, 500, 700, 1000), studied("rank1", 200, 200, 200, 200)})
	names := []string{}
	for _, job := range s.Jobs {
		names = append(names, job.Name)
	}
	assert.Diff(t, []string{"alexnet", "pair rank0", "pair rank1"}, names)
	want := map[string]float64{
		"t1": 0.6, "c1": 0.8, "t2": 0.3, "c2": 0.4, "idle_first": 0.2, "idle_later": 0.6,
		"internal_first": 0.2, "internal_first_of_c": 0.25, "internal_later": 0.1, "internal_later_of_c": 0.25,
		"excess": 0.4, "excess_of_c": 1, "own_idle_first": 0, "own_idle_later": 0.6,
	}
	assert.Diff(t, want, valuesOf(func(m *StudyMeasure) float64 { return m.Value(s.Jobs[0].Result.Paper) }), "alexnet")
	want = map[string]float64{
		"t1": 0.4, "c1": 0.5, "t2": 0.4, "c2": 0.5333, "idle_first": 0.5, "idle_later": 0.4667,
		"internal_first": 0.1, "internal_first_of_c": 0.15, "internal_later": 0.1333, "internal_later_of_c": 0.1833,
		"excess": -0.0333, "excess_of_c": 0.1667, "own_idle_first": 0.375, "own_idle_later": 0.4667,
	}
	assert.Diff(t, want, valuesOf(s.Mean), "mean")
	want = map[string]float64{
		"t1": 0.6, "c1": 0.8, "t2": 0.7, "c2": 1, "idle_first": 0.8, "idle_later": 0.8,
		"internal_first": 0.2, "internal_first_of_c": 0.25, "internal_later": 0.3, "internal_later_of_c": 0.3,
		"excess": 0.4, "excess_of_c": 1, "own_idle_first": 0.75, "own_idle_later": 0.8,
	}
	assert.Diff(t, want, valuesOf(s.Max), "maximum")
}

// TestPaperFiguresAgree checks that the paper's figures agree with each other as the measures read them.
func TestPaperFiguresAgree(t *testing.T) {
	figures := valuesOf(func(m *StudyMeasure) float64 { return m.PaperMean })
	got := 1 - figures["c1"]
	assert.That(t, math.Abs(got-figures["idle_first"]) <= 1e-9, "1 - C1 is %v, printed as %v", got, figures["idle_first"])
	if got := 1 - figures["c1"]/(1+figures["excess_of_c"]); math.Abs(got-figures["idle_later"]) > 0.0005 {
		t.Errorf("1 - C2 is %v, printed as %v", got, figures["idle_later"])
	}
}

func TestStudyLeavesOut(t *testing.T) {
	var s Study
	s.Add("nothing", []*analysis.Result{{Process: "pid1"}})
	s.Add("idle", []*analysis.Result{{Process: "pid1", Devices: []analysis.DeviceResult{{}}}})
	s.Add("once", []*analysis.Result{{Process: "pid1", Devices: []analysis.DeviceResult{{Allocs: 1, Iterations: make([]iterations.Iteration, 1)}}}})
	s.Add("gone", []*analysis.Result{{Process: "pid1", Devices: []analysis.DeviceResult{{Device: 12, Allocs: 1, Iterations: make([]iterations.Iteration, 2)}, {Device: 3}}}})
	want := []StudyGap{
		{"nothing", "no memory of any device was used"},
		{"idle", "no memory was allocated"},
		{"once", "fewer than two iterations"},
		{"gone GPU 12", "nothing was reserved"},
		{"gone GPU 3", "no memory was allocated"},
	}
	assert.Diff(t, want, s.LeftOut)
	assert.That(t, len(s.Jobs) == 0 && len(valuesOf(s.Mean)) == 0 && len(valuesOf(s.Max)) == 0,
		"jobs %v, mean %v, maximum %v", s.Jobs, valuesOf(s.Mean), valuesOf(s.Max))
}

// TestStudyWithoutC checks that a job whose C is unknown, as with the native allocator, has the measures of T.
func TestStudyWithoutC(t *testing.T) {
	var s Study
	native := studied("pid1", 600, 800, 300, 400)
	native.Devices[0].Paper.ForgetC()
	s.Add("native", []*analysis.Result{native})
	assert.Diff(t, map[string]float64{"t1": 0.6, "t2": 0.3}, valuesOf(s.Mean))
	s.Add("served", []*analysis.Result{studied("pid1", 500, 500, 500, 500)})
	got := valuesOf(s.Mean)["c1"]
	assert.That(t, got == 0.5, "mean C1 %v, want that of the job that has one", got)
}
