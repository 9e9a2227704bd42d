package snapshot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// version is how a range of torch versions writes a snapshot, by its sources: torch/csrc/cuda/memory_snapshot.cpp and
// Module.cpp. Snapshots of 2.6 and 2.11 that torch wrote are in testdata and samples; all others are built here.
type version struct {
	torch     string
	bare      bool // the list of segments alone, without a trace
	history   bool // of blocks, which have no addresses
	requested bool // bytes of blocks and segments
	pools     bool // of segments
	times     bool // of entries
	settings  bool
	scopes    string // where record_function's are: "" nowhere, "entries", "top"
	metadata  bool   // of entries
	entryPool bool
	host      bool // pinned host memory, further frames and entries of marks
}

var versions = []version{
	{torch: "1.13", bare: true, history: true},
	{torch: "2.0", history: true},
	{torch: "2.1", requested: true},
	{torch: "2.2", requested: true, pools: true, times: true, settings: true},
	{torch: "2.4", requested: true, pools: true, times: true, settings: true, scopes: "entries"},
	{torch: "2.5 to 2.7", requested: true, pools: true, times: true, settings: true, scopes: "top"},
	{torch: "2.8 to 2.11", requested: true, pools: true, times: true, settings: true, scopes: "top", metadata: true},
	{torch: "2.12", requested: true, pools: true, times: true, settings: true, scopes: "top", metadata: true, entryPool: true},
	{torch: "2.13 and 2.14", requested: true, pools: true, times: true, settings: true, scopes: "top", metadata: true, entryPool: true, host: true},
}

const (
	largeAt = testAddr
	smallAt = testAddr + 64*testMiB
)

var frameOfJob = pairs{"name", "step", "filename", "job.py", "line", 7}

func (v *version) block(addr, size, requested int, state string) pairs {
	b := pairs{"size", size, "state", state}
	if v.history {
		if requested > 0 {
			b = append(b, "history", []any{pairs{"addr", addr, "real_size", requested, "frames", []any{frameOfJob}}})
		}
		return b
	}
	b = append(b, "address", addr, "frames", []any{frameOfJob})
	if v.requested {
		b = append(b, "requested_size", requested)
	}
	return b
}

func (v *version) segment(addr, size int, kind string, blocks ...any) pairs {
	s := pairs{"device", 0, "address", addr, "total_size", size, "allocated_size", 0, "active_size", 0, "stream", 0, "segment_type", kind, "blocks", blocks}
	if v.requested {
		s = append(s, "requested_size", 0, "is_expandable", false, "frames", []any{})
	}
	if v.pools {
		s = append(s, "segment_pool_id", [2]int{0, 0})
	}
	return s
}

// entry is one of a device's trace at a time in µs.
func (v *version) entry(action string, addr, size, time int) pairs {
	key := "addr"
	if action == "oom" {
		key = "device_free"
	}
	e := pairs{"action", action, key, addr, "size", size, "stream", 0}
	if v.metadata {
		e = append(e, "compile_context", "N/A", "user_metadata", "")
	}
	if v.entryPool {
		e = append(e, "pool_id", [2]int{0, 0})
	}
	if v.host {
		e = append(e, "forward_frames", []any{"forward.py:1:f"}, "internal_metadata", "")
	}
	if v.times {
		e = append(e, "time_us", time)
	}
	return append(e, "frames", []any{frameOfJob})
}

// snapshot is of a job that allocates and frees 3 MiB, keeps 1,000 bytes, and makes a request that is refused.
func (v *version) snapshot() any {
	segments := []any{
		v.segment(largeAt, 20*testMiB, "large", v.block(largeAt, 20*testMiB, 0, "inactive")),
		v.segment(smallAt, 2*testMiB, "small", v.block(smallAt, 1024, 1000, "active_allocated"), v.block(smallAt+1024, 2*testMiB-1024, 0, "inactive")),
	}
	if v.bare {
		return segments
	}
	entries := []any{
		v.entry("segment_alloc", largeAt, 20*testMiB, 100), v.entry("alloc", largeAt, 3*testMiB, 100),
		v.entry("segment_alloc", smallAt, 2*testMiB, 110), v.entry("alloc", smallAt, 1000, 110),
		v.entry("free_requested", largeAt, 3*testMiB, 120), v.entry("free_completed", largeAt, 3*testMiB, 120),
		v.entry("oom", 12345, 1<<40, 130), v.entry("snapshot", 0, 1024, 140),
	}
	mark := func(stage string, time int) pairs {
		e := v.entry("user_defined", 0, 0, time)
		e[len(e)-1] = []any{pairs{"name", stage, "filename", "## step (1) ##", "line", 0}}
		return e
	}
	if v.scopes == "entries" {
		entries = slices.Insert(append(entries, mark("END", 150)), 2, any(mark("START", 105)))
	}
	top := pairs{"segments", segments, "device_traces", []any{entries, []any{}}}
	if v.scopes == "entries" {
		top[3] = []any{entries, []any{mark("START", 105), mark("END", 150)}} // torch marks each device
	}
	if v.settings {
		top = append(top, "allocator_settings", pairs{
			"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", "max_split_size", 64 * testMiB, "garbage_collection_threshold", 0, "expandable_segments", false,
			"roundup_power2_divisions", pairs{"1", 0, "32768", 0},
		})
	}
	if v.scopes == "top" {
		scope := func(stage string, time int) pairs {
			return pairs{"stage", stage, "name", "## step (1) ##", "device", 0, "time_us", time}
		}
		top = append(top, "external_annotations", []any{scope("START", 105), scope("END", 150)})
	}
	if v.host {
		host := v.segment(largeAt, 2*testMiB, "large", v.block(largeAt, 2*testMiB, 2*testMiB, "active_allocated"))
		host[1] = -1
		top = append(top, "host_segments", []any{host}, "host_traces", []any{
			v.entry("alloc", largeAt, 2*testMiB, 90), v.entry("annotate", largeAt, 2*testMiB, 95), v.entry("free_requested", largeAt, 2*testMiB, 99),
		})
	}
	return top
}

