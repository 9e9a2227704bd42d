package main

import (
	"errors"
	"io"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
)

// TestImportError: a disk that fills up is no fault of the file that is imported.
func TestImportError(t *testing.T) {
	for err, want := range map[error]int{
		&trace.PathError{Path: "run", Err: trace.ErrDiskFull}: exit.Failed,
		errors.New("snapshot.pickle: at byte 0"):              exit.Usage,
	} {
		if code := screen.End(io.Discard, importError(err)); code != want {
			t.Errorf("%v: exit code %d, want %d", err, code, want)
		}
	}
}
