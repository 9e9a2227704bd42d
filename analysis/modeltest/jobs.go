package modeltest

import (
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// NewArena makes an arena of the first device.
func NewArena(t testing.TB, r *Recorder, options bfc.Options, device bfc.DeviceOptions) *Arena {
	t.Helper()
	a, err := r.NewArena(0, options, bfc.NewDevice(device), nil)
	assert.NoError(t, err)
	return a
}

// Alloc allocates what there is memory for.
func Alloc(t testing.TB, a *Arena, size uint64, context string) uint64 {
	t.Helper()
	addr, ok := a.Alloc(size, context)
	assert.Must(t, ok, "no memory for %d bytes", size)
	return addr
}

// Numbered gives events their numbers and times.
func Numbered(events []trace.Event) []trace.Event {
	for i := range events {
		events[i].Seq, events[i].Time = int64(i), int64(i)*700
	}
	return events
}

// Job is a training job: a model, a first iteration that makes more than the later ones (if
// it sets up), and `kept` bytes that each iteration leaves behind.
func Job(t testing.TB, iterations, layers int, kept uint64, setsUp bool) *Recorder {
	r := New()
	a := NewArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * (1 << 20)})
	for i := range 5 {
		Alloc(t, a, uint64(100_000*(i+1)), "model")
	}
	for n := range iterations {
		var live []uint64
		for i := range layers {
			live = append(live, Alloc(t, a, uint64(50_000*(i%7+1)+1000*i), "forward"))
		}
		if n == 0 && setsUp {
			workspace := Alloc(t, a, 3*(1<<20), "workspace")
			Alloc(t, a, 200_000, "optimizer")
			a.Free(workspace, false)
		}
		for i := len(live) - 1; i >= 0; i-- {
			a.Free(live[i], false)
		}
		if kept > 0 {
			Alloc(t, a, kept, "history")
		}
		r.Mark(int64(n))
	}
	return r
}

// Pausing is a job of two arenas, of which the second can be paused.
type Pausing struct {
	*Recorder
	Main, Tagged *Arena
}

func NewPausing(t testing.TB) *Pausing {
	r := New()
	arena := func(base uint64) *Arena {
		device := bfc.NewDevice(bfc.DeviceOptions{Base: base, VMM: true, Granularity: 2 << 20, Physical: 1 << 30, Reservation: 1 << 30})
		a, err := r.NewArena(0, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, device, nil)
		assert.NoError(t, err)
		return a
	}
	return &Pausing{r, arena(1 << 40), arena(1 << 41)}
}

// Transition pauses or resumes the second arena.
func (p *Pausing) Transition(kind trace.Kind, bytes int64, text string) {
	p.Add(trace.Event{Kind: kind, Arena: p.Tagged.ID, Addr: 5000, Requested: bytes, Provided: 700, Context: p.Strings.Intern(text)})
}

// Take allocates from an arena.
func (p *Pausing) Take(t testing.TB, a *Arena, size uint64) uint64 {
	t.Helper()
	addr, ok := a.Alloc(size, "")
	assert.Must(t, ok, "no memory for %d bytes", size)
	return addr
}
