package gate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestRelativeLimits(t *testing.T) {
	tests := []struct {
		gate  string
		value float64
		want  float64
	}{
		{"reserved.peak < baseline", 1000, 1000},
		{"reserved.peak < baseline + 2%", 1000, 1020},
		{"reserved.peak > baseline-50%", 1000, 500},
		{"reserved.peak <= baseline + 100MiB", 1000, 1000 + 100<<20},
		{"reserved.peak >= baseline - 1k", 4096, 3072},
		{"oom.count <= baseline + 3", 4, 7},
		{"growth.count < baseline + 25%", 8, 10},
		{"waste.external < baseline + 25%", 0.5, 0.75}, // points
		{"waste.external < baseline + 25%", 0, 0.25},
	}
	for _, test := range tests {
		g, err := Parse(test.gate)
		if err != nil || g.Relative == nil {
			t.Errorf("%s: %v, relative %v", test.gate, err, g.Relative)
			continue
		}
		assert.Equal(t, g.Relative.of(test.value), test.want, "%s of %v", test.gate, test.value)
	}
	for text, want := range map[string]string{
		"reserved.peak == baseline + 2%":    "needs one of < <= > >=",
		"reserved.peak < baseline +":        "want baseline, baseline + AMOUNT",
		"reserved.peak < baseline * 2":      "want baseline, baseline + AMOUNT",
		"reserved.peak < baselines":         "want baseline, baseline + AMOUNT",
		"reserved.peak < baseline + much":   "much",
		"reserved.peak < baseline + -2%":    "has a sign",
		"waste.external < baseline + 10MiB": "needs a %",
		"oom.count < baseline + 1MiB":       "not a whole number",
	} {
		_, err := Parse(text)
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v; want %q", text, err, want)
	}
}

// TestBaselineOfGates: what is written is what the same runs are judged by, a question by itself
// for each rank and each end.
func TestBaselineOfGates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	runs := []recording.Recording{
		recordingOf("a", 2, map[string]int64{"rank0": 100, "rank1": 300}),
		recordingOf("b", 2, map[string]int64{"rank0": 110, "rank1": 310}),
		recordingOf("c", 2, map[string]int64{"rank0": 120, "rank1": 350}),
	}
	judge := func(runs []recording.Recording, rank, text string, update bool) ([]Verdict, error) {
		t.Helper()
		choice, err := ParseRanks(rank)
		assert.NoError(t, err)
		g, err := Parse(text)
		assert.NoError(t, err)
		base, err := OpenBaseline(path, []Gate{g}, update)
		assert.NoError(t, err)
		court := Judge{Ranks: choice, Aggregate: "median", Baseline: base, Update: update}
		verdicts, _, err := court.one(&g, recording.Jobs(runs))
		if err == nil && update {
			writeBaseline(t, base)
		}
		return verdicts, err
	}
	for _, step := range []struct{ rank, gate string }{
		{"worst", "reserved.peak < baseline + 10%"},
		{"worst", "reserved.peak > baseline - 10%"},
		{"all", "reserved.peak < baseline + 10%"},
	} {
		if _, err := judge(runs, step.rank, step.gate, true); err != nil {
			t.Fatal(err)
		}
	}
	base, err := ReadBaseline(path)
	assert.NoError(t, err)
	value := func(rank, worst string, value, spread float64) Value {
		return Value{"reserved.peak", rank, worst, "median", "bytes", value, spread, 3, "", nil}
	}
	want := []Value{value("rank0", "max", 110, 20), value("rank1", "max", 310, 50), value("worst", "max", 310, 50), value("worst", "min", 110, 20)}
	assert.Diff(t, want, base.values, "values")
	later := []recording.Recording{recordingOf("d", 2, map[string]int64{"rank0": 121, "rank1": 340})}
	verdicts, err := judge(later, "all", "reserved.peak < baseline + 10%", false)
	if err != nil || len(verdicts) != 2 || verdicts[0].Holds || !verdicts[1].Holds || verdicts[0].Gate.Limit != 121 || verdicts[1].Gate.Limit != 341 {
		t.Errorf("rank0 121 against 110 + 10%%, rank1 340 against 310 + 10%%: %+v, %v", verdicts, err)
	}
	if _, err := judge(later, "1", "reserved.peak < baseline", false); err == nil ||
		!strings.HasSuffix(err.Error(), "has no value of reserved.peak (rank 1, worst max, median); write it with memprof check --update-baseline") {
		t.Errorf("a question without a value: %v", err)
	}
}

