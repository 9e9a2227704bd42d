package main

import (
	"bytes"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/doctor"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestPrintFindings: off a terminal there is no colour.
func TestPrintFindings(t *testing.T) {
	var out bytes.Buffer
	findings := []doctor.Finding{{Check: "driver", Health: doctor.OK, Detail: "CUDA 13.0"}, {Check: "disk", Health: doctor.Warn, Detail: "1 GiB free", Remedy: "make room"}}
	assert.NoError(t, printFindings(&out, findings))
	const want = "ok    driver         CUDA 13.0\nwarn  disk           1 GiB free\n                     -> make room\n"
	assert.Diff(t, want, out.String())
}
