package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/report/layout"
)

// The leak section shows the trend that there is: over iterations, else over requests, else over time.
func TestLeakSection(t *testing.T) {
	const mib = 1 << 20
	flat := iterations.Trend{Valid: true, Points: 30}
	rising := iterations.Trend{Valid: true, Points: 30, Slope: 10 * mib, Rising: true}
	groups := []attribution.AllocationGroup{{Context: "history", Blocks: 3, Requested: 30 * mib, Provided: 30 * mib}}
	for name, test := range map[string]struct {
		leak  iterations.Leak
		wants []string
	}{
		"nothing":       {iterations.Leak{Iterations: iterations.Trend{Points: 4}}, []string{"not known: a trend needs"}},
		"no iterations": {iterations.Leak{Iterations: flat, Requests: rising}, []string{"none: live bytes do not keep rising at iteration ends (0 B per iteration)"}},
		"iterations":    {iterations.Leak{Iterations: rising}, []string{"live bytes keep rising at iteration ends: +10 MiB per iteration"}},
		"requests": {
			iterations.Leak{Requests: rising, Request: "answer", Seconds: flat, Allocations: groups, Provided: 40 * mib},
			[]string{
				"live bytes keep rising at the ends of requests (phase answer): +10 MiB per request, 0 B per second", "75.0%",
				"allocations made after the first request and live at the end of the last\nshares of their chunks, 40 MiB",
			},
		},
		"sequences": {iterations.Leak{Requests: rising, Request: iterations.KVRequests}, []string{"at the ends of requests (sequences in a KV cache): +10 MiB per request"}},
		"time":      {iterations.Leak{Seconds: rising}, []string{"live bytes keep rising over time: +10 MiB per second"}},
		"no time":   {iterations.Leak{Seconds: flat}, []string{"none: live bytes do not keep rising over time (0 B per second)"}},
	} {
		d := analysis.DeviceResult{Chunks: &analysis.Chunks{}, Allocs: 1, MaxR: 64 * mib, Leak: test.leak}
		results := []*analysis.Result{{Process: "rank0", Devices: []analysis.DeviceResult{d}}}
		var text bytes.Buffer
		if err := Text(&text, results, Scope{All: true}, layout.Options{Width: 200}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.wants {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, text.String())
			}
		}
	}
}

// leaking is a server whose tag is paused now and then, and which leaks by its requests.
func leaking() *analysis.Result {
	d := analysis.DeviceResult{
		Chunks: &analysis.Chunks{},
		Allocs: 1, MaxR: 64, Iterations: []iterations.Iteration{{EndSeq: 5, PeakT: 8, PeakC: 16, PeakR: 32, EndT: 4, EndC: 4, EndPaused: 4}},
		Leak: iterations.Leak{
			Iterations: iterations.Trend{}, Requests: iterations.Trend{Valid: true, Points: 9, Slope: 10.5, Rising: true}, Request: "answer",
			Seconds: iterations.Trend{Valid: true, Points: 47, Slope: 7.25, Rising: true}, Blocks: 1, Requested: 30, Provided: 40,
			Allocations: []attribution.AllocationGroup{{Context: "history", Blocks: 1, Requested: 30, Provided: 40}},
		},
	}
	slow := analysis.DeviceResult{Chunks: &analysis.Chunks{}, Device: 1, Leak: iterations.Leak{Iterations: iterations.Trend{Valid: true, Points: 6, Slope: 1.5}}}
	return &analysis.Result{Process: "rank0", Devices: []analysis.DeviceResult{d, slow}}
}
