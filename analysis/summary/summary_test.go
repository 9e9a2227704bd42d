package summary

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A table read is the table written, and its result has the value of each metric that the analysis has.
func TestSamples(t *testing.T) {
	run, err := dataset.Open("../../samples/resnet50")
	assert.NoError(t, err)
	analyzed, err := recording.Analyze("resnet50", run, analysis.Options{})
	assert.NoError(t, err)
	dir := t.TempDir()
	want := New(run.Processes[0], run.Info.Host, analyzed.Results[0])
	assert.NoError(t, want.Write(dir))
	got, err := Read(dir, want.Process.Name)
	assert.NoError(t, err)
	want.Process.Spool, want.Ending.LastAlive, want.Ending.Problems, want.Ending.Lost = "", 0, nil, 0 // not in the table
	assert.Diff(t, want, got, "table (-written +read)")
	stat, err := os.Stat(Path(dir, want.Process.Name))
	assert.That(t, err == nil && stat.Size() <= MostBytes, "%d bytes, %v", stat.Size(), err)
	t.Logf("%d rows, %d bytes", len(got.Rows), stat.Size())

	result := got.Result("resnet50", &run.Info)
	source, stored := &analyzed.Results[0].Devices[0], &result.Devices[0]
	n := 0
	compare := func(what string, a, b *analysis.Subjects) {
		for _, m := range analysis.Metrics() {
			x, xSeq, xOK := m.Value(a)
			y, ySeq, yOK := m.Value(b)
			assert.That(t, x == y && xSeq == ySeq && xOK == yOK,
				"%s%s: %v %d %t by the events, %v %d %t by the table", what, m.Name, x, xSeq, xOK, y, ySeq, yOK)
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
	assert.That(t, n >= 60, "%d values", n)
}

// phased is the table of a job with so many phases.
func phased(count int) *Table {
	d := analysis.DeviceResult{Device: 3, Allocs: 1, Memory: &analysis.Memory{}, Held: &attribution.Result{}}
	for i := range count {
		d.Phases = append(d.Phases, attribution.PhaseUse{Phase: fmt.Sprint("phase", i), Duration: int64(i) << 30, PeakT: int64(i)})
	}
	return New(&dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: "rank7", Rank: 7}, Parts: []dataset.Part{{}}}, "host", &analysis.Result{Devices: []analysis.DeviceResult{d}})
}

// A phase without a name has no rows: they would be those of all phases, whose values gates are held against.
func TestUnnamedPhase(t *testing.T) {
	d := analysis.DeviceResult{
		Memory: &analysis.Memory{MaxT: 9 << 20}, Allocs: 1, Held: &attribution.Result{},
		Phases: []attribution.PhaseUse{{Phase: "", Duration: 5, PeakT: 1 << 20}, {Phase: "load", Duration: 7, PeakT: 9 << 20}},
	}
	process := &dataset.Process{ProcessMeta: dataset.ProcessMeta{Name: "rank0"}, Parts: []dataset.Part{{}}}
	dir := t.TempDir()
	assert.NoError(t, New(process, "host", &analysis.Result{Process: "rank0", Duration: 99, Devices: []analysis.DeviceResult{d}}).Write(dir))
	table, err := Read(dir, "rank0")
	assert.NoError(t, err)
	got := map[[2]string]float64{}
	for _, r := range table.Rows {
		if r.Metric == "requested.peak" || r.Metric == Duration {
			got[[2]string{r.Phase, r.Metric}] += r.Value
		}
	}
	want := map[[2]string]float64{{"", "requested.peak"}: 9 << 20, {"", Duration}: 99, {"load", "requested.peak"}: 9 << 20, {"load", Duration}: 7}
	assert.Diff(t, want, got, "values")
}

// A table has at most [MostBytes], or is refused with how many phases and tags are too many.
func TestSize(t *testing.T) {
	assert.NoError(t, phased(100).Write(t.TempDir()))
	err := phased(3000).Write(t.TempDir())
	assert.That(t, err != nil && strings.Contains(err.Error(), "more than 200000: it has 3001 phases and tags"), "%v", err)
}

// A damaged table is an error that says so, never a panic.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, phased(50).Write(dir))
	whole, err := os.ReadFile(Path(dir, "rank7"))
	assert.NoError(t, err)
	random := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for i := range 400 {
		text := append([]byte{}, whole...)
		if i%4 == 0 {
			text = text[:random.IntN(len(text))]
		} else {
			text[random.IntN(len(text))] ^= byte(1 + random.IntN(255))
		}
		assert.NoError(t, os.WriteFile(Path(dir, "rank7"), text, 0o600))
		if _, err := Read(dir, "rank7"); err != nil {
			failed++
			var about *trace.PathError
			assert.Must(t, errors.As(err, &about), "%v is no error of the file", err)
		}
	}
	assert.That(t, failed >= 100, "%d of 400 damaged summaries are errors", failed)
}