// TestDamagedBaseline: each is exit code 2, with its line.
func TestDamagedBaseline(t *testing.T) {
	const good = `{
  "version": 2,
  "values": [
    {"metric": "oom.count", "rank": "worst", "worst": "max", "aggregate": "median", "unit": "count", "value": 0, "spread": 0, "runs": 1},
    {"metric": "reserved.peak", "rank": "worst", "worst": "max", "aggregate": "median", "unit": "bytes", "value": 5, "spread": 0, "runs": 1}
  ]
}
`
	path := filepath.Join(t.TempDir(), "baseline.json")
	writeFile(t, path, good)
	if b, err := ReadBaseline(path); err != nil || len(b.values) != 2 {
		t.Fatalf("the good one: %v, %v", b, err)
	}
	tests := []struct{ old, new, want string }{
		{good, "", ":1: damaged baseline: unexpected EOF"},
		{`"version": 2`, `"version": 3`, `:1: damaged baseline: want "version": 2`},
		{`"version": 2`, `"versions": 2`, `:1: damaged baseline: json: unknown field "versions"`},
		{"  ]\n}\n", "  ]\n", ":6: damaged baseline: unexpected EOF"},
		{"  ]\n}\n", "  ]\n}\n}\n", ":8: damaged baseline: text after the end of the document"},
		{`"value": 5,`, `"value": 5`, ":5: damaged baseline: invalid character"},
		{`"value": 5`, `"value": "5"`, ":5: damaged baseline: json: cannot unmarshal string"},
		{`"unit": "bytes"`, `"unit": "count"`, `:5: damaged baseline: reserved.peak is in bytes, not "count"`},
		{`reserved.peak`, `reserved.peek`, `:5: damaged baseline: there is no metric "reserved.peek"`},
		{`"metric": "reserved.peak"`, `"metrics": "reserved.peak"`, `:5: damaged baseline: json: unknown field "metrics"`},
		{`{"metric": "reserved.peak", "rank": "worst"`, `{"metric": "reserved.peak", "rank": ""`, ":5: damaged baseline: a value of reserved.peak without its rank"},
		{`reserved.peak", "rank": "worst", "worst": "max", "aggregate": "median", "unit": "bytes"`, `oom.count", "rank": "worst", "worst": "max", "aggregate": "median", "unit": "count"`, ":5: damaged baseline: a second value of oom.count (rank worst, worst max, median)"},
	}
	for _, test := range tests {
		writeFile(t, path, strings.Replace(good, test.old, test.new, 1))
		_, err := ReadBaseline(path)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), path+test.want), "%s for %s: %v\nwant %s", test.new, test.old, err, path+test.want)
	}
	assert.NoError(t, os.Remove(path))
	_, err := ReadBaseline(path)
	assert.That(t, err != nil && strings.HasSuffix(err.Error(), "write it with memprof check --update-baseline"), "a missing one: %v", err)
}

// TestBaselineBounds: a baseline is refused by a bound that is named, before it takes memory or time, and
// so is a number that no job can have.
func TestBaselineBounds(t *testing.T) {
	value := func(number, rank string) string {
		return `{"metric":"reserved.peak","rank":"` + rank + `","worst":"max","aggregate":"median","unit":"bytes","value":` + number + `,"spread":0,"runs":1}`
	}
	many := make([]string, mostBaselineValues+1)
	for i := range many {
		many[i] = value("1", fmt.Sprint(i))
	}
	file := func(values ...string) string { return `{"version":2,"values":[` + strings.Join(values, ",") + `]}` }
	path := filepath.Join(t.TempDir(), "baseline.json")
	for text, want := range map[string]string{
		file(value("9223372036854775808", "worst")):       "reserved.peak is 9.223372036854776e+18 with a spread of 0: want numbers of at most 2^53",
		file(value("-9007199254740994", "worst")):         "want numbers of at most 2^53",
		file(value("9007199254740992", "worst")):          "",
		file(many...):                                     "10,001 values: want at most 10,000",
		file(many[:mostBaselineValues]...):                "",
		strings.Repeat(" ", mostBaselineBytes) + file():   path + ": longer than 4 MiB",
		strings.Replace(file(many[0]), "peak", "peek", 1): `there is no metric "reserved.peek", did you mean reserved.peak?`,
	} {
		writeFile(t, path, text)
		_, err := ReadBaseline(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: %v; want %q", text, err, want)
		}
	}
	for _, device := range []string{"/dev/zero", "/dev/null"} {
		_, err := ReadBaseline(device)
		assert.That(t, err != nil && err.Error() == device+": want a regular file or a pipe, not a device", "%s: %v", device, err)
	}
}

func writeBaseline(t *testing.T, b *Baseline) {
	t.Helper()
	text, err := json.MarshalIndent(b.Document(), "", "  ")
	assert.NoError(t, err)
	writeFile(t, b.Path, string(text))
}
