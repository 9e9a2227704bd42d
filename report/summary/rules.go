package summary

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// Rule finds one thing.
type Rule struct {
	Name     string
	Severity Severity
	// Bytes returns the size of what the rule is about, and 0 where there is no such thing, or too little
	// of it to matter.
	Bytes func(Device) int64
	// Text says what the bytes are, and Action what to do. They are called only where Bytes is not 0.
	Text, Action func(Device) string
}

// always returns an action that is the same for all jobs.
func always(action string) func(Device) string { return func(Device) string { return action } }

// Rules are all rules.
var Rules = []Rule{
	{"failed-request", Lost, failedBytes, failedText, failedAction},
	{"leak", Grows, leakBytes, leakText, leakAction},
	{"kv-cache-in-training", Cost, trainingCacheBytes, trainingCacheText, always("use_cache=False while training")},
	{"activations", Cost, categoryBytes(analysis.Activations, 4), activationsText, activationsAction},
	{"optimizer", Cost, categoryBytes(analysis.Optimizer, 4), always("optimizer state"), always("shard it over ranks, or use an 8-bit optimizer")},
	{"growth-ahead", Cost, aheadBytes, aheadText, cureAction},
	{"stranded", Cost, strandedBytes, strandedText, cureAction},
	{"external", Cost, func(d Device) int64 { return some(d.Peak.External) }, externalText, cureAction},
	{"slack", Cost, slackBytes, slackText, cureAction},
	{"pending", Cost, func(d Device) int64 { return some(d.Peak.Pending) }, always("freed, but another stream may still use it"), always("use fewer streams, or end their use of tensors earlier")},
	{"not-requested", Cost, notRequestedBytes, always("reserved by PyTorch's allocator beyond what was requested"), always("memprof record without --allocator native shows its parts")},
	{"graph-pools", Cost, graphPoolBytes, graphPoolText, graphPoolAction},
	{"other-libraries", Cost, libraryBytes, libraryText, always("none")},
	{"driver-overhead", Cost, overheadBytes, overheadText, overheadAction},
	{"unexplained", Cost, unexplainedBytes, always("used memory that no recorded event explains"), always("record with --serve, if other libraries call the driver")},
	{"used-before-job", Cost, beforeBytes, always("in use on the GPU before the job began"), always("end the other processes on this GPU")},
}

// some returns bytes if they are enough for a finding.
func some(bytes int64) int64 {
	if bytes < least {
		return 0
	}
	return bytes
}

func failedBytes(d Device) int64 {
	if len(d.OOMs) == 0 {
		return 0
	}
	return d.OOMs[0].Request
}

func failedText(d Device) string {
	o := &d.OOMs[0]
	text := "request failed at event " + units.FormatCount(o.Seq)
	if o.Free >= 0 {
		text += ": " + units.FormatSize(o.Free) + " free"
	}
	if o.LargestFree >= 0 {
		text += ", largest free chunk " + units.FormatSize(o.LargestFree)
	}
	if o.Origin != "" {
		text += ", for " + plain.Shorten(o.Origin, 40)
	}
	if more := d.OOMCount - 1; more > 0 {
		text += fmt.Sprintf("; %s more failed", units.Counted(more, "request"))
	}
	return text
}

func failedAction(d Device) string { return Change(d.DeviceResult, &d.OOMs[0]) }

func leakBytes(d Device) int64 {
	if trend, _ := d.Leak.Trend(); trend.Valid && trend.Rising {
		return d.Leak.Requested
	}
	return 0
}

func leakText(d Device) string {
	trend, per := d.Leak.Trend()
	text := fmt.Sprintf("leak: +%s per %s", units.FormatSize(int64(math.Round(trend.Slope))), per)
	for i := range d.Leak.Allocations {
		if name := d.Leak.Allocations[i].Context; name != "" {
			text += ", most in " + plain.Shorten(name, 40)
			break
		}
	}
	return text
}

func leakAction(Device) string { return "free it, or detach tensors (--section leaks)" }

// category returns the requested bytes of a category at the peak.
func category(d Device, c analysis.Category) int64 {
	for i := range d.Held.Categories.Groups {
		if g := &d.Held.Categories.Groups[i]; g.Name == c.String() {
			return g.Requested
		}
	}
	return 0
}

