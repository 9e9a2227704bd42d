package summary

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
)

// A table read is the table written, and its result has the value of each metric that the analysis has.
func TestSamples(t *testing.T) {
	run, err := dataset.Open("../../samples/resnet50")
	if err != nil {
		t.Fatal(err)
	}
	analyzed, err := recording.Analyze("resnet50", run, analysis.Options{Categories: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want := New(run.Processes[0], run.Info.Host, analyzed.Results[0])
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(Path(dir, want.Process.Name))
	if err != nil {
		t.Fatal(err)
	}
	want.Process.Spool, want.Ending.LastAlive, want.Ending.Problems, want.Ending.Lost = "", 0, nil, 0 // not in the table
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-written +read):\n%s", diff)
	}
	stat, err := os.Stat(Path(dir, want.Process.Name))
	if err != nil || stat.Size() > MostBytes {
		t.Errorf("%d bytes, %v", stat.Size(), err)
	}
	t.Logf("%d rows, %d bytes", len(got.Rows), stat.Size())

	result := got.Result("resnet50", &run.Info)
	source, stored := &analyzed.Results[0].Devices[0], &result.Devices[0]
	n := 0
	compare := func(what string, a, b *analysis.Subjects) {
		for _, m := range analysis.Metrics() {
			x, xSeq, xOK := m.Value(a)
			y, ySeq, yOK := m.Value(b)
			if x != y || xSeq != ySeq || xOK != yOK {
				t.Errorf("%s%s: %v %d %t by the events, %v %d %t by the table", what, m.Name, x, xSeq, xOK, y, ySeq, yOK)
			}
			if xOK {
				n++
			}
		}
	}
	compare("", source.Subjects(), stored.Subjects())
	for i := range source.Phases {
		phase := source.Phases[i].Phase
		a, _ := source.OfPhase(phase)
		b, ok := stored.OfPhase(phase)
		if !ok {
			t.Errorf("no phase %s", phase)
			continue
		}
		compare(phase+" ", a, b)
	}
	if n < 60 {
		t.Errorf("%d values", n)
	}
	iterations, categories := 0, 0
	for i := range got.Rows {
		if r := &got.Rows[i]; r.Iterations > 0 && r.Metric == "reserved.peak" {
			if want := source.Iterations[iterations]; int64(r.Value) != want.PeakR || r.Iteration != want.Number {
				t.Errorf("iteration %+v, want %+v", r, want)
			}
			iterations++
		} else if r.Iterations > 0 && r.Category == "weights" {
			categories++
		}
	}
	if iterations != len(source.Iterations) || categories < iterations/2 {
		t.Errorf("%d iterations of %d, %d with weights", iterations, len(source.Iterations), categories)
	}
}

// noisy is a table of a job whose iterations differ in every number.
func noisy(count int) *Table {
	random := rand.New(rand.NewPCG(1, 2))
	d := analysis.DeviceResult{Device: 3, Allocs: 1}
	for i := range count {
		n := func() int64 { return random.Int64N(80 << 30) }
		d.Iterations = append(d.Iterations, iterations.Iteration{Number: int64(i), StartSeq: int64(i), EndSeq: int64(i), Start: int64(i) << 30, End: int64(i)<<30 + n(), PeakT: n(), PeakC: n(), PeakR: n(), EndT: n(), Allocs: n(), AllocBytes: n()})
	}
	return New(&dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: "rank7", Rank: 7}, Parts: []dataset.Part{{}}}, "host", &analysis.Result{Devices: []analysis.DeviceResult{d}})
}

