package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The leak section shows the verdict, by what it goes.
func TestLeakSection(t *testing.T) {
	const mib = 1 << 20
	groups := []attribution.AllocationGroup{{Context: "history", Blocks: 3, Requested: 30 * mib, Provided: 30 * mib}}
	for name, test := range map[string]struct {
		leak  iterations.Leak
		wants []string
	}{
		"nothing": {iterations.Leak{Verdict: iterations.TooShort}, []string{"too short for a verdict: it needs 8 iterations, 8 requests, or 10 s"}},
		"none":    {iterations.Leak{Verdict: iterations.NoLeak, Per: "iteration", Points: 30}, []string{"none: what is held after each iteration does not keep rising (30 iterations)"}},
		"iterations": {
			iterations.Leak{Verdict: iterations.Leaks, Per: "iteration", Points: 30, Slope: 10 * mib, PerSecond: 5 * mib, Line: "train.py:9", Module: "history", Allocations: groups, Provided: 40 * mib},
			[]string{
				"+10 MiB per iteration, +5 MiB per second keep rising, most from train.py:9 in history", "75.0%",
				"allocations of what rises, made after the first third and live at the end\nshares of their chunks, 40 MiB",
			},
		},
		"requests":  {iterations.Leak{Verdict: iterations.Leaks, Per: "request", Request: "answer", Slope: 10 * mib}, []string{"+10 MiB per phase answer keep rising"}},
		"sequences": {iterations.Leak{Verdict: iterations.Leaks, Per: "request", Request: iterations.KVRequests, Slope: 10 * mib}, []string{"+10 MiB per KV cache sequence keep rising"}},
		"time":      {iterations.Leak{Verdict: iterations.Leaks, Per: "second", Slope: 10 * mib, PerSecond: 10 * mib}, []string{"+10 MiB per second keep rising"}},
	} {
		d := reporttest.Whole(analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}, MaxR: 64 * mib}, Allocs: 1, Leak: &test.leak})
		results := []*analysis.Result{{Process: "rank0", Devices: []analysis.DeviceResult{d}}}
		var text bytes.Buffer
		assert.NoError(t, Text(&text, results, Scope{All: true}, layout.Options{Width: 200}))
		for _, want := range test.wants {
			assert.That(t, strings.Contains(text.String(), want), "%s: %q is missing in\n%s", name, want, text.String())
		}
	}
}

// leaking is a server whose tag is paused now and then, and which leaks by its requests.
func leaking() *analysis.Result {
	d := reporttest.Whole(analysis.DeviceResult{
		Memory: &analysis.Memory{MaxR: 64, Chunks: &analysis.Chunks{}},
		Allocs: 1, Iterations: []iterations.Iteration{{EndSeq: 5, PeakT: 8, PeakC: 16, PeakR: 32, EndT: 4, EndC: 4, EndPaused: 4}},
		Leak: &iterations.Leak{
			Verdict: iterations.Leaks, Per: "request", Request: "answer", Points: 9, Slope: 10.5, PerSecond: 7.25, Line: "serve.py:7",
			Blocks: 1, Requested: 30, Provided: 40,
			Allocations: []attribution.AllocationGroup{{Context: "history", Blocks: 1, Requested: 30, Provided: 40}},
		},
	})
	slow := reporttest.Whole(analysis.DeviceResult{Device: 1, Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}, Leak: &iterations.Leak{Verdict: iterations.NoLeak, Per: "iteration", Points: 8}})
	return &analysis.Result{Process: "rank0", Devices: []analysis.DeviceResult{d, slow}}
}
