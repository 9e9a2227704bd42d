package dataset_test

import (
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestMissing(t *testing.T) {
	rank := func(rank, local, world, localWorld int) dataset.ProcessMeta {
		return dataset.ProcessMeta{Name: "rank" + string(rune('0'+rank)), Rank: rank, LocalRank: local, WorldSize: world, LocalWorldSize: localWorld}
	}
	tests := []struct {
		name    string
		here    []dataset.ProcessMeta
		listed  []string // in run.json
		missing []string
		absent  []int
		source  string
	}{
		{"a dry run", []dataset.ProcessMeta{rank(5, 1, 8, 4)}, []string{"pid7", "rank5"}, []string{"pid7"}, nil, dataset.DryRun},
		{"all there", []dataset.ProcessMeta{rank(0, 0, 2, 2), rank(1, 1, 2, 2)}, []string{"rank0", "rank1"}, nil, nil, ""},
		{"one was there", []dataset.ProcessMeta{rank(0, -1, 2, 0)}, []string{"rank0", "rank1"}, []string{"rank1"}, nil, ""},
		{"without a rank", []dataset.ProcessMeta{rank(0, -1, 1, 0)}, []string{"pid7", "rank0"}, []string{"pid7"}, nil, ""},
		{"of this host by its others", []dataset.ProcessMeta{rank(5, 1, 8, 4)}, []string{"rank5"}, []string{"rank4", "rank6", "rank7"}, []int{0, 1, 2, 3}, ""},
		{"said twice", []dataset.ProcessMeta{rank(1, 1, 2, 2)}, []string{"rank0", "rank1"}, []string{"rank0"}, nil, ""},
		{"of another host", []dataset.ProcessMeta{rank(2, 0, 4, 2), rank(3, 1, 4, 2)}, []string{"rank2", "rank3"}, nil, []int{0, 1}, ""},
		{"an older recording", []dataset.ProcessMeta{rank(0, -1, 2, 0)}, nil, nil, []int{1}, ""},
		{"nonsense", []dataset.ProcessMeta{rank(0, 3, 2, 1<<30)}, nil, nil, []int{1}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var processes []tracetest.Process
			for _, meta := range test.here {
				processes = append(processes, tracetest.Process{Meta: meta})
			}
			tracetest.WriteRun(t, dir, processes...)
			assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID, Processes: test.listed, Source: test.source}))
			run, err := dataset.Open(dir)
			assert.NoError(t, err)
			var missing []string
			for _, m := range run.Missing() {
				missing = append(missing, m.Process)
			}
			assert.Diff(t, test.missing, missing, "missing")
			assert.Diff(t, test.absent, run.Absent(), "absent")
			part, err := dataset.Open(filepath.Join(dir, test.here[0].Name+"-0000.parquet"))
			assert.NoError(t, err)
			assert.That(t, len(part.Missing()) <= 0 && len(part.Absent()) <= 0, "of a part alone: missing %v, absent %v", part.Missing(), part.Absent())
		})
	}
}