// A summary with numbers or an order that no recording leads to is an error that says what is wrong, so that
// whoever reads summaries need not expect them.
func TestHostile(t *testing.T) {
	row := func(device int32, value float64) Row {
		return Row{Device: device, Metric: "reserved.peak", Unit: "bytes", Value: value, Seq: -1}
	}
	for _, test := range []struct {
		rows []Row
		want string // "" for a summary that is read
	}{
		{[]Row{row(0, 1), row(1, 1<<62)}, ""},
		{nil, ""},
		{[]Row{row(0, -1e19)}, "row 0: reserved.peak is -1e+19"},
		{[]Row{row(1, 1), row(0, 1)}, "row 1 is not in order"},
		{[]Row{row(1, 1), row(1, 2)}, "row 1 is of the same as the row before"},
	} {
		text, err := (&Table{Process: dataset.ProcessMeta{Name: "rank0"}, Rows: test.rows}).json()
		assert.NoError(t, err)
		demandRead(t, string(text), len(test.rows), test.want)
	}
	for text, want := range map[string]string{
		"": "unexpected end", "[]": "cannot unmarshal array", `{"rows": []}`: "no summary_version", `{"summary_version": 1}`: "summary version 1, this memprof reads 2",
		`{"summary_version": 2, "rows": [{"value": NaN}]}`:                      "invalid character 'N'",
		`{"summary_version": 2, "rows": [{"device": 3000000000}]}`:              "cannot unmarshal number",
		`{"summary_version": 2, "cards": [{"device": 1}, {"device": 1}]}`:       "device 1 has two cards",
		`{"summary_version": 2, "rows": ` + strings.Repeat("[", 1<<20) + "]]]}": "exceeded max depth",
		strings.Repeat(" ", mostRead+1):                                         "more than 16777216 bytes",
	} {
		demandRead(t, text, 0, want)
	}
}

// demandRead reads a summary of that text, which has so many rows, or is damaged.
func demandRead(t *testing.T, text string, rows int, damage string) {
	t.Helper()
	dir := t.TempDir()
	assert.NoError(t, errors.Join(os.Mkdir(filepath.Join(dir, dataset.SummaryName), 0o755), os.WriteFile(Path(dir, "rank0"), []byte(text), 0o600)))
	table, err := Read(dir, "rank0")
	switch {
	case damage == "" && (err != nil || len(table.Rows) != rows):
		t.Errorf("%v, want %d rows", err, rows)
	case damage != "" && (err == nil || !errors.Is(err, trace.ErrDamaged) || !strings.Contains(err.Error(), damage)):
		t.Errorf("%.80s: %v, want damage: %s", text, err, damage)
	}
}

// No link in a recording of somebody else's leads to a file that is not the recording's, to write or to read it.
func TestLinks(t *testing.T) {
	mine := t.TempDir()
	for _, of := range []string{"summary", "rank7.json"} {
		dir, theirs := t.TempDir(), filepath.Join(mine, of)
		whole := phased(1)
		if err := whole.Write(theirs + "-run"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%v without a directory", err)
		}
		assert.NoError(t, errors.Join(os.Mkdir(theirs+"-run", 0o755), whole.Write(theirs+"-run")))
		target := Path(theirs+"-run", "rank7")
		before, err := os.ReadFile(target)
		assert.NoError(t, err)
		if of == "summary" {
			err = os.Symlink(filepath.Dir(target), filepath.Join(dir, dataset.SummaryName))
		} else {
			err = errors.Join(os.Mkdir(filepath.Join(dir, dataset.SummaryName), 0o755), os.Symlink(target, Path(dir, "rank7")))
		}
		assert.NoError(t, err)
		if _, err := Read(dir, "rank7"); err == nil || Has(dir, "rank7") {
			t.Errorf("%s: a linked summary is read", of)
		}
		if err := phased(2).Write(dir); (err != nil) != (of == "summary") {
			t.Errorf("%s: %v", of, err)
		}
		if after, err := os.ReadFile(target); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the file that the link leads to was replaced: %v", of, err)
		}
	}
}

// The processes of a run are known without its parts.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank0"}}, tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank1"}})
	names, err := Processes(dir)
	diff := cmp.Diff([]string{"rank0", "rank1"}, names)
	assert.That(t, diff == "" && err == nil, "%v %s", err, diff)
}
