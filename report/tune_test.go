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
	policies := tune.Compared()
	t := &Tuned{Result: &tune.Result{Allocs: 26927, LeftOut: 2}, Process: "rank0", MaxSlowdown: 0.01}
	for i, policy := range policies {
		n := int64(len(policies) - i)
		t.Outcomes = append(t.Outcomes, tune.Outcome{
			Policy: policy, PeakR: n * 2 * gib, PeakC: 2 * gib, PeakT: gib + 1, SteadyR: n * gib, Iterations: 20, FirstIdle: 0.25, LaterIdle: 0.0001,
			Remaps: float64(i), Unmaps: 1.5, Waits: 0.04, Calls: tune.Calls{Create: 0.5, Map: 21.25, Access: 21.25, Unmap: 20.75, Release: 0.5}, Cost: time.Duration(i) * 200 * time.Microsecond, Background: 49 * time.Microsecond,
			Duration: 100 * time.Millisecond, TotalCost: 3 * time.Millisecond,
		})
	}
	t.Outcomes[4].Refused = 1234
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
		Result:  &tune.Result{Allocs: 1, Outcomes: []tune.Outcome{{Policy: bfc.Policy{Preset: bfc.Compact}, PeakR: 2 * mib, SteadyR: 2 * mib, PeakT: 1, Refused: 1}}},
		Process: reporttest.HostileName,
	}
}

func TestTuneGolden(t *testing.T) {
	for _, test := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"tune.txt", func(w io.Writer) error { return TuneText(w, tuned(), layout.Options{}) }},
		{"tune_narrow.txt", func(w io.Writer) error { return TuneText(w, tuned(), layout.Options{Width: 80}) }},
		{"tune.md", func(w io.Writer) error { return TuneMarkdown(w, tuned()) }},
		{"tune.json", func(w io.Writer) error { return TuneJSON(w, tuned()) }},
		{"tune_no_iterations.txt", func(w io.Writer) error { return TuneText(w, noIterations(), layout.Options{}) }},
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
	if err := TuneText(&out, tuned(), layout.Options{Color: true}); err != nil {
		t.Fatal(err)
	}
	const reserved = 2 // the column of R peak: the first is before the border
	tones := map[string]string{}
	for _, line := range strings.Split(out.String(), "\n") {
		for _, mark := range []string{"1m", "1;31m"} {
			if cells := strings.Split(line, "│"); len(cells) > reserved && strings.Contains(cells[1], "\x1b["+mark) && strings.Contains(cells[reserved], "\x1b["+mark) {
				tones[mark] += strings.TrimSpace(strings.NewReplacer("\x1b["+mark, "", "\x1b[0m", "").Replace(cells[reserved])) + ";"
			}
		}
	}
	if want := map[string]string{"1m": "peak R;4 GiB;", "1;31m": "1,234 failed;"}; !cmp.Equal(want, tones) {
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
		if err := TuneText(&out, job, layout.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), advice); got != test.want {
			t.Errorf("%d bytes beside %d: advice %v, want %v", test.reserved, ours, got, test.want)
		}
	}
	// A setting that calls the driver too often in an iteration is not advised.
	job.Torch[1].Reserved = ours
	const handle = tune.CostCreate + tune.CostMap + tune.CostAccess
	job.Torch[1].Maps = 1.5 * job.MaxSlowdown * float64(job.Outcomes[0].Duration) / float64(handle)
	if got, want := job.torchSlowdown(&job.Torch[1]), 1.5*job.MaxSlowdown; got < 0.99*want || got > 1.01*want {
		t.Errorf("slowdown %v, want %v", got, want)
	}
	if setting := job.torchAdvice(); setting == "expandable_segments:True" {
		t.Error("a setting is advised that is slower than it may be")
	}
}

// TestTuneOrder: the recorded policy comes first, then the rest by what they reserve, those that refused requests last.
func TestTuneOrder(t *testing.T) {
	job := tuned()
	for i, peak := range []int64{100, 50, 60, 40, 10, 70, 50} {
		job.Outcomes[i].PeakR = peak * gib
	}
	var out bytes.Buffer
	if err := TuneText(&out, job, layout.Options{}); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, row := range regexp.MustCompile(`(?m)^│ ((?:classic|compact).*?) +│`).FindAllStringSubmatch(out.String(), -1) {
		shown = append(shown, row[1])
	}
	want := []string{"classic", "compact --handle 2MiB", "compact", "compact --handle 32MiB", "compact --trim iteration",
		"compact --handle 16MiB", "compact --handle 8MiB"}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("%s\n%s", diff, out.String())
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
		{"no policy serves all", refused, []string{more, "│  7 failed │"}, "raise --max-slowdown"},
		{"each is slow", slow, []string{time, "│       14 GiB │"}, "raise --limit"},
		{"no marks", noIterations(), []string{"1 request replayed, at most 1 B at once; no iterations are marked:"}, "0 iterations"},
	} {
		var out bytes.Buffer
		if err := TuneText(&out, test.job, layout.Options{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", test.name, want, out.String())
			}
		}
		if strings.Contains(out.String(), test.absent) {
			t.Errorf("%s: %q in\n%s", test.name, test.absent, out.String())
		}
	}
}

// The table fits a screen, also in 80 columns, and the recorded policy is marked.
func TestTuneShort(t *testing.T) {
	for _, width := range []int{0, 80, 100} {
		for _, job := range []*Tuned{tuned(), noIterations(), {Result: tuned().Result, RecordedR: gib, Torch: tuned().Torch}} {
			var out bytes.Buffer
			if err := TuneText(&out, job, layout.Options{Width: width}); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(out.String(), "\n"); n > 24 {
				t.Errorf("%d lines in %d columns:\n%s", n, width, out.String())
			}
			if job.Recorded != nil && !regexp.MustCompile(`(?m)classic .* recorded\b`).MatchString(out.String()) {
				t.Errorf("the recorded policy is not marked:\n%s", out.String())
			}
		}
	}
}
