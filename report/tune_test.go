package report

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
)

// tuned is a job under policies of every kind: one is recommended, one refused requests.
func tuned() *Tuned {
	choices := tune.Choices{Values: map[string][]string{
		"growth": {"double", "step:33554432"}, "split": {"classic", "1048576"}, "trim": {"never", "idle:50000000"},
	}, Units: bfc.Plain}
	policies, err := choices.Policies()
	if err != nil {
		panic(err)
	}
	policies[5].SmallArenas = 1 << 20
	policies[5].Placement, policies[7].Placement = bfc.PlacementPlanned, bfc.PlacementPlanned
	t := &Tuned{Result: &tune.Result{Allocs: 26927, LeftOut: 2}, Process: "rank0", Costs: tune.DefaultCosts(), MaxSlowdown: 0.01}
	for i, policy := range policies {
		n := int64(len(policies) - i)
		t.Outcomes = append(t.Outcomes, tune.Outcome{
			Policy: policy, PeakR: n * 2 * gib, PeakC: 2 * gib, PeakT: gib + 1, SteadyR: n * gib, Iterations: 20, FirstIdle: 0.25, LaterIdle: 0.0001,
			Remaps: float64(i), RemapsAhead: 0.25, Unmaps: 1.5, Waits: 0.04, Calls: tune.Calls{Create: 0.5, Map: 21.25, Access: 21.25, Unmap: 20.75, Release: 0.5}, Cost: time.Duration(i) * 200 * time.Microsecond, Background: 49 * time.Microsecond,
			Duration: 100 * time.Millisecond, TotalCost: 3 * time.Millisecond,
		})
	}
	t.Outcomes[6].Refused = 1234
	t.Recorded = &t.Outcomes[0].Policy
	t.Torch = []recording.TorchOutcome{
		{Reserved: 9 * gib, Least: 8 * gib, Greatest: 10 * gib},
		{Setting: "expandable_segments:True", Reserved: 4*gib + 50*mib, Least: 4*gib + 50*mib, Greatest: 4*gib + 50*mib},
		{Setting: "max_split_size_mb:64", Reserved: gib, Least: gib, Greatest: gib, Refused: 2},
	}
	return t
}

// noIterations is a job without iterations, for which no policy will do.
func noIterations() *Tuned {
	return &Tuned{
		Result:  &tune.Result{Allocs: 1, Outcomes: []tune.Outcome{{Policy: bfc.Policy{Growth: bfc.Needed, Split: bfc.SplitAlways}, PeakR: 2 * mib, SteadyR: 2 * mib, PeakT: 1, Refused: 1}}},
		Process: reporttest.HostileName, Costs: tune.DefaultCosts(),
	}
}

func TestTuneGolden(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"tune.txt", func(w io.Writer) error { return TuneText(w, tuned(), true, layout.Options{}) }},
		{"tune_short.txt", func(w io.Writer) error { return TuneText(w, tuned(), false, layout.Options{}) }},
		{"tune_narrow.txt", func(w io.Writer) error { return TuneText(w, tuned(), true, layout.Options{Width: 80}) }},
		{"tune.md", func(w io.Writer) error { return TuneMarkdown(w, tuned(), true) }},
		{"tune.json", func(w io.Writer) error { return TuneJSON(w, tuned()) }},
		{"tune_no_iterations.txt", func(w io.Writer) error { return TuneText(w, noIterations(), true, layout.Options{}) }},
		{"tune_no_iterations.json", func(w io.Writer) error { return TuneJSON(w, noIterations()) }},
	} {
		var out bytes.Buffer
		if err := test.write(&out); err != nil {
			t.Fatal(err)
		}
		reporttest.Golden(t, test.name, out.Bytes())
	}
}

// The recommended policy is emphasized, and so are those that would have failed the job.
func TestTuneColors(t *testing.T) {
	var out bytes.Buffer
	if err := TuneText(&out, tuned(), true, layout.Options{Color: true}); err != nil {
		t.Fatal(err)
	}
	reserved := 2 + len(tunedDimensions()) // the column of R peak: the first is before the border
	tones := map[string]string{}
	for _, line := range strings.Split(out.String(), "\n") {
		for _, mark := range []string{"1m", "1;31m"} {
			if cells := strings.Split(line, "│"); len(cells) > reserved && strings.Contains(cells[1], "\x1b["+mark) && strings.Contains(cells[reserved], "\x1b["+mark) {
				tones[mark] += strings.TrimSpace(strings.NewReplacer("\x1b["+mark, "", "\x1b[0m", "").Replace(cells[reserved])) + ";"
			}
		}
	}
	if want := map[string]string{"1m": "peak R;6 GiB;", "1;31m": "1,234 failed;"}; !cmp.Equal(want, tones) {
		t.Error(cmp.Diff(want, tones))
	}
}

// TestTorchAdvice: a setting of PyTorch's own allocator is named only within 2 % of the recommended policy.
func TestTorchAdvice(t *testing.T) {
	const advice = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
	job := tuned()
	ours := job.Outcomes[job.Recommend(job.MaxSlowdown)].PeakR
	for _, test := range []struct {
		reserved int64
		want     bool
	}{{ours, true}, {ours + ours/50, true}, {ours + ours/50 + mib, false}} {
		job.Torch[1].Reserved = test.reserved
		var out bytes.Buffer
		if err := TuneText(&out, job, true, layout.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), advice); got != test.want {
			t.Errorf("%d bytes beside %d: advice %v, want %v", test.reserved, ours, got, test.want)
		}
	}
	// A setting that calls the driver too often in an iteration is not advised.
	job.Torch[1].Reserved = ours
	handle := job.Costs.Create + job.Costs.Map + job.Costs.Access
	job.Torch[1].Maps = 1.5 * job.MaxSlowdown * float64(job.Outcomes[0].Duration) / float64(handle)
	if got, want := job.torchSlowdown(&job.Torch[1]), 1.5*job.MaxSlowdown; got < 0.99*want || got > 1.01*want {
		t.Errorf("slowdown %v, want %v", got, want)
	}
	if setting := job.torchAdvice(); setting == "expandable_segments:True" {
		t.Error("a setting is advised that is slower than it may be")
	}
}

