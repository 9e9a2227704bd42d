package modeltest

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// ProcessorTime returns the processor time that the process of the test has used so far, in the program and in
// the kernel. A limit on it holds on a loaded machine too, on which the wall clock says how many others run.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	assert.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Limit returns a limit on processor time as it is on a processor, and ten times that where MEMPROF_EMULATED says that
// one is emulated (.ci/dist/as-arm64): qemu needs three to five times the time.
func Limit(native time.Duration) time.Duration {
	if os.Getenv("MEMPROF_EMULATED") != "" {
		return 10 * native
	}
	return native
}
