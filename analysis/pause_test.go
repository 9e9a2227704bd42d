package analysis

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// pausing is a job of two arenas, of which the second can be paused.
type pausing struct {
	*modeltest.Recorder
	main, tagged *modeltest.Arena
}

func newPausing(t *testing.T) *pausing {
	r := modeltest.New()
	arena := func(base uint64) *modeltest.Arena {
		device := bfc.NewDevice(bfc.DeviceOptions{Base: base, VMM: true, Granularity: 2 << 20, Physical: 1 << 30, Reservation: 1 << 30})
		a, err := r.NewArena(0, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, device, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	return &pausing{r, arena(1 << 40), arena(1 << 41)}
}

func (p *pausing) transition(kind trace.Kind, bytes int64, text string) {
	p.Add(trace.Event{Kind: kind, Arena: p.tagged.ID, Addr: 5000, Requested: bytes, Provided: 700, Context: p.Strings.Intern(text)})
}

func (p *pausing) run(t *testing.T) (*DeviceResult, error) {
	t.Helper()
	r, err := explored(p.Recorder, Options{Text: p.Strings.Text}, nil)
	if err != nil {
		return nil, err
	}
	return &r.Devices[0], nil
}

func (p *pausing) take(t *testing.T, a *modeltest.Arena, size uint64) uint64 {
	t.Helper()
	addr, ok := a.Alloc(size, "")
	if !ok {
		t.Fatalf("no memory for %d bytes", size)
	}
	return addr
}

// What is paused is in no term; what is freed meanwhile is unmapped before the resume.
func TestPause(t *testing.T) {
	p := newPausing(t)
	p.take(t, p.main, 6*mib)
	gone := p.take(t, p.tagged, 8*mib)
	p.take(t, p.tagged, 4*mib)
	p.transition(trace.KindPause, 0, "tag=kv\tfailed=no host memory")
	p.transition(trace.KindPause, 12*mib, "tag=kv")
	p.take(t, p.main, 20*mib)
	p.tagged.Free(gone, false)
	p.tagged.Unmap(gone, 8*mib)
	p.transition(trace.KindResume, 4*mib, "tag=kv")
	d, err := p.run(t)
	if err != nil {
		t.Fatal(err)
	}
	instant := func(i ledger.Instant) [4]int64 { return [4]int64{i.T, i.R, i.Paused, i.Live} }
	if diff := cmp.Diff([4]int64{30 * mib, 30 * mib, 0, 3}, instant(d.Peak)); diff != "" {
		t.Errorf("peak (-want +got):\n%s", diff)
	}
	if got := instant(d.Final); got != [4]int64{30 * mib, 30 * mib, 0, 3} {
		t.Errorf("at the end T, R, paused, blocks are %v", got)
	}
	want := []pause.Transition{
		{Duration: 5000, Arena: 1, Tag: "kv", Copied: 700, Reserved: 18 * mib, Failed: "no host memory"},
		{Duration: 5000, Arena: 1, Tag: "kv", Bytes: 12 * mib, Copied: 700, Reserved: 6 * mib},
		{Duration: 5000, Arena: 1, Tag: "kv", Resume: true, Bytes: 4 * mib, Copied: 700, Reserved: 30 * mib},
	}
	got := slices.Clone(d.Transitions)
	for i := range got {
		got[i].Seq, got[i].Time = 0, 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

// At the peak a tag is paused: nothing of it is in the picture, though its blocks are live.
func TestPeakWhilePaused(t *testing.T) {
	p := newPausing(t)
	block := p.take(t, p.tagged, 8*mib)
	p.take(t, p.tagged, 2*mib)
	p.transition(trace.KindPause, 10*mib, "tag=kv")
	p.take(t, p.main, 64*mib)
	p.tagged.Free(block, false)
	d, err := p.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if d.Peak.T != 64*mib || d.Peak.R != 64*mib || d.Peak.Paused != 10*mib || len(d.Map.Arenas) != 1 {
		t.Errorf("the peak is %+v in %d arenas", d.Peak, len(d.Map.Arenas))
	}
}

func TestPauseThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(p *pausing){
		"other bytes":     func(p *pausing) { p.transition(trace.KindPause, 3*mib, "tag=kv") },
		"resume resident": func(p *pausing) { p.transition(trace.KindResume, 2*mib, "tag=kv") },
		"twice": func(p *pausing) {
			p.transition(trace.KindPause, 2*mib, "tag=kv")
			p.transition(trace.KindPause, 2*mib, "tag=kv")
		},
		"request": func(p *pausing) { p.transition(trace.KindPause, 2*mib, "tag=kv"); p.tagged.Alloc(500, "") },
		"growth":  func(p *pausing) { p.transition(trace.KindPause, 2*mib, "tag=kv"); p.tagged.Alloc(50*mib, "") },
		"resume too large": func(p *pausing) {
			p.transition(trace.KindPause, 2*mib, "tag=kv")
			p.transition(trace.KindResume, 4*mib, "tag=kv")
		},
	} {
		p := newPausing(t)
		p.take(t, p.tagged, mib/4)
		p.take(t, p.main, mib)
		change(p)
		p.take(t, p.main, mib)
		var wrong *ledger.EventError
		if _, err := p.run(t); !errors.As(err, &wrong) {
			t.Errorf("%s: error %v, want one of an event", name, err)
		}
	}
}
