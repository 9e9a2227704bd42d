package compare

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// diffed is a run of one process; its devices have these values of max R.
func diffed(reserved ...int64) []*analysis.Result {
	r := &analysis.Result{Process: "rank0"}
	for i, bytes := range reserved {
		r.Devices = append(r.Devices, analysis.DeviceResult{Device: int32(i), Memory: &analysis.Memory{MaxR: bytes}, Held: &attribution.Result{}, Allocs: 1})
	}
	return []*analysis.Result{r}
}

func changeOf(t *testing.T, all []Change, name string) Change {
	t.Helper()
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no %s among %d changes", name, len(all))
	return Change{}
}

func TestCompareMetrics(t *testing.T) {
	tests := []struct {
		name      string
		base, new [][]*analysis.Result
		want      string // medians, delta, noise, whether that is known, outcome
	}{
		{"one run each", [][]*analysis.Result{diffed(100)}, [][]*analysis.Result{diffed(101)}, "100 101 1 0 false grew"},
		{"the worst device", [][]*analysis.Result{diffed(100, 300, 200)}, [][]*analysis.Result{diffed(250, 90)}, "300 250 -50 0 false shrank"},
		{"the same", [][]*analysis.Result{diffed(100)}, [][]*analysis.Result{diffed(100)}, "100 100 0 0 false same"},
		{"within the base's spread", [][]*analysis.Result{diffed(90), diffed(130), diffed(100)}, [][]*analysis.Result{diffed(140)}, "100 140 40 40 true within noise"},
		{"far beyond it", [][]*analysis.Result{diffed(90), diffed(130), diffed(100)}, [][]*analysis.Result{diffed(260)}, "100 260 160 40 true grew"},
		{"too small", [][]*analysis.Result{diffed(17179869184)}, [][]*analysis.Result{diffed(17179611136)}, "1.7179869184e+10 1.7179611136e+10 -258048 0 false too small"},
		{"within the new set's", [][]*analysis.Result{diffed(100)}, [][]*analysis.Result{diffed(40), diffed(90), diffed(95)}, "100 90 -10 55 true within noise"},
		{"exact repetitions", [][]*analysis.Result{diffed(100), diffed(100)}, [][]*analysis.Result{diffed(99), diffed(99)}, "100 99 -1 0 true shrank"},
		{"an even number", [][]*analysis.Result{diffed(10), diffed(40), diffed(20), diffed(30)}, [][]*analysis.Result{diffed(100)}, "25 100 75 30 true grew"},
	}
	for _, test := range tests {
		d := Compare(test.base, test.new)
		assert.That(t, d.Base == len(test.base) && d.New == len(test.new), "%s: %d and %d runs", test.name, d.Base, d.New)
		c := changeOf(t, d.Metrics, "reserved.peak")
		delta, _ := c.Delta()
		noise, known := c.Noise()
		got := fmt.Sprint(c.Base.Median, " ", c.New.Median, " ", delta, " ", noise, " ", known, " ", c.Outcome())
		assert.That(t, got == test.want, "%s: %s, want %s", test.name, got, test.want)
	}
}

// TestCompareIdle checks that a device without allocations is not compared.
func TestCompareIdle(t *testing.T) {
	idle := diffed(100, 900)
	idle[0].Devices[1].Allocs = 0
	c := changeOf(t, Compare([][]*analysis.Result{idle}, [][]*analysis.Result{diffed(100, 900)}).Metrics, "reserved.peak")
	assert.That(t, c.Base.Median == 100 && c.New.Median == 900, "%v and %v, want 100 and 900", c.Base.Median, c.New.Median)
}