// TestVersions imports the same job as each version of torch writes it.
func TestVersions(t *testing.T) {
	for _, v := range versions {
		t.Run(v.torch, func(t *testing.T) {
			run, made := imported(t, written(t, v.snapshot()))
			text := run.Processes[0].Strings().Text
			var got []string
			for _, e := range eventsOf(t, run, 0) {
				switch e.Kind {
				case trace.KindArena:
				case trace.KindPhaseBegin, trace.KindPhaseEnd:
					got = append(got, fmt.Sprintf("%d %s %s", e.Time, e.Kind, text(e.Context)))
				case trace.KindStack:
					got = append(got, "stack "+text(e.Context))
				default:
					got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %#x %d %d %s", e.Time, e.Kind, e.Addr, e.Requested, e.Provided, text(e.Context))))
				}
			}
			if diff := cmp.Diff(v.events(), got); diff != "" {
				t.Error(diff)
			}
			devices := 1
			if v.scopes == "entries" {
				devices = 2 // with marks alone
			}
			assert.That(t, len(made) == devices && made[0].Odd == 0, "%+v, want %d devices", made, devices)
			kept := run.Info.Imported[0].Settings
			assert.That(t, (kept != nil) == v.settings && (kept == nil || kept.MaxSplit == 64*testMiB), "settings %+v", kept)
		})
	}
}

// events are those that the recording has to have.
func (v *version) events() (all []string) {
	if v.bare {
		return []string{
			fmt.Sprintf("0 map %#x %d %d", largeAt, 20*testMiB, 20*testMiB), fmt.Sprintf("0 map %#x %d %d", smallAt, 2*testMiB, 2*testMiB),
			"stack step (job.py:7)", fmt.Sprintf("0 alloc %#x 1000 1024 stack=1", smallAt),
		}
	}
	after := func(us int) int {
		if v.times {
			return us * 1000
		}
		return 0
	}
	all = append(all, "stack step (job.py:7)",
		fmt.Sprintf("0 map %#x %d %d stack=1", largeAt, 20*testMiB, 20*testMiB), fmt.Sprintf("0 alloc %#x %d %d stack=1", largeAt, 3*testMiB, 3*testMiB))
	if v.scopes != "" {
		all = append(all, fmt.Sprintf("%d phase_begin ## step (1) ##", after(5)))
	}
	all = append(all,
		fmt.Sprintf("%d map %#x %d %d stack=1", after(10), smallAt, 2*testMiB, 2*testMiB), fmt.Sprintf("%d alloc %#x 1000 1024 stack=1", after(10), smallAt),
		fmt.Sprintf("%d free %#x %d %d", after(20), largeAt, 3*testMiB, 3*testMiB), fmt.Sprintf("%d oom 0x0 %d 12345 stack=1", after(30), 1<<40))
	if v.scopes != "" {
		all = append(all, fmt.Sprintf("%d phase_end ## step (1) ##", after(50)))
	}
	return all
}

// Python's writer has the greatest number for a max_split_size that is not set, torch's own one -1.
func TestNoMaxSplit(t *testing.T) {
	for name, number := range map[string]any{"C++": -1, "Python": uint64(math.MaxUint64)} {
		v := versions[3]
		top := v.snapshot().(pairs)
		top[5].(pairs)[3] = number
		run, _ := imported(t, written(t, top))
		kept := run.Info.Imported[0].Settings
		assert.That(t, kept != nil && kept.MaxSplit == -1, "%s: settings %+v", name, kept)
	}
}