// categoryBytes returns the bytes of a category that has at least one nth of what was requested.
func categoryBytes(c analysis.Category, n int64) func(Device) int64 {
	return func(d Device) int64 {
		if bytes := category(d, c); n*bytes >= d.Peak.T {
			return some(bytes)
		}
		return 0
	}
}

// trains says whether the job has phases of training.
func trains(d Device) bool {
	return slices.ContainsFunc(d.Phases, func(p analysis.PhaseUse) bool { return p.Phase == "backward" || p.Phase == "optimizer" })
}

func trainingCacheBytes(d Device) int64 {
	if !trains(d) {
		return 0
	}
	return some(category(d, analysis.KVCache))
}

func trainingCacheText(Device) string { return "KV cache in a job that trains" }

func activationsText(d Device) string {
	if module, bytes := largestModule(d); module != "" {
		return fmt.Sprintf("activations; %s requested %s in all", plain.Shorten(module, 40), units.FormatSize(bytes))
	}
	return "activations"
}

func activationsAction(d Device) string {
	if module, _ := largestModule(d); module != "" && trains(d) {
		return "checkpoint " + plain.Shorten(module, 30) + ", or a smaller batch"
	}
	return "a smaller batch"
}

// largestModule returns the module that says most about where memory is: of the rolled-up modules the largest
// at the first depth at which none has two thirds of what was requested. Repeated layers are one module,
// "h.*.attn".
func largestModule(d Device) (name string, bytes int64) {
	for i := range d.Held.Depths {
		sums := map[string]int64{}
		for _, g := range d.Held.Depths[i].Groups {
			if g.Name != "" {
				sums[attribution.Origin{Name: g.Name, Module: true}.Kind()] += g.Requested
			}
		}
		name, bytes = "", 0
		for kind, sum := range sums {
			if sum > bytes || sum == bytes && kind < name {
				name, bytes = kind, sum
			}
		}
		if 3*bytes < 2*d.Peak.T {
			break
		}
	}
	return name, bytes
}

// aheadBytes are free bytes that a growth mapped ahead of need: never handed out, or in the largest free chunk.
func aheadBytes(d Device) int64 { return some(d.Peak.Reserve + d.Peak.Reusable) }

func aheadText(d Device) string {
	text := "reusable: one free chunk"
	switch {
	case d.Peak.Reusable == 0:
		text = "reserve: mapped, and never handed out"
	case d.Peak.Reserve > 0:
		text = fmt.Sprintf("reserve %s (never handed out), reusable %s (one free chunk)", units.FormatSize(d.Peak.Reserve), units.FormatSize(d.Peak.Reusable))
	}
	var last *analysis.Growth
	for i := range d.Growths {
		if g := &d.Growths[i]; g.Seq <= d.Peak.Seq && g.Request >= 0 {
			last = g
		}
	}
	if last == nil {
		return text
	}
	return fmt.Sprintf("%s; the last growth mapped %s for a request of %s", text, units.FormatSize(last.Grown), units.FormatSize(last.Request))
}

// cureAction names the policy that reserves less by replay.
func cureAction(d Device) string {
	if r := replayOf(d.DeviceResult, "memprof"); r != nil {
		if saved := d.MaxR - r.Reserved; saved > d.MaxR/100 {
			return fmt.Sprintf("%s: reserves %s, %s less (replayed)", r.Setting, units.FormatSize(r.Reserved), units.FormatSize(saved))
		}
		return "none: " + r.Setting + " reserves no less (replayed)"
	}
	return "memprof tune"
}

// replayOf returns the first replay under an allocator, or nil.
func replayOf(d *analysis.DeviceResult, allocator string) *analysis.Replay {
	for i := range d.Replays {
		if d.Replays[i].Allocator == allocator {
			return &d.Replays[i]
		}
	}
	return nil
}

func strandedBytes(d Device) int64 { return some(d.Peak.Stranded) }

// strandedText names the arena with the most free memory that the requests at the peak cannot use.
func strandedText(d Device) string {
	var most analysis.ArenaMap
	greatest := int64(0)
	for _, a := range d.Map.Arenas {
		if free := a.At.Reserve + a.At.Reusable + a.At.External; a.Arena != d.Peak.View && free > greatest {
			most, greatest = a, free
		}
	}
	if greatest == 0 {
		return "free in arenas that the request at the peak cannot use"
	}
	return fmt.Sprintf("free in arenas that the request at the peak cannot use; %s in %s", units.FormatSize(greatest), arenaName(d.Result, most.Arena))
}