// TestCompareRankMetrics checks that a metric of only one set is one-sided, and that one of no set is left out.
func TestCompareRankMetrics(t *testing.T) {
	alone := [][]*analysis.Result{diffed(100)}
	two := [][]*analysis.Result{append(diffed(100), &analysis.Result{Process: "rank1", Devices: []analysis.DeviceResult{{Memory: &analysis.Memory{MaxR: 300}, Held: &attribution.Result{}, Allocs: 1}}})}
	c := changeOf(t, Compare(alone, two).Metrics, "imbalance.reserved")
	want := Change{Name: "imbalance.reserved", Unit: analysis.Share, New: Spread{1, 1.5, 1.5, 1.5}}
	assert.That(t, c == want && c.Outcome() == OneSided, "%+v, %v; want %+v", c, c.Outcome(), want)
	for _, c := range Compare(alone, alone).Metrics {
		assert.That(t, c.Name != "imbalance.reserved", "a metric that no run has: %+v", c)
	}
}

// lines formats each change as name, medians ("-" for none) and outcome.
func lines(all []Change) []string {
	var out []string
	side := func(s Spread) string {
		if s.Runs == 0 {
			return "-"
		}
		return fmt.Sprint(s.Median)
	}
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s %s %s %v", c.Name, side(c.Base), side(c.New), c.Outcome()))
	}
	return out
}

