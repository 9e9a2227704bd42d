package main

import (
	"errors"
	"io"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestImportError: a disk that fills up is no fault of the file that is imported.
func TestImportError(t *testing.T) {
	for err, want := range map[error]int{
		&trace.PathError{Path: "run", Err: trace.ErrDiskFull}: exit.Failed,
		errors.New("snapshot.pickle: at byte 0"):              exit.Usage,
	} {
		assert.Equal(t, screen.End(io.Discard, importError(err)), want, "%v: exit code", err)
	}
}
