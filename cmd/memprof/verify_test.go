package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestUnjudged: verify names a process of PyTorch's allocator that it cannot compare, and fails if there is no other.
func TestUnjudged(t *testing.T) {
	observed := func(name string, kinds int32) tracetest.Process {
		p := tracetest.Process{Meta: dataset.ProcessMeta{Name: name, Rank: -1, LocalRank: -1, WorldSize: -1}, Texts: []string{""}}
		for i := range kinds {
			p.Texts = append(p.Texts, fmt.Sprintf("allocator=native\tprovided=unknown\tcoalesces=%d\tpool=0.0\tmain=1", i))
			p.Events = append(p.Events, trace.Event{Kind: trace.KindArena, Arena: i, Context: i + 1},
				trace.Event{Kind: trace.KindMap, Arena: i, Addr: int64(i+1) << 30, Requested: 2 << 20, Provided: 2 << 20},
				trace.Event{Kind: trace.KindAlloc, Arena: i, Addr: int64(i+1) << 30, Requested: 1000, Provided: 1000})
		}
		return p
	}
	const why = "pid2: nothing to verify: memprof only observed the job's own allocator, and cannot replay it: event 4: both kinds of segments: not followed by the model of PyTorch's allocator\n"
	two := []tracetest.Process{observed("pid1", 1), observed("pid2", 2)}
	var stdout, stderr bytes.Buffer
	for i, want := range []string{"-      " + why, "memprof: " + why} {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, two[i:]...)
		code := run(&stdout, &stderr, []string{"verify", dir})
		assert.That(t, code == 2*i && bytes.HasSuffix([]byte(stdout.String()+stderr.String()), []byte(want)), "exit %d\n%s%s", code, &stdout, &stderr)
	}
}
