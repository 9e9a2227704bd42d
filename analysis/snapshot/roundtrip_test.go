package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/report/export"
	"github.com/memprof/memprof/trace/dataset"
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
	if err != nil {
		t.Fatal(err)
	}
	segments, err := d.segments(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		c.Segments = append(c.Segments, fmt.Sprintf("%d %#x %d stream %d small %v expandable %v pool %v", s.device, s.addr, s.size, s.stream, s.small, s.expandable, s.pool))
		for _, b := range s.blocks {
			if b.live || b.pending {
				stack, err := known.number(d.Decoder, b.frames)
				if err != nil {
					t.Fatal(err)
				}
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
			if err := i.survey(); err != nil {
				t.Fatal(err)
			}
			made, err := i.write()
			if err != nil {
				t.Fatal(err)
			}
			if i.first > 0 {
				i.info.Start = startOf(i.first)
			}
			if err := dataset.WriteInfo(i.dir, i.info); err != nil {
				t.Fatal(err)
			}
			run, err := dataset.Open(i.dir)
			if err != nil {
				t.Fatal(err)
			}
			var got content
			for at := range run.Processes {
				again := filepath.Join(t.TempDir(), "again.pickle")
				out, err := os.Create(again)
				if err != nil {
					t.Fatal(err)
				}
				if err := export.TorchSnapshot(out, &export.Recording{Run: run}, run.Processes[at]); err != nil {
					t.Fatal(err)
				}
				if err := out.Close(); err != nil {
					t.Fatal(err)
				}
				c := contentOf(t, again, 0)
				got.Entries, got.Segments, got.Annotations = append(got.Entries, c.Entries...), append(got.Segments, c.Segments...), c.Annotations
			}
			want := contentOf(t, path, cut)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %d entries cut off, %+v:\n%s", path, cut, made, diff)
			}
			if len(want.Entries) == 0 || len(want.Segments) == 0 {
				t.Errorf("%s is empty", path)
			}
		}
	}
}
