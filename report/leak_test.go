package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
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

// A server whose tag is paused now and then leaks by its requests: what all of that is in JSON.
func TestLeakingJSON(t *testing.T) {
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
	var out bytes.Buffer
	if err := JSON(&out, []*analysis.Result{{Process: "rank0", Devices: []analysis.DeviceResult{d, slow}}}); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "leaking.json", out.Bytes())
}

func TestLeakJSON(t *testing.T) {
	leakOf := func(leak iterations.Leak) string {
		results := []*analysis.Result{{Devices: []analysis.DeviceResult{{Chunks: &analysis.Chunks{}, Allocs: 1, MaxR: 64, Leak: leak}}}}
		var out bytes.Buffer
		if err := JSON(&out, results); err != nil {
			t.Fatal(err)
		}
		var document struct {
			Processes []struct {
				Devices []struct {
					Leak json.RawMessage `json:"leak"`
				} `json:"devices"`
			} `json:"processes"`
		}
		if err := json.Unmarshal(out.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, document.Processes[0].Devices[0].Leak); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(compact.String(), `,"allocations"`)
		return text
	}
	for want, leak := range map[string]iterations.Leak{
		`null`: {Iterations: iterations.Trend{Points: 4}},
		`{"slope":null,"rising":false,"points":4,"per_request":{"of":"answer","slope":10.5,"rising":true,"points":9},` +
			`"per_second":{"slope":7,"rising":false,"points":47},"by":"request","blocks":2,"requested":30,"provided":40`: {
			Iterations: iterations.Trend{Points: 4},
			Requests:   iterations.Trend{Valid: true, Points: 9, Slope: 10.5, Rising: true}, Request: "answer",
			Seconds: iterations.Trend{Valid: true, Points: 47, Slope: 7}, Blocks: 2, Requested: 30, Provided: 40,
		},
		`{"slope":5,"rising":true,"points":9,"per_request":null,"per_second":null,"by":"iteration","blocks":0,"requested":0,"provided":0`: {
			Iterations: iterations.Trend{Valid: true, Points: 9, Slope: 5, Rising: true},
		},
	} {
		if got := leakOf(leak); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
