package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/cmd/memprof/internal/doctor"
)

// TestPrintFindings: off a terminal there is no colour.
func TestPrintFindings(t *testing.T) {
	var out bytes.Buffer
	findings := []doctor.Finding{{Check: "driver", Health: doctor.OK, Detail: "CUDA 13.0"}, {Check: "disk", Health: doctor.Warn, Detail: "1 GiB free", Remedy: "make room"}}
	if err := printFindings(&out, findings); err != nil {
		t.Fatal(err)
	}
	const want = "ok    driver         CUDA 13.0\nwarn  disk           1 GiB free\n                     -> make room\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
