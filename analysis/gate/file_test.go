package gate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestReadGateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memprof.yaml")
	writeFile(t, path, `# limits of the trainer
aggregate: max
baseline: limits/base.json
gates:
  - waste.external < 25%
  - gate: reserved.peak < 40GiB
    severity: warn
    rank: all
  - {gate: "oom.count == 0", rank: 3}
`)
	file, err := ReadFile(path)
	assert.NoError(t, err)
	type row struct {
		Text, Severity, Rank string
		Number, Line         int
		Limit                float64
	}
	var got []row
	for _, g := range file.Gates {
		r := row{Text: g.Text, Severity: g.Severity, Line: g.Line, Limit: g.Limit}
		if g.choice != nil {
			r.Rank, r.Number = g.choice.kind, g.choice.rank
		}
		got = append(got, r)
	}
	want := []row{
		{Text: "waste.external < 25%", Severity: "error", Line: 5, Limit: 0.25},
		{Text: "reserved.peak < 40GiB", Severity: "warn", Rank: "all", Line: 6, Limit: 40 << 30},
		{Text: "oom.count == 0", Severity: "error", Rank: "one", Number: 3, Line: 9},
	}
	assert.Diff(t, want, got, "gates")
	if want := filepath.Join(filepath.Dir(path), "limits/base.json"); file.Aggregate != "max" || file.Baseline != want {
		t.Errorf("aggregate %q, baseline %q; want max, %q", file.Aggregate, file.Baseline, want)
	}
}

// TestGateFileMistakes: each is exit code 2, with its line and column.
func TestGateFileMistakes(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", ":1:1: want a mapping with the key gates"},
		{"# nothing\n", ":1:1: want a mapping with the key gates"},
		{"gates: []\n", ":1:1: the file has no gates: list them under the key gates"},
		{"aggregate: max\n", ":1:1: the file has no gates: list them under the key gates"},
		{"- oom.count == 0\n", ":1:1: want a mapping with the key gates"},
		{"gates: oom.count == 0\n", ":1:8: gates: want a list of gates, each like `- reserved.peak < 40GiB`"},
		{"gates:\n  - oom.count == 0\ngate: x\n", `:3:1: unknown key "gate": want aggregate, baseline, gates, without, did you mean gates?`},
		{"gates:\n  - gate: oom.count == 0\n    severty: warn\n", `:3:5: unknown key "severty": want gate, job, phase, rank, severity, tag, did you mean severity?`},
		{"gates:\n  - gate: oom.count == 0\n    severity: fatal\n", `:3:15: severity "fatal": want error or warn`},
		{"gates:\n  - gate: oom.count == 0\n    rank: best\n", `:3:11: rank "best": want worst, all, mean or the number of a rank`},
		{"gates:\n  - gate: imbalance.reserved < 120%\n    rank: 1\n", `:2:5: gate "imbalance.reserved < 120%": imbalance.reserved compares all ranks: it has no value of one rank`},
		{"gates:\n  - gate: oom.count == 0\n    tag: kv\n", `:2:5: oom.count has no value of a tag; these metrics have one: ` + strings.Join(analysis.MetricsOf(analysis.OneTag), ", ")},
		{"gates:\n  - gate: reserved.peak < 1GiB\n    phase: x\n", ":2:5: reserved.peak has no value of a phase; these metrics have one: requested.peak, requested.at_peak, provided.peak, live.peak"},
		{"gates:\n  - gate: requested.peak < 1GiB\n    phase: x\n    tag: y\n", ":2:5: a gate takes a tag or a phase, not both"},
		{"gates:\n  - gate: reserved.peak{tag=kv} < 1GiB\n    tag: kv\n", ":2:5: tag is given twice"},
		{"gates:\n  - gate: reserved.peak < 1GiB\n    job: '[a'\n", `:3:10: job "[a": syntax error in pattern`},
		{"gates:\n  - reserved.peak{tga=kv} < 1GiB\n", `:2:5: gate "reserved.peak{tga=kv} < 1GiB": unknown key "tga" in a selector: want one of job, phase, rank, tag, did you mean tag?`},
		{"gates:\n  - reserved.peak{} < 1GiB\n", `:2:5: gate "reserved.peak{} < 1GiB": {}: want KEY=VALUE, with commas between, KEY one of job, phase, rank, tag`},
		{"gates:\n  - severity: warn\n", ":2:5: the key gate is missing: want `gate: METRIC OP LIMIT`"},
		{"gates:\n  - oom.count == 0\n  - reserved.peek < 1GiB\n", `:3:5: gate "reserved.peek < 1GiB": there is no metric "reserved.peek", did you mean reserved.peak? (memprof check --list names them)`},
		{"gates:\n  - gate: reserved.peak < 25%\n", `:2:11: gate "reserved.peak < 25%": the metric is a size, not a share: "25%"`},
		{"gates:\n  -\n", ":2:5: want METRIC OP LIMIT, or a mapping with the key gate"},
		{"aggregate: mean\ngates:\n  - oom.count == 0\n", `:1:12: aggregate "mean": want median, max or min`},
		{"gates:\n  - oom.count == 0\ngates:\n", `:3:1: mapping key "gates" already defined at [1:1]`},
		{"gates: [oom.count == 0\n", ":1:8: sequence end token ']' not found"},
		{"baseline: &x a.json\ngates:\n  - oom.count == 0\n", ":1:11: want one text, not empty"},
		{"gates:\n  - oom.count == 0\n---\ngates:\n  - oom.count == 0\n", ":4:1: a second document: want one document"},
	}
	for _, test := range tests {
		path := filepath.Join(t.TempDir(), "memprof.yaml")
		writeFile(t, path, test.text)
		_, err := ReadFile(path)
		assert.That(t, err != nil && err.Error() == path+test.want, "%q: %v\nwant %s", test.text, err, path+test.want)
	}
}

