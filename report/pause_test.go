package report

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A call about several arenas of a tag is one line; another call, or tag, is another.
func TestTransitionsByCall(t *testing.T) {
	const ms = 1_000_000
	d := &analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}, Transitions: []pause.Transition{
		{Time: 10 * ms, Duration: 2 * ms, Tag: "kv", Bytes: 3 << 30, Reserved: 5 << 30},
		{Time: 11 * ms, Duration: 3 * ms, Tag: "kv", Bytes: 1 << 30, Reserved: 4 << 30},
		{Time: 12 * ms, Duration: 4 * ms, Tag: "weights", Bytes: 8 << 20, Copied: 4 << 20},
		{Time: 20 * ms, Duration: 1 * ms, Tag: "kv", Resume: true, Reserved: 2 << 30, Failed: "no memory to resume on GPU 0"},
		{Time: 30 * ms, Duration: 4 * ms, Tag: "weights", Resume: true, Bytes: 8 << 20, Copied: 4 << 20, Reserved: 6 << 30},
	}}
	sections := append(pauseSections(d), resumeSections(d)...)
	assert.Must(t, len(sections) == 1, "%d sections", len(sections))
	var got [][]string
	for _, line := range sections[0].Rows {
		var texts []string
		for _, c := range line {
			texts = append(texts, c.Text)
		}
		got = append(got, texts)
	}
	want := [][]string{
		{"11.0 ms", "pause", "kv", "4 GiB", "8 GiB", "0 B", "3.00 ms", "–", "done"},
		{"12.0 ms", "pause", "weights", "8 MiB", "8 MiB", "4 MiB", "4.00 ms", "1000 MiB", "done"},
		{"20.0 ms", "resume", "kv", "0 B", "2 GiB", "0 B", "1.00 ms", "–", "no memory to resume on GPU 0"},
		{"30.0 ms", "resume", "weights", "8 MiB", "6 GiB", "4 MiB", "4.00 ms", "1000 MiB", "done"},
	}
	assert.Diff(t, want, got, "rows")
	const whole = "no memory to resume on GPU 0: 0.68 GiB are needed and 0.12 GiB free; others use 0.50 GiB, requests of no tag 0.12 GiB"
	d.Transitions = append(d.Transitions, pause.Transition{Time: 41 * ms, Duration: ms, Tag: "kv", Resume: true, Failed: whole},
		pause.Transition{Time: 41 * ms, Duration: ms, Tag: "weights", Resume: true, Failed: whole})
	var below []string
	for _, c := range append(pauseSections(d), resumeSections(d)...)[0].After[2:] {
		below = append(below, c.Text)
	}
	assert.Diff(t, []string{"at 41.0 ms: " + whole}, below, "what does not fit into the table")
	if append(pauseSections(&analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}}), resumeSections(&analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}})...) != nil {
		t.Error("a section where nothing was paused")
	}
}