func TestCompareParts(t *testing.T) {
	run := func(d ...analysis.DeviceResult) [][]*analysis.Result {
		for i := range d {
			d[i].Allocs = 1
			d[i].Memory, d[i].Held = cmp.Or(d[i].Memory, &analysis.Memory{}), cmp.Or(d[i].Held, &attribution.Result{})
		}
		return [][]*analysis.Result{{{Devices: d}}}
	}
	held := func(rest, restGroups int64, groups ...attribution.Group) analysis.DeviceResult {
		b := attribution.Breakdown{Groups: groups, Rest: attribution.Group{Requested: rest}, RestGroups: restGroups}
		return analysis.DeviceResult{Held: &attribution.Result{Known: true, Modules: b, Categories: b}}
	}
	of := func(name string, bytes int64) attribution.Group {
		return attribution.Group{Name: name, Requested: bytes}
	}
	tests := []struct {
		name string
		base [][]*analysis.Result
		new  [][]*analysis.Result
		part func(*Diff) []Change
		want []string
	}{
		{"iterations", run(analysis.DeviceResult{Iterations: []iterations.Iteration{{PeakT: 5, PeakR: 10}, {PeakT: 7, PeakR: 20}}}),
			run(analysis.DeviceResult{Iterations: []iterations.Iteration{{PeakT: 5, PeakR: 11}, {PeakT: 8, PeakR: 30}, {PeakT: 9, PeakR: 40}}}),
			func(d *Diff) []Change { return d.Requested }, []string{"1 7 8 grew", "2 - 9 one-sided", "0 5 5 same"}},
		{"iterations, reserved", run(analysis.DeviceResult{Iterations: []iterations.Iteration{{PeakR: 10}, {PeakR: 20}}}),
			run(analysis.DeviceResult{Iterations: []iterations.Iteration{{PeakR: 11}, {PeakR: 30}}}),
			func(d *Diff) []Change { return d.Reserved }, []string{"1 20 30 grew", "0 10 11 grew"}},
		{"phases", run(analysis.DeviceResult{Phases: []attribution.PhaseUse{{Phase: "forward", PeakT: 10}, {Phase: "data", PeakT: 2}}}),
			run(analysis.DeviceResult{Phases: []attribution.PhaseUse{{Phase: "forward", PeakT: 4}, {Phase: "backward", PeakT: 9}}}),
			func(d *Diff) []Change { return d.Phases }, []string{"backward 0 9 grew", "forward 10 4 shrank", "data 2 0 shrank"}},
		{"no phases on one side", run(analysis.DeviceResult{}), run(analysis.DeviceResult{Phases: []attribution.PhaseUse{{Phase: "forward", PeakT: 4}}}),
			func(d *Diff) []Change { return d.Phases }, []string{"forward - 4 one-sided"}},
		{"categories", run(held(0, 0, of("weights", 8))), run(held(0, 0, of("weights", 8), of("other", 1))),
			func(d *Diff) []Change { return d.Categories }, []string{"other 0 1 grew", "weights 8 8 same"}},
		{"a module below the list", run(held(30, 2, of("a", 50), of("b", 20))), run(held(0, 0, of("a", 50), of("b", 20), of("c", 25))),
			func(d *Diff) []Change { return d.Modules }, []string{"c - 25 one-sided", "a 50 50 same", "b 20 20 same"}},
		{"the greatest of the devices", run(held(0, 0, of("a", 50)), held(0, 0, of("a", 70))), run(held(0, 0, of("a", 60)), held(9, 1, of("b", 10))),
			func(d *Diff) []Change { return d.Modules }, []string{"a 70 60 shrank", "b 0 10 grew"}},
		{"a device that may have more of it", run(held(0, 0, of("a", 5))), run(held(0, 0, of("a", 5)), held(9, 1, of("b", 10))),
			func(d *Diff) []Change { return d.Modules }, []string{"b 0 10 grew", "a 5 - one-sided"}},
		{"a device that lists only greater ones", run(held(30, 2, of("a", 50), of("b", 20)), held(0, 0, of("c", 25))), run(held(0, 0, of("c", 26))),
			func(d *Diff) []Change { return d.Modules }, []string{"a 50 0 shrank", "b 20 0 shrank", "c 25 26 grew"}},
		{"sizes", run(analysis.DeviceResult{Memory: &analysis.Memory{Peak: ledger.Instant{T: 100}}, TopSizes: []attribution.AllocationGroup{{Size: 64, Requested: 64}, {Size: 36, Requested: 36}}}),
			run(analysis.DeviceResult{Memory: &analysis.Memory{Peak: ledger.Instant{T: 128}}, TopSizes: []attribution.AllocationGroup{{Size: 64, Requested: 128}}}),
			func(d *Diff) []Change { return d.Sizes }, []string{"64 64 128 grew", "36 36 0 shrank"}},
		{"sizes below the list", run(analysis.DeviceResult{Memory: &analysis.Memory{Peak: ledger.Instant{T: 100}}, TopSizes: []attribution.AllocationGroup{{Size: 64, Requested: 64}}}),
			run(analysis.DeviceResult{Memory: &analysis.Memory{Peak: ledger.Instant{T: 128}}, TopSizes: []attribution.AllocationGroup{{Size: 128, Requested: 128}}}),
			func(d *Diff) []Change { return d.Sizes }, []string{"64 64 0 shrank", "128 - 128 one-sided"}},
	}
	for _, test := range tests {
		assert.Diff(t, test.want, lines(test.part(Compare(test.base, test.new))), "%s", test.name)
	}
}

// TestCompareManyIterations compares a job whose iterations are kept one by one with a job that keeps several
// as one: both are listed in runs of equally many iterations.
func TestCompareManyIterations(t *testing.T) {
	resultOf := func(n int64, peak func(i int64) int64) [][]*analysis.Result {
		var l iterations.Log
		for i := range n {
			l.Add(iterations.Iteration{Number: i, PeakT: peak(i), PeakR: peak(i)})
		}
		return [][]*analysis.Result{{{Devices: []analysis.DeviceResult{{Allocs: 1, Memory: &analysis.Memory{}, Held: &attribution.Result{}, Iterations: l.List}}}}}
	}
	base := resultOf(iterations.Most, func(i int64) int64 { return 1000 + i%7 })
	with := resultOf(2*iterations.Most+1, func(i int64) int64 {
		if i == 10 {
			return 5000
		}
		return 1000 + i%7
	})
	changed := map[string]float64{}
	for _, c := range Compare(base, with).Requested {
		if delta, ok := c.Delta(); ok && delta != 0 {
			changed[c.Name] = delta
		}
	}
	assert.That(t, len(changed) == 1 && changed["9–12"] == 5000-1005, "changed: %v, want that of 9–12 by 3995", changed)
}
