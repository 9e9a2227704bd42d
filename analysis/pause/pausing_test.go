package pause_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

// pausing is a job of two arenas, of which the second can be paused.
type pausing struct{ *modeltest.Pausing }

func newPausing(t *testing.T) pausing { return pausing{modeltest.NewPausing(t)} }

func (p pausing) run(t *testing.T) (*analysis.DeviceResult, error) {
	t.Helper()
	r, err := analysis.Run(modeltest.Source(p.Events, 7), analysis.Options{Text: p.Strings.Text})
	if err != nil {
		return nil, err
	}
	return &r.Devices[0], nil
}

// What is paused is in no term; what is freed meanwhile is unmapped before the resume.
func TestPause(t *testing.T) {
	p := newPausing(t)
	p.Take(t, p.Main, 6*mib)
	gone := p.Take(t, p.Tagged, 8*mib)
	p.Take(t, p.Tagged, 4*mib)
	p.Transition(trace.KindPause, 0, "tag=kv\tfailed=no host memory")
	p.Transition(trace.KindPause, 12*mib, "tag=kv")
	p.Take(t, p.Main, 20*mib)
	p.Tagged.Free(gone, false)
	p.Tagged.Unmap(gone, 8*mib)
	p.Transition(trace.KindResume, 4*mib, "tag=kv")
	d, err := p.run(t)
	assert.NoError(t, err)
	instant := func(i ledger.Instant) [4]int64 { return [4]int64{i.T, i.R, i.Paused, i.Live} }
	assert.Diff(t, [4]int64{30 * mib, 30 * mib, 0, 3}, instant(d.Peak), "peak")
	assert.Equal(t, instant(d.Final), [4]int64{30 * mib, 30 * mib, 0, 3}, "at the end T, R, paused, blocks")
	want := []pause.Transition{
		{Duration: 5000, Arena: 1, Tag: "kv", Copied: 700, Reserved: 18 * mib, Failed: "no host memory"},
		{Duration: 5000, Arena: 1, Tag: "kv", Bytes: 12 * mib, Copied: 700, Reserved: 6 * mib},
		{Duration: 5000, Arena: 1, Tag: "kv", Resume: true, Bytes: 4 * mib, Copied: 700, Reserved: 30 * mib},
	}
	got := slices.Clone(d.Transitions)
	for i := range got {
		got[i].Seq, got[i].Time = 0, 0
	}
	assert.Diff(t, want, got, "transitions")
}

// At the peak a tag is paused: nothing of it is in the picture, though its blocks are live.
func TestPeakWhilePaused(t *testing.T) {
	p := newPausing(t)
	block := p.Take(t, p.Tagged, 8*mib)
	p.Take(t, p.Tagged, 2*mib)
	p.Transition(trace.KindPause, 10*mib, "tag=kv")
	p.Take(t, p.Main, 64*mib)
	p.Tagged.Free(block, false)
	d, err := p.run(t)
	assert.NoError(t, err)
	assert.That(t, d.Peak.T == 64*mib && d.Peak.R == 64*mib && d.Peak.Paused == 10*mib && len(d.Map.Arenas) == 1,
		"the peak is %+v in %d arenas", d.Peak, len(d.Map.Arenas))
}

func TestPauseThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(p pausing){
		"other bytes":     func(p pausing) { p.Transition(trace.KindPause, 3*mib, "tag=kv") },
		"resume resident": func(p pausing) { p.Transition(trace.KindResume, 2*mib, "tag=kv") },
		"twice": func(p pausing) {
			p.Transition(trace.KindPause, 2*mib, "tag=kv")
			p.Transition(trace.KindPause, 2*mib, "tag=kv")
		},
		"request": func(p pausing) { p.Transition(trace.KindPause, 2*mib, "tag=kv"); p.Tagged.Alloc(500, "") },
		"growth":  func(p pausing) { p.Transition(trace.KindPause, 2*mib, "tag=kv"); p.Tagged.Alloc(50*mib, "") },
		"resume too large": func(p pausing) {
			p.Transition(trace.KindPause, 2*mib, "tag=kv")
			p.Transition(trace.KindResume, 4*mib, "tag=kv")
		},
	} {
		p := newPausing(t)
		p.Take(t, p.Tagged, mib/4)
		p.Take(t, p.Main, mib)
		change(p)
		p.Take(t, p.Main, mib)
		var wrong *ledger.EventError
		_, err := p.run(t)
		assert.That(t, errors.As(err, &wrong), "%s: error %v, want one of an event", name, err)
	}
}
