package main

import (
	"errors"
	"io"
	"testing"

	"github.com/memprof/memprof/trace"
)

// TestImportError: a disk that fills up is no fault of the file that is imported.
func TestImportError(t *testing.T) {
	for err, want := range map[error]int{
		&trace.PathError{Path: "run", Err: trace.ErrDiskFull}: exitFailed,
		errors.New("snapshot.pickle: at byte 0"):              exitUsage,
	} {
		if code := exitCode(io.Discard, importError(err)); code != want {
			t.Errorf("%v: exit code %d, want %d", err, code, want)
		}
	}
}
