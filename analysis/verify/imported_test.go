package verify_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/snapshot"
	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Of snapshots that PyTorch wrote each block is where the model puts it, also where their history begins in the middle.
func TestImportedSnapshots(t *testing.T) {
	for _, name := range []string{"native", "expandable", "pools-native", "pools-expandable", "pools-native-cut", "pools-expandable-cut"} {
		dir := t.TempDir()
		if _, err := snapshot.Import(dir, []string{filepath.Join("../../samples/snapshots", name+".pickle.gz")}, "test"); err != nil {
			t.Fatal(err)
		}
		r := verifyImported(t, dir)
		assert.That(t, r.Observed != nil && r.Observed.Allocs == r.Allocs && r.Allocs >= 100 && r.Import.Version == "2.7 to 2.12" && r.Import.Why == "" && r.Complete,
			"%s: %+v, %+v", name, r, r.Import)
	}
}

func verifyImported(t *testing.T, dir string) *verify.Result {
	t.Helper()
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	r, err := verify.Imported(context.Background(), run.Processes[0], run.Info.ImportOf(run.Processes[0].Name))
	assert.NoError(t, err)
	return r
}

// A recording that was changed after its import does not verify.
func TestImportedAndChanged(t *testing.T) {
	dir := t.TempDir()
	if _, err := snapshot.Import(dir, []string{"../../samples/snapshots/native.pickle.gz"}, "test"); err != nil {
		t.Fatal(err)
	}
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	process := run.Processes[0]
	events, err := process.ReadAll()
	assert.NoError(t, err)
	changed := t.TempDir()
	w := dataset.NewWriter(changed, process.ProcessMeta, dataset.WriterOptions{})
	skipped := false
	for _, e := range events {
		if e.Kind == trace.KindFree && !skipped { // then the next block there begins where one is live
			skipped = true
			continue
		}
		e.Seq, e.Context = w.NextSeq(), w.Intern(process.Strings().Text(e.Context))
		assert.NoError(t, w.Append(&e))
	}
	assert.NoError(t, w.Finish(dataset.Ending{State: dataset.StateClosed}))
	assert.NoError(t, dataset.WriteInfo(changed, &run.Info))
	if run, err = dataset.Open(changed); err != nil {
		t.Fatal(err)
	}
	var wrong *verify.Mismatch
	if _, err := verify.Imported(context.Background(), run.Processes[0], run.Info.ImportOf("gpu0")); !errors.As(err, &wrong) || !strings.Contains(wrong.Expected, "an address that no live block has") {
		t.Errorf("%v, want a mismatch", err)
	}
}