// pausedResult is the example of the article on verl and SGLang, in which all tags of the engine were
// resumed at once: Qwen2.5-7B on an H200 of 141 GB, in tenths of a GB.
func pausedResult() *analysis.Result {
	const tenth, none = 100_000_000, pause.Paused
	sizes := func(tenths ...int64) []int64 {
		for i, size := range tenths {
			if size != none {
				tenths[i] = size * tenth
			}
		}
		return tenths
	}
	names := []string{"trainer_weights", "training", "rollout_weights", "kv_cache", "graphs", "buffers"}
	cycle := pause.Cycle{Stages: []pause.Stage{
		{Name: "train", Sizes: sizes(154, 326, none, none, none, none), Needs: []bool{true, true, false, false, false, false}},
		{Name: "sync", Sizes: sizes(154, none, 154, 850, 20, 50), Needs: []bool{true, false, true, false, false, false}},
		{Name: "rollout", Sizes: sizes(none, none, 154, 850, 20, 50), Needs: []bool{false, false, true, true, true, true}},
	}}
	for i, bytes := range sizes(154, 326, 154, 850, 20, 50) {
		cycle.Tags = append(cycle.Tags, pause.Tag{Name: names[i], Bytes: bytes, Copied: i < 2 || i == 4, KV: i == 3})
	}
	recorded := cycle.Together()
	recorded.PeakStage, recorded.Steps = -1, nil
	s := &pause.Result{
		Cycle: cycle, Phases: true, Card: 1410 * tenth,
		Stages: []pause.StageUse{
			{Visits: 3, Duration: 90e9, Peak: 480 * tenth, Given: true},
			{Visits: 3, Duration: 1.5e9, Peak: 1228 * tenth, Free: 3 * tenth, Given: true},
			{Visits: 3, Duration: 150e9, Peak: 1074 * tenth},
		},
		Recorded: recorded, NeverPaused: cycle.NeverPaused(), Together: cycle.Together(), OnUse: cycle.OnUse(),
		Untagged: pause.Untagged{Seq: 40, Time: 30e9, Bytes: 107 * tenth, Blocks: 14, Rest: tenth, Groups: []pause.UntaggedGroup{
			{Phase: "rollout", Category: "kv_cache", Origin: "engine.page_table", Blocks: 1, Bytes: 100 * tenth, Mixed: true},
			{Phase: "other", Blocks: 12, Bytes: 6 * tenth, Frames: []string{"setup, engine.py:12"}},
		}},
	}
	var mapped int64
	for step := range int64(3) {
		for i := range cycle.Stages {
			tags := make([]int64, len(names))
			for t, size := range cycle.Stages[i].Sizes {
				tags[t] = max(size, 0)
			}
			m := pause.Mapped{Base: 2 * tenth, Tags: tags}
			start := (step*80 + []int64{0, 30, 31}[i]) * 1e9
			s.Series = append(s.Series, pause.Residency{Start: start, End: start, At: m, Last: m})
			mapped = max(mapped, m.Sum())
		}
	}
	at := ledger.Instant{Seq: 90, Time: 31e9, T: mapped, C: mapped, R: mapped, Live: 60}
	return &analysis.Result{
		Process: "rank0", Events: 4000, Duration: 241e9,
		Devices: []analysis.DeviceResult{reporttest.Whole(analysis.DeviceResult{
			Memory: &analysis.Memory{Peak: at, Final: at, MaxT: mapped, MaxC: mapped, MaxR: mapped, Chunks: &analysis.Chunks{}},
			Allocs: 60, Total: 1410 * tenth, Pauses: s, OtherLibraries: &accounting.OtherLibraries{Peak: 10 * tenth, Live: 10 * tenth, Calls: 2},
			Transitions: []pause.Transition{{Time: 31e9, Duration: 2e6, Tag: "kv_cache", Resume: true, Bytes: 850 * tenth, Reserved: mapped}},
			Series: analysis.Series{Points: []analysis.Point{{
				Start: 31e9, End: 31e9, At: at, Last: at,
				T: analysis.Range{Min: mapped, Max: mapped}, C: analysis.Range{Min: mapped, Max: mapped}, R: analysis.Range{Min: mapped, Max: mapped},
			}}},
			Map: ledger.AddressMap{At: at},
		})},
	}
}

// Memory of other libraries leaves less room for KV caches.
func TestFit(t *testing.T) {
	d := &pausedResult().Devices[0]
	fit := fitOf(d, &d.Pauses.OnUse)
	want := int64(141e9 - 1e9 - 22.4e9)
	assert.That(t, fit.fits && fit.largestKV == want && fit.fraction == float64(want)/141e9, "staged: %+v, want %d bytes of KV", fit, want)
	if fit := fitOf(d, &d.Pauses.NeverPaused); fit.fits || fit.largestKV != int64(141e9-1e9-70.4e9) {
		t.Errorf("resident: %+v", fit)
	}
	d.Pauses.Card = 0
	if fit := fitOf(d, &d.Pauses.OnUse); fit.known || fit.largestKV != -1 {
		t.Errorf("without a card: %+v", fit)
	}
}
