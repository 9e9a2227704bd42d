package gate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// judgeFuzzed judges gates by a recording of two ranks. Errors are fine; what it may not do is panic, or
// judge a value by a limit that is not a number.
func judgeFuzzed(t *testing.T, gates []Gate, baseline *Baseline) {
	t.Helper()
	jobs := recording.Jobs([]recording.Recording{recordingOf("run", 2, map[string]int64{"rank0": 100, "rank1": 300})})
	judge := &Judge{Ranks: RankChoice{kind: "all"}, Aggregate: "median", Baseline: baseline, Update: baseline != nil}
	if judge.Precheck(gates) != nil {
		return
	}
	results, err := judge.All(gates, jobs)
	if err != nil {
		return
	}
	for i := range results.Verdicts {
		if v := &results.Verdicts[i]; v.Gate.Limit != v.Gate.Limit {
			t.Errorf("%s: the limit is NaN", v.Gate.Text)
		}
	}
}

// FuzzGates: any file of gates, and any gate.
func FuzzGates(f *testing.F) {
	f.Add("gates:\n  - waste.external < 25%\n  - gate: reserved.peak < baseline + 2%\n    severity: warn\n    rank: all\nbaseline: b.json\n", "reserved.peak{tag=kv} < 10GiB")
	f.Add("aggregate: max\ngates: [{gate: 'reserved.peak < 1', job: '*'}]", "oom.count == 0")
	f.Add("&a [*a, *a]", "iteration.steady_idle >= nan")
	f.Fuzz(func(t *testing.T, text, one string) {
		path := filepath.Join(t.TempDir(), FileName)
		writeFile(t, path, text)
		if file, err := ReadFile(path); err == nil {
			gates, err := WithAlways(file.Gates, file.Without)
			assert.NoError(t, err)
			judgeFuzzed(t, gates, &Baseline{})
		}
		if g, err := Parse(one); err == nil {
			judgeFuzzed(t, []Gate{g}, &Baseline{})
		}
	})
}

// FuzzBaseline: any baseline. What is read is written so that it is read again.
func FuzzBaseline(f *testing.F) {
	f.Add(`{"version": 2, "values": [{"metric": "reserved.peak", "rank": "worst", "worst": "max", "aggregate": "median", "unit": "bytes", "value": 9223372036854775808, "spread": -1, "runs": 1}]}`)
	f.Add(`{"version": 2, "values": [{"metric": "reserved.peak", "value": 1e308}, null, {}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "baseline.json")
		writeFile(t, path, text)
		baseline, err := ReadBaseline(path)
		if err != nil {
			return
		}
		var gates []Gate
		for _, text := range []string{"reserved.peak < baseline + 2%", "waste.external < baseline + 1%"} {
			g, err := Parse(text)
			assert.NoError(t, err)
			gates = append(gates, g)
		}
		judgeFuzzed(t, gates, baseline)
		again, err := json.Marshal(baseline.Document())
		assert.NoError(t, err)
		assert.NoError(t, os.WriteFile(path, again, 0o600))
		if _, err := ReadBaseline(path); err != nil {
			t.Errorf("%v in\n%s", err, again)
		}
	})
}
