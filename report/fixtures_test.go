package report

import (
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/reporttest"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// fixture is a named list of results that every rendering is tried on.
type fixture struct {
	name    string
	results []*analysis.Result
}

func fixtures() []fixture {
	return []fixture{
		{"training", []*analysis.Result{reporttest.Training(24, 20, 4)}},
		{"short", []*analysis.Result{screened(reporttest.Training(4, 1, 4), strings.Clone, "")}},
		{"troubled", []*analysis.Result{troubled()}},
		{"hostile", []*analysis.Result{hostile()}},
		{"ranks", []*analysis.Result{ranked("rank0", 4, "GPU-a"), troubled(), ranked("rank12-pid4194304", 12, "GPU-b")}},
		{"attributed", []*analysis.Result{attributed(strings.Clone, false)}},
		{"exhausted", []*analysis.Result{attributed(strings.Clone, true)}},
		{"paused", []*analysis.Result{pausedResult()}},
		{"hostile_attributed", []*analysis.Result{spoiled()}},
		{"one_event", []*analysis.Result{oneEvent()}},
		{"no_allocations", []*analysis.Result{{Process: "pid7", Events: 2, Duration: 1500, Devices: []analysis.DeviceResult{reporttest.Whole(analysis.DeviceResult{Memory: &analysis.Memory{Peak: never(), Final: never(), Chunks: &analysis.Chunks{}}})}}}},
		{"no_devices", []*analysis.Result{{Process: "pid8"}}},
		{"nothing", nil},
	}
}

// ranked is a rank of a job on a card of its own.
func ranked(name string, layers int, card string) *analysis.Result {
	r := reporttest.Training(layers, 3, 4)
	r.Process = name
	r.Devices[0].Card, r.Devices[0].Total = card, 8*gib
	return r
}

// never is the instant of a device on which nothing happened.
func never() ledger.Instant { return ledger.Instant{Seq: -1, Time: -1, Iteration: -1} }

// oneEvent is a process killed after its first allocation.
func oneEvent() *analysis.Result {
	at := ledger.Instant{Seq: 3, Time: 1_500_000, T: 1000, C: 1024, R: 2 * mib, Rounding: 24, Reserve: 2*mib - 1024, Live: 1}
	return &analysis.Result{
		Process: "pid99", Events: 4, Duration: 1_500_000, Recovered: true,
		Devices: []analysis.DeviceResult{reporttest.Whole(analysis.DeviceResult{
			Device: 1, Allocs: 1,
			Memory: &analysis.Memory{Peak: at, Final: at, MaxT: 1000, MaxC: 1024, MaxR: 2 * mib, Chunks: &analysis.Chunks{LargestFree: 2*mib - 1024}},
			Series: analysis.Series{Points: []analysis.Point{{
				Start: 1_500_000, End: 1_500_000, At: at, Last: at,
				T: analysis.Range{Min: 1000, Max: 1000}, C: analysis.Range{Min: 1024, Max: 1024}, R: analysis.Range{Min: 2 * mib, Max: 2 * mib},
			}}},
			Map: ledger.AddressMap{At: at, Arenas: []ledger.ArenaMap{{Base: 1 << 40, Extent: 16 * gib, Spans: []ledger.Span{
				{Start: 0, Bytes: 1000, Kind: ledger.SpanLive}, {Start: 1000, Bytes: 24, Kind: ledger.SpanSlack},
				{Start: 1024, Bytes: 2*mib - 1024, Kind: ledger.SpanReserve},
			}}}},
		})},
	}
}

// troubled has all a healthy job has not: failures, a leak, pending blocks, several arenas with
// unmapped gaps, growth for fragmentation, and more iterations than there is room for.
func troubled() *analysis.Result {
	r := reporttest.Training(3, 250, 8)
	r.Process = "rank1"
	d := &r.Devices[0]
	d.Device = 1
	for i := range d.Series.Points {
		p := &d.Series.Points[i]
		for _, at := range []*ledger.Instant{&p.At, &p.Last} {
			at.Pending, at.Stranded = at.External/3, at.External/8
			at.External -= at.Pending + at.Stranded
		}
	}
	d.Peak.Pending, d.Peak.Stranded = d.Peak.External/3, d.Peak.External/8
	d.Peak.External -= d.Peak.Pending + d.Peak.Stranded
	for i := range int64(40) {
		verdict := analysis.Capacity
		if i%3 == 0 {
			verdict = analysis.Fragmentation
		}
		d.Growths = append(d.Growths, analysis.Growth{
			Seq: 1000 + i, Time: 200_000_000 + i*20_000_000, Arena: int32(i % 2), Iteration: int(i), Request: i*mib - 1,
			Grown: 2 * mib, Reserved: d.MaxR, Free: i * mib, LargestFree: i * mib / 2, TooSmall: i * mib / 3, Stranded: i * mib / 6, Verdict: verdict,
		})
	}
	d.GrowthCount = int64(len(d.Growths)) + 1234
	last := d.Series.Points[len(d.Series.Points)-1]
	d.OOMCount = 2
	d.OOMs = []analysis.OOM{
		{Used: -1, Limit: -1, Seq: 1200, Time: last.Start / 2, Request: 3 * gib, Free: 4 * gib, LargestFree: gib, TooSmall: 3 * gib, Stranded: gib, Verdict: analysis.Fragmentation, Context: "model.head", Origin: "model.head", At: last.At},
		{Used: -1, Limit: -1, Seq: 1300, Time: last.Start, Request: 30 * gib, Free: 4 * gib, LargestFree: gib, TooSmall: 4 * gib, Verdict: analysis.Capacity, At: last.At},
	}
	d.Leak = &iterations.Leak{Verdict: iterations.Leaks, Per: "iteration", Points: 8, Slope: 1.5 * float64(mib), Module: "train.history", Blocks: 251, Requested: 373*mib + 512, Provided: 374*mib + 512, Allocations: []attribution.AllocationGroup{
		{Context: "train.history", Blocks: 249, Requested: 373 * mib, Provided: 374 * mib}, {Blocks: 2, Requested: 512, Provided: 512},
	}}
	for arena := int32(1); arena <= 7; arena++ {
		base := int64(arena) * 64 * mib
		d.Map.Arenas = append(d.Map.Arenas, ledger.ArenaMap{Arena: arena, Base: 0x7f00_0000_0000 + int64(arena)<<34, Extent: 16 * gib, Spans: []ledger.Span{
			{Start: 0, Bytes: base / 4, Kind: ledger.SpanLive},
			{Start: base / 4, Bytes: base / 8, Kind: ledger.SpanPending},
			{Start: base / 2, Bytes: base / 4, Kind: ledger.SpanExternal},
		}})
		r.Arenas = append(r.Arenas, ledger.Info{ID: arena, Device: 1, Stream: int64(arena) * 16, Limit: -1, Options: map[string]string{"pool": "3", "tag": "graph"}})
	}
	return r
}

func hostile() *analysis.Result {
	r := reporttest.Training(4, 6, 4)
	r.Process = "../../" + reporttest.HostileName
	d := &r.Devices[0]
	for i := range d.TopContexts {
		d.TopContexts[i].Context = reporttest.HostileName[i%5:] + d.TopContexts[i].Context
	}
	d.Remedy = &analysis.Remedy{Replay: analysis.Replay{Allocator: "memprof", Setting: "--preset compact", Reserved: gib}, Tried: []string{"native"}}
	d.OOMs = []analysis.OOM{{Time: 5, Used: -1, Limit: -1, Request: gib, Verdict: analysis.Verdict(reporttest.HostileName), Context: reporttest.HostileName, Origin: reporttest.HostileName, At: d.Peak}}
	d.OOMs = append(d.OOMs, d.OOMs[0])
	d.OOMs[1].Used, d.OOMs[1].Limit = 3*gib, gib
	d.Growths[0].Verdict = analysis.Verdict(reporttest.HostileName)
	r.Arenas[0].Options["tag"] = reporttest.HostileName
	return screened(r, func(name string) string { return reporttest.HostileName + name }, "the recording has 2,000,000 events")
}

// screened gives a device what a first screen shows of attribution and replays, with names that are spelled so.
func screened(r *analysis.Result, spell func(string) string, leftOut string) *analysis.Result {
	d := &r.Devices[0]
	rest := d.Peak.T - 300*mib - 77
	d.Leak.Module = spell("train.history")
	d.Held.Uses = []attribution.CategoryUse{
		{Category: attribution.Activations, Requested: rest, Module: spell("resnet.layer*.conv"), ModuleBytes: rest / 2, Phase: spell("forward")},
		{Category: attribution.Weights, Requested: 300 * mib, Line: spell("train.py:9"), LineBytes: 300 * mib},
		{Category: attribution.Temporaries, Requested: 77, Phase: spell("backward")},
	}
	for i, setting := range []string{"native", spell("expandable_segments:True"), "--preset classic", "--preset compact"} {
		p := analysis.Replay{Allocator: "torch", Setting: setting, LeftOut: leftOut}
		if i >= 2 {
			p.Allocator = "memprof"
		}
		if leftOut == "" {
			p.Reserved, p.LeastCard, p.Step = d.MaxR-int64(i)*100*mib, d.MaxR-int64(i)*50*mib, 1+float64(i)/100
		}
		p.Recorded = i == 2
		d.Replays = append(d.Replays, p)
	}
	d.Savings = []analysis.Saving{
		{ID: "checkpoint", Text: "checkpoint " + spell("resnet.layer*"), Bytes: rest, Reserved: rest / 2, LeastCard: rest / 3},
		{ID: "allocator", Text: "memprof compact", Bytes: 100 * mib, Reserved: -mib, Allocator: "memprof", Setting: "--preset compact"},
	}
	return r
}
