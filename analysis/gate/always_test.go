package gate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestExitStatusOf(t *testing.T) {
	spooling := t.TempDir()
	assert.NoError(t, os.Mkdir(filepath.Join(spooling, spool.Name), 0o700))
	ten, command := 10, []string{"job"}
	for name, test := range map[string]struct {
		run     dataset.Run
		value   float64
		unknown string
	}{
		"ended":         {dataset.Run{Info: dataset.Info{Command: command, ExitStatus: &ten}}, 10, ""},
		"recovered":     {dataset.Run{Info: dataset.Info{Command: command, Recovered: true}}, 0, "the recording was recovered: the job's exit status is not known"},
		"running":       {dataset.Run{Dir: spooling, Info: dataset.Info{Command: command}}, 0, "the recording has not ended"},
		"not there":     {dataset.Run{Dir: t.TempDir(), Info: dataset.Info{Command: command}}, 0, "run.json has no exit status"},
		"no run.json":   {dataset.Run{Info: dataset.Info{ID: "1"}}, 0, "there is no run.json with the job's exit status"},
		"recovered, it": {dataset.Run{Info: dataset.Info{Recovered: true, ExitStatus: &ten}}, 10, ""},
	} {
		value, unknown := exitStatusOf(&test.run)
		assert.That(t, value == test.value && unknown == test.unknown, "%s: %v, %q; want %v, %q", name, value, unknown, test.value, test.unknown)
	}
}

// Each of the gates that are always judged is left out by name, or replaced by one about its metric.
func TestAlways(t *testing.T) {
	for _, test := range []struct {
		gates, without, want []string
	}{
		{nil, nil, []string{"job.exit == 0", "oom.count == 0"}},
		{[]string{"reserved.peak < 1GiB"}, []string{"oom.count"}, []string{"job.exit == 0"}},
		{[]string{"oom.count{job=a*} < 5"}, nil, []string{"job.exit == 0"}},
		{[]string{"oom.count < 5", "job.exit <= 1"}, nil, nil},
		{nil, []string{"oom.count", "job.exit"}, nil},
	} {
		var gates []Gate
		for _, text := range test.gates {
			g, err := Parse(text)
			assert.NoError(t, err)
			gates = append(gates, g)
		}
		all, err := WithAlways(gates, test.without)
		assert.NoError(t, err)
		more := all[len(gates):]
		var texts []string
		for i := range more {
			assert.That(t, more[i].Always && more[i].Severity == SeverityError, "%+v", more[i])
			texts = append(texts, more[i].Text)
		}
		if diff := cmp.Diff(test.want, texts); diff != "" {
			t.Error(diff)
		}
	}
}

// The nodes of a job have an exit status each, of which the worst counts; one that is not known is
// named, and leaves the others of the runs to be judged.
func TestJobExitOfNodes(t *testing.T) {
	node := func(path string, status int, rank int) recording.Recording {
		run := &dataset.Run{Info: dataset.Info{Command: []string{"job"}}, Processes: []*dataset.Process{{ProcessMeta: dataset.ProcessMeta{Rank: rank, WorldSize: 2}}}}
		if status >= 0 {
			run.Info.ExitStatus = &status
		}
		return recording.Recording{Path: path, Run: run, Results: []*analysis.Result{{Devices: []analysis.DeviceResult{{Allocs: 1}}}}}
	}
	g, err := Parse("job.exit == 0")
	assert.NoError(t, err)
	g.Always = true
	court := Judge{Ranks: RankChoice{kind: "all"}, Aggregate: "min"}
	verdicts, skips, err := court.one(&g, recording.Jobs([]recording.Recording{node("a", 0, 0), node("b", 137, 1), node("c", 0, 0), node("d", -1, 1)}))
	assert.NoError(t, err)
	assert.That(t, len(verdicts) == 1 && verdicts[0].Found.Value == 137 && verdicts[0].Found.Where.String() == "b" && !verdicts[0].Holds && verdicts[0].Runs == 1,
		"%+v", verdicts)
	assert.That(t, len(skips) == 1 && skips[0].String() == "job.exit == 0: skipped: d: run.json has no exit status", "%+v", skips)
	// A node that failed is no better for another one whose end is unknown.
	verdicts, skips, err = court.one(&g, recording.Jobs([]recording.Recording{node("e", -1, 0), node("f", 1, 1)}))
	assert.NoError(t, err)
	assert.That(t, len(skips) == 0 && len(verdicts) == 1 && verdicts[0].Found.Value == 1 && verdicts[0].Found.Where.String() == "f" && verdicts[0].Violated(),
		"%+v, skipped %+v", verdicts, skips)
}