// TestGateFileAllMistakes: every mistake of a file is reported at once, in its order.
func TestGateFileAllMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memprof.yaml")
	writeFile(t, path, `agregate: max
baseline: []
gates:
  - reserved.peak < 40
  - gate: waste.extrenal < 5%
    severity: warm
    rank: 1
  - oom.count == 0
  - reserved.peak{phase=x} < 1GiB
`)
	_, err := ReadFile(path)
	want := strings.ReplaceAll(`P:1:1: unknown key "agregate": want aggregate, baseline, gates, without, did you mean aggregate?
P:2:11: want one text, not empty
P:4:5: gate "reserved.peak < 40": size "40" needs a unit, like 40GiB or 40B
P:6:15: severity "warm": want error or warn, did you mean warn?
P:5:11: gate "waste.extrenal < 5%": there is no metric "waste.extrenal", did you mean waste.external? (memprof check --list names them)
P:9:5: reserved.peak has no value of a phase; these metrics have one: requested.peak, requested.at_peak, provided.peak, live.peak`, "P:", path+":")
	assert.That(t, err != nil && err.Error() == want, "%v\nwant\n%s", err, want)
}

// TestGateFileBounds: a file that would take the parser minutes or gigabytes is refused by its length or nesting, and the worst that
// is left is not.
func TestGateFileBounds(t *testing.T) {
	var keys strings.Builder
	for i := 0; keys.Len() < mostFileBytes-10; i++ {
		fmt.Fprintf(&keys, "%x:\n", i)
	}
	gates := "gates:\n" + strings.Repeat("  - oom.count == 0\n", 3_000)
	tests := []struct{ text, want string }{
		{strings.Repeat("{a: ", mostFileBytes/4), ":1:257: more than 64 brackets"},
		{"gates:\n" + strings.Repeat("[", 1000), ":2:65: more than 64 brackets"},
		{strings.Repeat("- ", 65), ":1:129: more than 64 brackets or lists"},
		{strings.Repeat("? ", 1000), ":1:129: more than 64 brackets or lists"},
		{strings.Repeat("[", 64), ":1:64: sequence end"},
		{"gates:\n" + strings.Repeat("  - requested.peak{phase=forward} < 1GiB # [a - b]\n", 1000), ""},
		{keys.String(), ":1:1: "},
		{strings.Repeat("# x\n", mostFileBytes/4) + "#", "longer than 64 KiB"},
		{gates, ""},
	}
	for _, test := range tests {
		path := filepath.Join(t.TempDir(), "memprof.yaml")
		writeFile(t, path, test.text)
		began := modeltest.ProcessorTime(t)
		_, err := ReadFile(path)
		took := modeltest.ProcessorTime(t) - began
		if test.want == "" {
			assert.That(t, err == nil, "%.20q: %v", test.text, err)
			continue
		}
		assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "%.20q: %.200v; want %q", test.text, err, test.want)
		assert.That(t, took <= modeltest.Limit(time.Minute), "%.20q: %v", test.text, took)
	}
	_, err := ReadFile("/dev/zero")
	assert.That(t, err != nil && err.Error() == "/dev/zero: want a regular file or a pipe, not a device", "/dev/zero: %v", err)
}

