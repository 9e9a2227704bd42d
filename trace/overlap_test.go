package trace

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// unsynced is a file whose first Sync fails.
type unsynced struct {
	PartFile
	failed *int
}

func (f unsynced) Sync() error {
	if *f.failed++; *f.failed == 2 { // of the second part
		return syscall.ENOSPC
	}
	return f.PartFile.Sync()
}

// A part that could not be completed on another core is an error of a later call, and that call repeated completes it.
func TestOverlapError(t *testing.T) {
	dir, failed := t.TempDir(), 0
	w := NewWriter(dir, ProcessMeta{RunID: "1", Name: "rank0"}, WriterOptions{RowGroup: 100, PartEvents: 1000, Overlap: true, Create: func(dir *os.Root, name string) (PartFile, error) {
		f, err := createFile(dir, name)
		return unsynced{f, &failed}, err
	}})
	errs := 0
	retried := func(call func() error) {
		t.Helper()
		err := call()
		if errors.Is(err, ErrDiskFull) {
			errs++
			err = call()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for seq := range int64(3500) {
		e := Event{Seq: seq, Kind: KindIteration, Device: NoDevice, Arena: NoArena, Requested: seq}
		retried(func() error { return w.Append(&e) })
	}
	retried(func() error { return w.Finish(Ending{State: StateClosed}) })
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if parts := w.Parts(); errs != 1 || len(parts) != 4 || len(left) != 4 || err != nil || parts[1].Number != 1 || parts[3].FirstSeq != 3000 {
		t.Errorf("%d errors, %d parts, %v, %v", errs, len(w.Parts()), left, err)
	}
}
