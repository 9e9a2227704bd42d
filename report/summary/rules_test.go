package summary

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/growth"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// sound is a device of a job in which nothing is wrong: it reserves what is requested.
func sound() Device {
	at := analysis.Instant{Seq: 100, Time: 5e9, T: 4 * gib, C: 4 * gib, R: 4 * gib}
	d := &analysis.DeviceResult{Peak: at, MaxR: 4 * gib, MaxT: 4 * gib, Allocs: 10}
	d.Leak.Iterations = analysis.Trend{Valid: true, Points: 9}
	return Device{DeviceResult: d, Result: &analysis.Result{Process: "pid1"}}
}

// withUsed gives a device a reading of its used memory at the peak.
func withUsed(d Device, used int64, other outside) {
	a := &analysis.Account{Processes: []string{"pid1"}}
	a.Peak.At = d.Peak
	a.Peak.Read = analysis.Reading{Valid: true, Used: used, Steady: true}
	a.Peak.Context, a.Peak.Modules = other.context, other.modules
	if other.library > 0 {
		a.Peak.Libraries = []analysis.LibraryUse{{Name: "libcublas.so.13", Bytes: other.library}}
	}
	a.Peak.Unexplained = used - a.Peak.Sum()
	d.Account = a
}

type outside struct{ context, modules, library int64 }

// held divides what is live at the peak among categories.
func held(d Device, categories map[analysis.Category]int64) {
	d.Held.Known = true
	for c := analysis.Weights; c <= analysis.Other; c++ {
		if bytes := categories[c]; bytes > 0 {
			d.Held.Categories.Groups = append(d.Held.Categories.Groups, analysis.Group{Name: c.String(), Blocks: 1, Requested: bytes})
		}
	}
}

