//go:build !cgo

package repeat

import (
	"io"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace"
)

// Process makes no requests.
func Process(io.Writer, io.Writer, string, *trace.Process, Options) error {
	return exit.Usagef("%w", rerun.ErrNoGlibc)
}