// TestFindGateFile: the nearest one upward, and none from above the repository.
func TestFindGateFile(t *testing.T) {
	top := t.TempDir()
	for _, path := range []string{"memprof.yaml", "repo/.git/HEAD", "repo/memprof.yaml", "repo/a/memprof.yaml", "repo/a/b/x", "repo/c/x", "bare/.git/HEAD", "bare/d/x", "free/x"} {
		writeFile(t, filepath.Join(top, path), "")
	}
	tests := []struct{ dir, want string }{
		{"repo/a/b", "repo/a/memprof.yaml"},
		{"repo/a", "repo/a/memprof.yaml"},
		{"repo/c", "repo/memprof.yaml"},
		{"bare/d", ""},
		{"free", ""},
		{"", "memprof.yaml"},
	}
	for _, test := range tests {
		got, err := FindFile(filepath.Join(top, test.dir))
		want := test.want
		if want != "" {
			want = filepath.Join(top, want)
		}
		assert.That(t, err == nil && got == want, "from %q: %q, %v; want %q", test.dir, got, err, want)
	}
}

// TestAggregate: what counts of several runs, how far they lie apart, and whether that is
// less than the margin.
func TestAggregate(t *testing.T) {
	tests := []struct {
		gate, aggregate string
		runs            []float64
		found, spread   float64
		holds, trusted  bool
	}{
		{"reserved.peak < 100B", "median", []float64{70, 60, 65}, 65, 10, true, true},
		{"reserved.peak < 100B", "median", []float64{99, 60, 95}, 95, 39, true, false},
		{"reserved.peak < 100B", "median", []float64{60, 80}, 80, 20, true, true},
		{"reserved.peak < 100B", "median", []float64{60, 81}, 81, 21, true, false},
		{"reserved.peak < 100B", "max", []float64{60, 110, 70}, 110, 50, false, false},
		{"reserved.peak < 100B", "min", []float64{60, 110, 200}, 60, 140, true, false},
		{"reserved.peak > 100B", "median", []float64{120, 90}, 90, 30, false, false},
		{"reserved.peak < 100B", "median", []float64{100}, 100, 0, false, true},
		{"oom.count == 0", "median", []float64{0, 0, 0}, 0, 0, true, true},
		// == is about every run, whatever counts otherwise.
		{"oom.count == 0", "median", []float64{0, 0, 1}, 1, 1, false, true},
		{"oom.count == 0", "min", []float64{0, 0, 1}, 1, 1, false, true},
		{"oom.count == 2", "max", []float64{2, 1, 2}, 1, 1, false, true},
		{"oom.count == 2", "max", []float64{2, 2}, 2, 0, true, true},
	}
	for _, test := range tests {
		g, err := Parse(test.gate)
		assert.NoError(t, err)
		var values []Measured
		for _, value := range test.runs {
			values = append(values, Measured{Value: value})
		}
		v := g.verdictOf(values, (&Judge{Aggregate: test.aggregate}).aggregateOf(&g))
		if v.Found.Value != test.found || v.Spread != test.spread || v.Holds != test.holds || v.Trustworthy() != test.trusted {
			t.Errorf("%s, %s of %v: found %v, spread %v, holds %v, trustworthy %v; want %v, %v, %v, %v", test.gate, test.aggregate, test.runs,
				v.Found.Value, v.Spread, v.Holds, v.Trustworthy(), test.found, test.spread, test.holds, test.trusted)
		}
	}
}