// arenaName says what an arena serves.
func arenaName(r *analysis.Result, id int32) string {
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.ID != id {
			continue
		}
		for _, option := range []string{"tag", "pool", "memory"} {
			if value := a.Options[option]; value != "" {
				return option + " " + plain.Shorten(value, 24)
			}
		}
		return fmt.Sprintf("stream %#x", uint64(a.Stream))
	}
	return fmt.Sprintf("arena %d", id)
}

func externalText(d Device) string {
	return fmt.Sprintf("external fragmentation; largest free chunk %s", units.FormatSize(d.LargestFree))
}

func slackBytes(d Device) int64 {
	if d.Native != nil || splitsAlways(d) {
		return 0
	}
	return some(d.Peak.Slack)
}

// splitsAlways says whether the policy of the device's arenas splits every chunk that is larger than its request.
func splitsAlways(d Device) bool {
	return slices.ContainsFunc(d.Result.Arenas, func(a analysis.ArenaInfo) bool {
		return a.Device == d.DeviceResult.Device && a.Options["split"] == "always"
	})
}

func slackText(Device) string { return "slack: chunks larger than their request" }

func notRequestedBytes(d Device) int64 {
	if d.Native == nil {
		return 0
	}
	return some(d.Peak.R - d.Peak.T - d.Peak.Pending)
}

// graphWaste is the replay of captures that saves most.
func graphWaste(d Device) (saved int64, at *analysis.GraphWhatIf) {
	if d.Graphs == nil {
		return 0, nil
	}
	for i := range d.Graphs.WhatIfs {
		w := &d.Graphs.WhatIfs[i]
		if less := w.Physical - graphLeast(w); w.Why == "" && less > saved {
			saved, at = less, w
		}
	}
	return saved, at
}

// graphLeast is the least memory that the captures need by replay.
func graphLeast(w *analysis.GraphWhatIf) int64 { return min(w.Descended, w.Ascended, w.Aliased) }

func graphPoolBytes(d Device) int64 {
	saved, _ := graphWaste(d)
	return some(saved)
}

func graphPoolText(d Device) string {
	_, w := graphWaste(d)
	return fmt.Sprintf("of %s in CUDA-graph pools, for %s", units.FormatSize(w.Physical), units.Counted(int64(w.Shapes), "shape"))
}

func graphPoolAction(d Device) string {
	_, w := graphWaste(d)
	how := "a graph memory shared by all shapes"
	if least := graphLeast(w); least == w.Descended {
		how = "one pool, largest shape first"
	} else if least == w.Ascended {
		how = "one pool for all shapes"
	}
	return fmt.Sprintf("%s: %s (replayed)", how, units.FormatSize(graphLeast(w)))
}

func libraryBytes(d Device) int64 {
	if b := balance(d.DeviceResult); b != nil {
		return some(b.Other())
	}
	return 0
}

func libraryText(d Device) string {
	var names []string
	for _, l := range balance(d.DeviceResult).Libraries {
		if len(names) == 3 {
			names = append(names, "…")
			break
		}
		names = append(names, plain.Shorten(cmp.Or(l.Name, "(unknown)"), 30))
	}
	return "other libraries: " + strings.Join(names, ", ")
}

func overheadBytes(d Device) int64 {
	if b := balance(d.DeviceResult); b != nil {
		return some(b.Overhead())
	}
	return 0
}

func overheadText(d Device) string {
	b := balance(d.DeviceResult)
	return fmt.Sprintf("driver overhead: CUDA context %s, kernels and libraries %s", units.FormatSize(b.Context), units.FormatSize(b.Modules+b.Loads))
}

func overheadAction(d Device) string {
	if b := balance(d.DeviceResult); b.Modules+b.Loads > b.Context {
		return "CUDA_MODULE_LOADING=LAZY, fewer libraries"
	}
	return "none: fixed per process"
}

// unexplainedBytes are those of used memory, if they are more than a hundredth of it.
func unexplainedBytes(d Device) int64 {
	b := balance(d.DeviceResult)
	if b == nil || b.UnexplainedUnknown != "" || 100*b.Unexplained < b.Read.Used {
		return 0
	}
	return some(b.Unexplained)
}

func beforeBytes(d Device) int64 {
	const idle = 1 << 30 // an idle card's driver has some hundred MiB in use
	if d.Account == nil || d.Account.UsedBeforeJob < idle {
		return 0
	}
	return d.Account.UsedBeforeJob
}
