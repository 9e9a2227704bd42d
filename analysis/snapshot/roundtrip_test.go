package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/report/export"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// content is what a snapshot says: its entries, and what is held at its end, as text.
type content struct {
	Entries     []string
	Segments    []string
	Annotations []string
}

func contentOf(t *testing.T, path string, skip int64) content {
	t.Helper()
	known := newStacks()
	chain := func(node int64) string {
		var frames []string
		for ; node > 0; node = known.nodes.of(node).parent {
			frames = append(frames, known.texts[known.nodes.of(node).frame-1])
		}
		return strings.Join(frames, "; ")
	}
	var c content
	requested := int64(0)
	f := &file{path, skip}
	d, top, err := f.decode(known, func(e *entry, device int) error {
		switch e.action {
		case actionFreeRequested:
			requested = e.timeUS
		case actionFreeCompleted: // of a free that no stream delays, one event has the time of the request
			if d := e.timeUS - requested; d > 0 && d < 50 {
				e.timeUS = requested
			}
		}
		if e.action != actionOther {
			c.Entries = append(c.Entries, fmt.Sprintf("%d %s %#x %d stream %d at %d pool %v: %s", device, wellKnown[firstAction+int(e.action)], e.addr, e.size, e.stream, e.timeUS, e.pool, chain(e.stack)))
		}
		return nil
	})
	assert.NoError(t, err)
	segments, err := d.segments(top)
	assert.NoError(t, err)
	for _, s := range segments {
		c.Segments = append(c.Segments, fmt.Sprintf("%d %#x %d stream %d small %v expandable %v pool %v", s.device, s.addr, s.size, s.stream, s.small, s.expandable, s.pool))
		for _, b := range s.blocks {
			if b.live || b.pending {
				stack, err := known.number(d.Decoder, b.frames)
				assert.NoError(t, err)
				c.Segments = append(c.Segments, fmt.Sprintf("  %#x %d %d live %v: %s", b.addr, b.size, b.requested, b.live, chain(stack)))
			}
		}
	}
	for _, a := range d.annotations(top) {
		if a.name == "never begun" {
			continue // an end only, which is left out
		}
		c.Annotations = append(c.Annotations, fmt.Sprint(a))
	}
	return c
}

// A snapshot, imported and exported, holds the same entries, segments, blocks and frames. Of a ring that
// lost its beginning no more than the ring had.
func TestRoundTrip(t *testing.T) {
	for _, path := range []string{pathOf("native"), pathOf("expandable"), pathOf("native-protocol2"), pathOf("torch26"), pathOf("torch26-cut"), pathOf("pools-native"), pathOf("pools-expandable-cut"), "testdata/made.pickle.gz"} {
		for _, cut := range []int64{0, 100, 250} {
			if cut > 0 && strings.Contains(path, "made") {
				continue
			}
			i := newTestImporter(t.TempDir(), path, cut)
			assert.NoError(t, i.survey())
			made, err := i.write()
			assert.NoError(t, err)
			if i.first > 0 {
				i.info.Start = startOf(i.first)
			}
			assert.NoError(t, dataset.WriteInfo(i.dir, i.info))
			run, err := dataset.Open(i.dir)
			assert.NoError(t, err)
			var got content
			for at := range run.Processes {
				again := filepath.Join(t.TempDir(), "again.pickle")
				out, err := os.Create(again)
				assert.NoError(t, err)
				assert.NoError(t, export.TorchSnapshot(out, &export.Recording{Run: run}, run.Processes[at]))
				assert.NoError(t, out.Close())
				c := contentOf(t, again, 0)
				got.Entries, got.Segments, got.Annotations = append(got.Entries, c.Entries...), append(got.Segments, c.Segments...), c.Annotations
			}
			want := contentOf(t, path, cut)
			got.Annotations = slices.DeleteFunc(got.Annotations, func(a string) bool { return !slices.Contains(want.Annotations, a) }) // phases by frames
			assert.Diff(t, want, got, "%s, %d entries cut off, %+v", path, cut, made)
			assert.That(t, len(want.Entries) != 0 && len(want.Segments) != 0, "%s is empty", path)
		}
	}
}

// A recording under memprof's own allocator, exported and imported, has the same blocks at the same events.
func TestRoundTripOfRecordings(t *testing.T) {
	changes := func(run *dataset.Run) (all []string) {
		for _, e := range eventsOf(t, run, 0) {
			switch e.Kind {
			case trace.KindAlloc, trace.KindFree, trace.KindMap, trace.KindUnmap:
				all = append(all, fmt.Sprint(e.Kind, e.Stream, e.Addr, e.Requested, e.Provided))
			}
		}
		return all
	}
	for _, name := range []string{"zoo/squeezenet1_1", "irregular/graphs"} {
		run, err := dataset.Open(filepath.Join("../../samples", name))
		assert.NoError(t, err)
		path := filepath.Join(t.TempDir(), "exported.pickle")
		out, err := os.Create(path)
		assert.NoError(t, err)
		assert.NoError(t, export.TorchSnapshot(out, &export.Recording{Run: run}, run.Processes[0]))
		assert.NoError(t, out.Close())
		again, made := imported(t, path)
		want := changes(run)
		assert.Diff(t, want, changes(again), "%s: %+v", name, made)
		assert.That(t, len(want) > 4000 && made[0].Odd == 0, "%s: %d changes, %+v", name, len(want), made)
	}
}