// TestTuneTradeOff: of policies with one flag more than a preset those are shown that neither a preset nor another one equals or betters both
// in what it reserves and in its cost.
func TestTuneTradeOff(t *testing.T) {
	compact, err := bfc.PresetNamed("compact")
	if err != nil {
		t.Fatal(err)
	}
	job := &Tuned{Result: &tune.Result{Allocs: 1}, Process: "rank0", Costs: tune.DefaultCosts(), MaxSlowdown: 0.01}
	for _, o := range []struct {
		flag, value string
		peak        int64 // GiB
		cost        time.Duration
	}{
		{"growth", "double", 100, 0}, // classic, recorded
		{"growth", "pages", 50, 20},
		{"placement", "best-fit", 50, 20}, // equals compact
		{"trim", "iteration", 60, 15},     // the next one is better
		{"handle", "8388608", 60, 10},
		{"split", "1048576", 60, 10}, // equals it
		{"handle", "16777216", 40, 30},
		{"handle", "33554432", 70, 12}, // costs more and reserves more than the one of 8 MiB
		{"small-arenas", "1048576", 90, 0},
	} {
		policy := compact
		if o.peak == 100 {
			policy = bfc.Classic()
		}
		if err := bfc.DimensionNamed(o.flag).Set(&policy, o.value, bfc.Plain); err != nil {
			t.Fatal(err)
		}
		job.Outcomes = append(job.Outcomes, tune.Outcome{Policy: policy, PeakR: o.peak * gib, Cost: o.cost * time.Millisecond, Duration: time.Second})
	}
	job.Recorded = &job.Outcomes[0].Policy
	want := []string{"--preset classic", "--preset compact --handle 16MiB", "--preset compact", "--preset compact --handle 8MiB", "--preset compact --small-arenas 1MiB"}
	for _, refused := range []int64{0, 5} { // a recorded policy that refused requests betters none
		if job.Outcomes[0].Refused = refused; refused > 0 {
			job.Outcomes[0].PeakR = gib
		}
		var out bytes.Buffer
		if err := TuneText(&out, job, false, layout.Options{}); err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, row := range regexp.MustCompile(`(?m)^│ (--.*?) +│`).FindAllStringSubmatch(out.String(), -1) {
			shown = append(shown, row[1])
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("%d refused: %s\n%s", refused, diff, out.String())
		}
	}
}

// TestTuneRefused: where no policy serves all requests more memory helps, and more time only where one does. The
// recorded policy has no peak if it refused some, and a job without marks is not said to have no iterations.
func TestTuneRefused(t *testing.T) {
	refused := tuned()
	for i := range refused.Outcomes {
		refused.Outcomes[i].Refused = int64(7 + i)
	}
	slow := tuned()
	for i := range slow.Outcomes {
		slow.Outcomes[i].Cost = 10 * time.Millisecond
	}
	const more = "each policy refuses requests, 7 at least: raise --limit, or see memprof fit for the least card"
	const time = "no policy serves all requests with a slowdown of at most 1.0%: raise --max-slowdown"
	for _, test := range []struct {
		name   string
		job    *Tuned
		want   []string
		absent string
	}{
		{"no policy serves all", refused, []string{more, "│ 7 failed │"}, "raise --max-slowdown"},
		{"each is slow", slow, []string{time, "│   16 GiB │"}, "raise --limit"},
		{"no marks", noIterations(), []string{"1 request replayed, at most 1 B at once; no iterations are marked:"}, "0 iterations"},
	} {
		for _, all := range []bool{false, true} {
			var out bytes.Buffer
			if err := TuneText(&out, test.job, all, layout.Options{}); err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if all && !strings.HasPrefix(want, "each") && !strings.HasPrefix(want, "no policy") {
					continue
				}
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s, all %v: no %q in\n%s", test.name, all, want, out.String())
				}
			}
			if strings.Contains(out.String(), test.absent) {
				t.Errorf("%s, all %v: %q in\n%s", test.name, all, test.absent, out.String())
			}
		}
	}
}

// What saves most fits twenty lines, also in 80 columns, and every saving is of the recorded policy's peak.
func TestTuneShort(t *testing.T) {
	for _, width := range []int{0, 80, 100} {
		for _, job := range []*Tuned{tuned(), noIterations(), {Result: tuned().Result, RecordedR: gib, Torch: tuned().Torch}} {
			var out bytes.Buffer
			if err := TuneText(&out, job, false, layout.Options{Width: width}); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(out.String(), "\n"); n > TuneLines {
				t.Errorf("%d lines in %d columns:\n%s", n, width, out.String())
			}
			if job.Recorded != nil && !regexp.MustCompile(`(?m)--preset classic .* recorded\b`).MatchString(out.String()) {
				t.Errorf("the recorded policy is not marked:\n%s", out.String())
			}
		}
	}
}
