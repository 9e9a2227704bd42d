//go:build !cgo

package main

import (
	"io"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace/dataset"
)

// repeat makes no requests: that needs cgo.
func (*rerunOptions) repeat(io.Writer, io.Writer, string, *dataset.Process) error {
	return exit.Usagef("%w", rerun.ErrNoGlibc)
}