// A phase without a name has no rows: they would be those of all phases, whose values gates are held against.
func TestUnnamedPhase(t *testing.T) {
	d := analysis.DeviceResult{
		Allocs: 1, MaxT: 9 << 20,
		Phases:          []attribution.PhaseUse{{Phase: "", Duration: 5, PeakT: 1 << 20}, {Phase: "load", Duration: 7, PeakT: 9 << 20}},
		Iterations:      []iterations.Iteration{{Number: 0, PeakT: 9 << 20}},
		PhaseIterations: []attribution.PhaseIteration{{Iteration: 0, Uses: []attribution.PhaseUse{{Phase: "", PeakT: 1 << 20}, {Phase: "load", PeakT: 9 << 20}}}},
	}
	process := &dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: "rank0"}, Parts: []dataset.Part{{}}}
	dir := t.TempDir()
	if err := New(process, "host", &analysis.Result{Process: "rank0", Duration: 99, Devices: []analysis.DeviceResult{d}}).Write(dir); err != nil {
		t.Fatal(err)
	}
	table, err := Read(Path(dir, "rank0"))
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		phase, metric string
		iterations    int64
	}
	got := map[part][]float64{}
	for _, r := range table.Rows {
		if r.Metric == "requested.peak" || r.Metric == Duration && r.Iterations == 0 {
			got[part{r.Phase, r.Metric, r.Iterations}] = append(got[part{r.Phase, r.Metric, r.Iterations}], r.Value)
		}
	}
	want := map[part][]float64{
		{"", "requested.peak", 0}: {9 << 20}, {"", Duration, 0}: {99}, {"load", "requested.peak", 0}: {9 << 20}, {"load", Duration, 0}: {7},
		{"", "requested.peak", 1}: {9 << 20}, {"load", "requested.peak", 1}: {9 << 20},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// However long a job was, its table has at most [MostBytes]; the peaks of joined iterations are the greatest of them, and sums
// stay sums.
func TestSize(t *testing.T) {
	for _, iterations := range []int{10, 1000, 30_000} {
		table := noisy(iterations)
		most := map[string]float64{}
		for i := range table.Rows {
			if r := &table.Rows[i]; r.Iterations > 0 {
				switch r.Metric {
				case Duration, AllocatedBytes, AllocatedCount:
					most[r.Metric] += r.Value
				case RequestedEnd:
					most[r.Metric] = r.Value
				default:
					most[r.Metric] = max(most[r.Metric], r.Value)
				}
			}
		}
		text, err := table.encode()
		if err != nil || len(text) > MostBytes {
			t.Fatalf("%d iterations: %d bytes, %v", iterations, len(text), err)
		}
		dir := t.TempDir()
		if err := table.Write(dir); err != nil {
			t.Fatal(err)
		}
		read, err := Read(Path(dir, "rank7"))
		if err != nil {
			t.Fatal(err)
		}
		covered, got := int64(0), map[string]float64{}
		for i := range read.Rows {
			r := &read.Rows[i]
			if r.Iterations == 0 {
				continue
			}
			switch r.Metric {
			case Duration, AllocatedBytes, AllocatedCount:
				got[r.Metric] += r.Value
			case RequestedEnd:
				got[r.Metric] = r.Value
			default:
				got[r.Metric] = max(got[r.Metric], r.Value)
			}
			if r.Metric == "reserved.peak" {
				if r.Iteration != covered {
					t.Fatalf("%d iterations: row %+v after %d", iterations, r, covered)
				}
				covered += r.Iterations
			}
		}
		if covered != int64(iterations) {
			t.Errorf("%d of %d iterations", covered, iterations)
		}
		for metric, value := range most {
			if diff := got[metric] - value; diff > 1e-6*value || diff < -1e-6*value {
				t.Errorf("%d iterations: %s %v, want %v", iterations, metric, got[metric], value)
			}
		}
	}
}

// A damaged table is an error that says so, never a panic.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := noisy(50).Write(dir); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(Path(dir, "rank7"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "damaged")
	random := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for i := range 400 {
		text := append([]byte{}, whole...)
		if i%4 == 0 {
			text = text[:random.IntN(len(text))]
		} else {
			text[random.IntN(len(text))] ^= byte(1 + random.IntN(255))
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err != nil {
			failed++
			var about *trace.PathError
			if !errors.As(err, &about) {
				t.Fatalf("%v is no error of the file", err)
			}
		}
	}
	if failed < 100 {
		t.Errorf("%d of 400 damaged summaries are errors", failed)
	}
}

// A summary with numbers or an order that no recording leads to is an error that says what is wrong, so that
// whoever reads summaries need not expect them.
func TestHostile(t *testing.T) {
	row := func(iteration, iterations int64, value float64) Row {
		return Row{Device: 1, Iteration: iteration, Iterations: iterations, Metric: "reserved.peak", Unit: "bytes", Value: value, Seq: -1}
	}
	for _, test := range []struct {
		rows []Row
		want string // "" for a summary that is read
	}{
		{[]Row{row(-1, 0, 1), row(0, 1, 1), row(1, 5, 1<<62)}, ""},
		{nil, ""},
		{[]Row{row(-1, 0, -1e19)}, "row 0: reserved.peak is -1e+19"},
		{[]Row{row(-1, 1, 1)}, "row 0: 1 iterations from -1 on"},
		{[]Row{row(0, -1, 1)}, "row 0: -1 iterations from 0 on"},
		{[]Row{row(math.MaxInt64, 1, 1)}, "row 0: 1 iterations from 9223372036854775807 on"},
		{[]Row{row(1, 1, 1), row(0, 1, 1)}, "row 1 is not in order"},
		{[]Row{row(0, 1, 1), row(-1, 0, 1)}, "row 1 is not in order"},
		{[]Row{row(-1, 0, 1), row(-1, 0, 2)}, "row 1 is of the same as the row before"},
	} {
		text, err := (&Table{Process: dataset.ProcessMeta{Name: "rank0"}, Rows: test.rows}).json()
		if err != nil {
			t.Fatal(err)
		}
		demandRead(t, string(text), len(test.rows), test.want)
	}
	for text, want := range map[string]string{
		"": "unexpected end", "[]": "cannot unmarshal array", `{"rows": []}`: "no summary_version",
		`{"summary_version": 1, "rows": [{"value": NaN}]}`:                      "invalid character 'N'",
		`{"summary_version": 1, "rows": [{"device": 3000000000}]}`:              "cannot unmarshal number",
		`{"summary_version": 1, "cards": [{"device": 1}, {"device": 1}]}`:       "device 1 has two cards",
		`{"summary_version": 1, "rows": ` + strings.Repeat("[", 1<<20) + "]]]}": "exceeded max depth",
		strings.Repeat(" ", mostRead+1):                                         "not a regular file",
	} {
		demandRead(t, text, 0, want)
	}
}

// demandRead reads a summary of that text, which has so many rows, or is damaged.
func demandRead(t *testing.T, text string, rows int, damage string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rank0.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := Read(path)
	switch {
	case damage == "" && (err != nil || len(table.Rows) != rows):
		t.Errorf("%v, want %d rows", err, rows)
	case damage != "" && (err == nil || !errors.Is(err, trace.ErrDamaged) || !strings.Contains(err.Error(), damage)):
		t.Errorf("%.80s: %v, want damage: %s", text, err, damage)
	}
}

// The processes of a run are known without its parts.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank0"}}, tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank1"}})
	names, err := Processes(dir)
	if diff := cmp.Diff([]string{"rank0", "rank1"}, names); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
