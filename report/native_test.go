package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// nativeResult is a device of a native allocator, as the analysis returns it.
func nativeResult(c int64) *analysis.Result {
	const mib = 1 << 20
	peak := ledger.Instant{Seq: 7, Time: 7000, T: 6 * mib, C: c, R: 20 * mib, Pending: mib, NotRequested: 13 * mib, Live: 3}
	d := reporttest.Whole(analysis.DeviceResult{
		Memory: &analysis.Memory{Peak: peak, Final: peak, MaxT: 6 * mib, MaxC: c, MaxR: 20 * mib}, Allocs: 5, Frees: 2,
		Native: &torchalloc.Observed{Allocator: "native", Samples: 4, Odd: 1},
		Iterations: []iterations.Iteration{
			{Number: 0, PeakT: 6 * mib, PeakC: c, PeakR: 20 * mib, EndT: mib, EndC: -1},
			{Number: 1, PeakT: 6 * mib, PeakC: c, PeakR: 20 * mib, EndT: mib, EndC: -1},
		},
		Paper: &iterations.Paper{
			T1: 0.3, T2: 0.3, C1: math.NaN(), C2: math.NaN(), FirstExcess: math.NaN(), SteadyIdle: math.NaN(),
		},
		Growing: &analysis.Growing{GrowthCount: 1, Growths: []analysis.Growth{
			{Seq: 1, Time: 1000, Request: mib, Grown: 20 * mib, Reserved: 20 * mib, Free: -1, LargestFree: -1, TooSmall: -1, Stranded: -1},
		}},
		Failures: &analysis.Failures{OOMs: []analysis.OOM{{Used: -1, Limit: -1, Seq: 8, Time: 8000, Request: 1 << 40, Free: -1, LargestFree: -1, TooSmall: -1, Stranded: -1, At: peak}}},
		TopSizes: []attribution.AllocationGroup{{Size: 2 * mib, Blocks: 3, Requested: 6 * mib, Provided: 6 * mib}},
		Map: ledger.AddressMap{At: peak, Arenas: []ledger.ArenaMap{{
			Base: 1 << 40, Extent: 20 * mib, At: peak, Spans: []ledger.Span{
				{Start: 0, Bytes: 6 * mib, Kind: ledger.SpanLive}, {Start: 6 * mib, Bytes: mib, Kind: ledger.SpanPending},
				{Start: 7 * mib, Bytes: 13 * mib, Kind: ledger.SpanNotRequested},
			},
		}}},
		Series: analysis.Series{Points: []analysis.Point{
			{Start: 1000, End: 1000, T: analysis.Range{}, C: analysis.Range{Min: -1, Max: -1}, R: analysis.Range{Min: 20 * mib, Max: 20 * mib}, At: peak, Last: peak},
			{Start: 7000, End: 7000, T: analysis.Range{Max: 6 * mib}, C: analysis.Range{Min: c, Max: c}, R: analysis.Range{Min: 20 * mib, Max: 20 * mib}, At: peak, Last: peak},
		}},
	})
	return &analysis.Result{
		Process: "rank0", Events: 9, Duration: 9000, Devices: []analysis.DeviceResult{d},
		Arenas: []ledger.Info{{Options: map[string]string{"allocator": "native", "provided": "unknown"}, Final: peak}},
	}
}

// table are the lines of the section with a title, up to the next empty line.
func table(t *testing.T, text, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+title+"\n")
	assert.Must(t, found, "no section %q in\n%s", title, text)
	section, _, _ := strings.Cut(rest, "\n\n")
	return section
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// The figures of such a device can be drawn, and show only what is known.
func TestNativeFigures(t *testing.T) {
	for _, c := range []int64{8 << 20, -1} {
		r := nativeResult(c)
		for _, f := range Plots(r) {
			pngOf(t, f)
			assert.That(t, !strings.Contains(f.Subtitle, "-1") && !strings.Contains(f.Subtitle, "NaN"), "%s: %s", f.Name, f.Subtitle)
		}
	}
}

// In device accounting a native allocator has one term for all that is not requested, and no zeros for its parts.
func TestNativeAccounting(t *testing.T) {
	r := nativeResult(8 << 20)
	d := &r.Devices[0]
	d.Holdings.Peak.At, d.Holdings.Final.At = d.Peak, d.Final
	analysis.Reconcile([]analysis.Member{{Result: r, Device: d, GPU: -1}}, nil, "")
	d.Account.Peak.Context, d.Account.End.Context = 1<<20, 1<<20
	var out bytes.Buffer
	assert.NoError(t, Text(&out, []*analysis.Result{r}, Scope{All: true}, layout.Options{}))
	section := squeezed(table(t, out.String(), "Device accounting"))
	if !strings.Contains(section, "│ not requested │ 13 MiB │") || !strings.Contains(section, "│ requested │ 6 MiB │") {
		t.Error(section)
	}
	for _, name := range []string{"│ internal │", "│ reserve │", "│ external │"} {
		assert.That(t, !strings.Contains(section, name), "%s in %s", name, section)
	}
	balance := newJSONDeviceAccounting(d.Account).Peak
	assert.That(t, balance.Internal == nil && balance.Stranded == nil && balance.Reserve == nil && balance.Reusable == nil && balance.External == nil && balance.NotRequested == 13<<20,
		"%+v", balance)
}