// TestRules: each rule finds its fault, with its number, and nothing else where there is none.
func TestRules(t *testing.T) {
	tests := []struct {
		name  string
		fault func(d Device)
		want  []Finding
	}{
		{"nothing", func(Device) {}, nil},
		{"less than a page", func(d Device) { d.Peak.External, d.Peak.Slack = 2*mib-1, mib }, nil},
		{"failed request, fragmented", func(d Device) {
			d.OOMCount = 3
			d.OOMs = []analysis.OOM{{Seq: 422, Request: 9 * gib, Free: 10 * gib, LargestFree: gib, Verdict: growth.Fragmentation, Origin: "lm_head"}}
		}, []Finding{{"failed-request", 9 * gib, "request failed at event 422: 10 GiB free, largest free chunk 1 GiB, for lm_head; 2 requests more failed", "fragmentation: try --preset compact", Lost}}},
		{"failed request, full", func(d Device) {
			d.OOMCount = 1
			d.OOMs = []analysis.OOM{{Limit: -1, Used: -1, Seq: 7, Request: 9 * gib, Verdict: growth.Capacity}}
		}, []Finding{{"failed-request", 9 * gib, "request failed at event 7: 0 B free, largest free chunk 0 B", "capacity: a smaller batch, or a larger GPU", Lost}}},
		{"leak", func(d Device) {
			d.Leak = analysis.Leak{Iterations: analysis.Trend{Valid: true, Rising: true, Slope: float64(33 * mib)}, Requested: 330 * mib,
				Allocations: []analysis.AllocationGroup{{}, {Context: "evaluate"}}}
		}, []Finding{{"leak", 330 * mib, "leak: +33 MiB per iteration, most in evaluate", "free it, or detach tensors (--section leaks)", Grows}}},
		{"not rising", func(d Device) { d.Leak.Requested = gib }, nil},
		{"KV cache in training", func(d Device) {
			held(d, map[analysis.Category]int64{analysis.KVCache: 144 * mib})
			d.Phases = []analysis.PhaseUse{{Phase: "forward"}, {Phase: "backward"}}
		}, []Finding{{"kv-cache-in-training", 144 * mib, "KV cache in a job that trains", "use_cache=False while training", Cost}}},
		{"KV cache in serving", func(d Device) {
			held(d, map[analysis.Category]int64{analysis.KVCache: 144 * mib})
			d.Phases = []analysis.PhaseUse{{Phase: "forward"}}
		}, nil},
		{"activations", func(d Device) {
			held(d, map[analysis.Category]int64{analysis.Activations: 3 * gib, analysis.Weights: gib})
			d.Phases = []analysis.PhaseUse{{Phase: "backward"}}
			d.Held.Depths = []analysis.Breakdown{
				{Groups: []analysis.Group{{Name: "model", Requested: 4 * gib}}},
				{Groups: []analysis.Group{{Name: "model.head", Requested: gib}, {Name: "model.0", Requested: gib}, {Name: "model.1", Requested: gib}}},
			}
		}, []Finding{{"activations", 3 * gib, "activations; model.* requested 2 GiB in all", "checkpoint model.*, or a smaller batch", Cost}}},
		{"few activations", func(d Device) { held(d, map[analysis.Category]int64{analysis.Activations: gib - mib}) }, nil},
		{"optimizer", func(d Device) { held(d, map[analysis.Category]int64{analysis.Optimizer: 2 * gib}) },
			[]Finding{{"optimizer", 2 * gib, "optimizer state", "shard it over ranks, or use an 8-bit optimizer", Cost}}},
		{"growth ahead, replayed", func(d Device) {
			d.Peak.Reserve, d.Peak.Reusable, d.MaxR = gib, 10*mib, 8*gib
			d.Growths = []analysis.Growth{{Seq: 90, Request: 2048, Grown: 4 * gib}, {Seq: 101, Request: 1, Grown: 8 * gib}}
			d.Replays = []analysis.Replay{{Allocator: "torch", Setting: "native", Reserved: gib}, {Allocator: "memprof", Setting: "--preset compact", Reserved: 6 * gib}}
		}, []Finding{{"growth-ahead", gib + 10*mib, "reserve 1 GiB (never handed out), reusable 10 MiB (one free chunk); the last growth mapped 4 GiB for a request of 2 KiB", "--preset compact: reserves 6 GiB, 2 GiB less (replayed)", Cost}}},
		{"reserve", func(d Device) { d.Peak.Reserve = gib }, []Finding{{"growth-ahead", gib, "reserve: mapped, and never handed out", "memprof tune", Cost}}},
		{"one free chunk, no better policy", func(d Device) {
			d.Peak.Reusable = gib
			d.Replays = []analysis.Replay{{Allocator: "torch", Setting: "native", Reserved: gib}, {Allocator: "memprof", Setting: "--preset compact", Reserved: 4 * gib}}
		}, []Finding{{"growth-ahead", gib, "reusable: one free chunk", "none: --preset compact reserves no less (replayed)", Cost}}},
		{"stranded", func(d Device) {
			d.Peak.Stranded, d.Peak.View = 3*gib, 1
			d.Result.Arenas = []analysis.ArenaInfo{{ID: 1}, {ID: 2, Stream: 0x20}, {ID: 3, Options: map[string]string{"pool": "4"}}}
			d.Map.Arenas = []analysis.ArenaMap{{Arena: 1, At: analysis.Instant{Reserve: 9 * gib}}, {Arena: 2, At: analysis.Instant{External: gib}}, {Arena: 3, At: analysis.Instant{Reusable: 2 * gib}}}
		}, []Finding{{"stranded", 3 * gib, "free in arenas that the request at the peak cannot use; 2 GiB in pool 4", "memprof tune", Cost}}},
		{"external", func(d Device) { d.Peak.External, d.LargestFree = gib, 64*mib },
			[]Finding{{"external", gib, "external fragmentation; largest free chunk 64 MiB", "memprof tune", Cost}}},
		{"slack", func(d Device) { d.Peak.Slack = 300 * mib },
			[]Finding{{"slack", 300 * mib, "slack: chunks larger than their request", "memprof tune", Cost}}},
		{"slack of a policy that always splits", func(d Device) {
			d.Peak.Slack = 300 * mib
			d.Result.Arenas = []analysis.ArenaInfo{{Options: map[string]string{"split": "always"}}}
		}, nil},
		{"pending", func(d Device) { d.Peak.Pending = 5 * mib },
			[]Finding{{"pending", 5 * mib, "freed, but another stream may still use it", "use fewer streams, or end their use of tensors earlier", Cost}}},
		{"native", func(d Device) { d.Native, d.Peak.R = &analysis.Native{}, 6*gib },
			[]Finding{{"not-requested", 2 * gib, "reserved by PyTorch's allocator beyond what was requested", "memprof record without --allocator native shows its parts", Cost}}},
		{"graph pools", func(d Device) {
			d.Graphs = &analysis.Graphs{WhatIfs: []analysis.GraphWhatIf{
				{Shapes: 4, Physical: gib, Descended: 400 * mib, Ascended: 600 * mib, Aliased: 500 * mib}, {Why: "not known", Physical: 9 * gib}}}
		}, []Finding{{"graph-pools", 624 * mib, "of 1 GiB in CUDA-graph pools, for 4 shapes", "one pool, largest shape first: 400 MiB (replayed)", Cost}}},
		{"others", func(d Device) { withUsed(d, 5*gib, outside{500 * mib, 100 * mib, 64 * mib}) }, []Finding{
			{"driver-overhead", 600 * mib, "driver overhead: CUDA context 500 MiB, kernels and libraries 100 MiB", "none: fixed per process", Cost},
			{"unexplained", 360 * mib, "used memory that no recorded event explains", "record with --serve, if other libraries call the driver", Cost},
			{"other-libraries", 64 * mib, "other libraries: libcublas.so.13", "none", Cost},
		}},
		{"before the job", func(d Device) { withUsed(d, 4*gib, outside{}); d.Account.UsedBeforeJob = 2 * gib },
			[]Finding{{"used-before-job", 2 * gib, "in use on the GPU before the job began", "end the other processes on this GPU", Cost}}},
	}
	named := map[string]bool{}
	for _, test := range tests {
		d := sound()
		test.fault(d)
		got := Find(d)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		for _, f := range got {
			named[f.Rule] = true
		}
	}
	for _, r := range Rules {
		if !named[r.Name] {
			t.Errorf("no test has rule %s", r.Name)
		}
	}
}

