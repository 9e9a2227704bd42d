package torchalloc_test

import (
	"testing"

	"github.com/memprof/memprof/analysis/snapshot"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Snapshots that PyTorch wrote on a GPU are followed: the same addresses, segments and sizes of blocks.
func TestFollowsSnapshots(t *testing.T) {
	for _, name := range []string{"native", "expandable"} {
		dir := t.TempDir()
		if _, err := snapshot.Import(dir, []string{"../../samples/snapshots/" + name + ".pickle.gz"}, "test"); err != nil {
			t.Fatal(err)
		}
		run, err := dataset.Open(dir)
		assert.NoError(t, err)
		process := run.Processes[0]
		f := torchalloc.NewFollower(torchalloc.Torch211, process.Strings().Text)
		f.Sized = true
		if err := process.Each(func(e *trace.Event) error { _, err := f.Add(e); return err }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %+v", name, f.Followed)
		assert.That(t, f.Allocs >= 20 && f.Segments != 0, "%s: %d allocations in %d segments were compared", name, f.Allocs, f.Segments)
	}
}
