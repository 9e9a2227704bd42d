package trace

import (
	"os"
	"path/filepath"
	"testing"
)

// A Writer that encodes on another core writes the same bytes.
func TestOverlap(t *testing.T) {
	written := func(overlap bool) string {
		dir := t.TempDir()
		w := NewWriter(dir, ProcessMeta{RunID: "1", Name: "rank0"}, WriterOptions{RowGroup: 100, PartEvents: 1050, Overlap: overlap})
		for seq := range int64(5000) {
			e := Event{Seq: seq, Time: seq * 1000, Kind: KindIteration, Device: NoDevice, Arena: NoArena, Requested: seq, Context: w.Intern("x" + string(rune('a'+seq%26)))}
			if err := w.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Finish(Ending{State: StateClosed}); err != nil {
			t.Fatal(err)
		}
		parts, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
		if err != nil || len(parts) != 5 {
			t.Fatalf("%d parts, %v", len(parts), err)
		}
		var all string
		for _, part := range parts {
			b, err := os.ReadFile(part)
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		return all
	}
	if written(false) != written(true) {
		t.Error("the parts differ")
	}
}