// TestOrder: what the job lost comes first, then what grows, then the most bytes; at most ten are shown.
func TestOrder(t *testing.T) {
	d := sound()
	d.Peak.External, d.Peak.Slack, d.Peak.Pending = gib, 3*gib, 2*gib
	d.Leak = analysis.Leak{Iterations: analysis.Trend{Valid: true, Rising: true, Slope: 1}, Requested: 1}
	d.OOMs, d.OOMCount = []analysis.OOM{{Request: 5}}, 1
	var got []string
	for _, f := range Find(d) {
		got = append(got, f.Rule)
	}
	if diff := cmp.Diff([]string{"failed-request", "leak", "slack", "pending", "external"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestReplayed: the line about other allocators has what was replayed, and is left out without any.
func TestReplayed(t *testing.T) {
	d := sound().DeviceResult
	if got := replayed(d, 0); got != nil {
		t.Errorf("without replays: %q", got)
	}
	d.Replays = []analysis.Replay{
		{Allocator: "torch", Setting: "native", Reserved: 6 * gib},
		{Allocator: "torch", Setting: "expandable_segments:True", Reserved: 5 * gib},
		{Allocator: "memprof", Setting: "--preset compact", Reserved: 4 * gib},
	}
	want := "Reserved at most 4 GiB. Replayed: PyTorch's own allocator 6 GiB, with expandable_segments:True 5 GiB; --preset compact 4 GiB."
	if got := replayed(d, 0); len(got) != 1 || got[0].Text != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWhole: shares are of used memory only where it was read at the peak, for this process alone.
func TestWhole(t *testing.T) {
	d := sound()
	if bytes, name := Whole(d.DeviceResult); bytes != 4*gib || name != "reserved" {
		t.Errorf("without a reading: %d %s", bytes, name)
	}
	withUsed(d, 5*gib, outside{})
	if bytes, name := Whole(d.DeviceResult); bytes != 5*gib || name != "used" {
		t.Errorf("with a reading: %d %s", bytes, name)
	}
	d.Account.Processes = append(d.Account.Processes, "pid2")
	if _, name := Whole(d.DeviceResult); name != "reserved" {
		t.Errorf("of two processes: %s", name)
	}
	d.Account.Processes = d.Account.Processes[:1]
	d.Account.Peak.At.Time++
	if _, name := Whole(d.DeviceResult); name != "reserved" {
		t.Errorf("at another time: %s", name)
	}
}
