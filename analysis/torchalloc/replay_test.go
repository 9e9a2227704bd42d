package torchalloc

import (
	"io"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// list gives events, whose contexts are indexes in texts.
type list struct {
	events []trace.Event
	texts  []string
	done   bool
}

func (l *list) Next() (*trace.Batch, error) {
	if l.done {
		return nil, io.EOF
	}
	l.done = true
	b := &trace.Batch{}
	for i := range l.events {
		e := &l.events[i]
		b.Seq, b.Time, b.Kind = append(b.Seq, int64(i)), append(b.Time, int64(i)), append(b.Kind, e.Kind)
		b.Device, b.Arena, b.Thread = append(b.Device, e.Device), append(b.Arena, e.Arena), append(b.Thread, e.Thread)
		b.Stream, b.Addr = append(b.Stream, e.Stream), append(b.Addr, e.Addr)
		b.Requested, b.Provided, b.Context = append(b.Requested, e.Requested), append(b.Provided, e.Provided), append(b.Context, e.Context)
	}
	return b, nil
}

func (l *list) add(kind trace.Kind, arena int32, addr, bytes int64, context string) {
	l.texts = append(l.texts, context)
	l.events = append(l.events, trace.Event{Kind: kind, Arena: arena, Addr: addr, Requested: bytes, Provided: bytes, Context: int32(len(l.texts) - 1)})
}

// main adds the main arena of a device of so many bytes.
func (l *list) main(total int64) *list {
	l.add(trace.KindArena, 0, 1<<40, total, "growth=double granularity=2097152 pool=0.0 tag= main=1")
	return l
}

// on sets the stream of the last event.
func (l *list) on(stream int64) { l.events[len(l.events)-1].Stream = stream }

// reserved replays the events natively and expandable, and returns both peaks in MiB.
func reserved(t *testing.T, l *list) (native, expandable, refused int64) {
	t.Helper()
	out, err := Run(l, Options{Settings: settings(), Version: Torch211, Text: func(c int32) string { return l.texts[c] }})
	assert.NoError(t, err)
	return out[0].Reserved[0] / mib, out[1].Reserved[0] / mib, out[0].Refused
}

// pooled adds a private pool with 40 MiB, all free.
func pooled(l *list) {
	l.add(trace.KindArena, 1, 1<<41, 0, "growth=needed granularity=2097152 pool=a.0 tag= main=0")
	l.add(trace.KindAlloc, 1, 1<<40, 40*mib, "")
	l.add(trace.KindFree, 1, 1<<40, 40*mib, "")
}

// TestByHand: segments of torch's sizes, by hand.
func TestByHand(t *testing.T) {
	tests := []struct {
		name                        string
		make                        func(l *list)
		native, expandable, refused int64
	}{
		{"a small request has 2 MiB, one of 1.5 MiB 20 or its pages", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 100, "")
			l.add(trace.KindAlloc, 0, 1<<41, 3*mib/2, "")
		}, 22, 22, 0},
		{"a free block is used again", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindAlloc, 0, 1<<41, 30*mib, "")
		}, 40, 40, 0},
		{"another stream has its own", func(l *list) {
			l.add(trace.KindArena, 1, 1<<41, 0, "growth=double granularity=2097152 pool=0.0 tag= main=0")
			l.on(32)
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindAlloc, 1, 1<<41, 40*mib, "")
		}, 80, 80, 0},
		{"a block waits for a stream that uses it", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindStreamUse, 0, 1<<40, 0, "")
			l.on(32)
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindAlloc, 0, 1<<41, 40*mib, "")
		}, 80, 80, 0},
		{"a block that waited is free again", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindStreamUse, 0, 1<<40, 0, "")
			l.on(32)
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindFreeDone, 0, 1<<40, 0, "")
			l.add(trace.KindAlloc, 0, 1<<41, 40*mib, "")
		}, 40, 40, 0},
		{"a private pool has its own", func(l *list) {
			l.add(trace.KindArena, 1, 1<<41, 0, "growth=needed granularity=2097152 pool=a.0 tag= main=0")
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindAlloc, 1, 1<<41, 40*mib, "")
		}, 80, 80, 0},
		{"empty_cache leaves a private pool that is in use", func(l *list) {
			pooled(l)
			l.add(trace.KindReclaim, trace.NoArena, 0, 0, "empty_cache")
			l.add(trace.KindAlloc, 0, 1<<41, 40*mib, "")
		}, 80, 80, 0},
		{"empty_cache releases a private pool that its job released", func(l *list) {
			pooled(l)
			l.add(trace.KindPoolRelease, 1, 0, 0, "")
			l.add(trace.KindReclaim, trace.NoArena, 0, 0, "empty_cache")
			l.add(trace.KindAlloc, 0, 1<<41, 40*mib, "")
		}, 40, 40, 0},
		{"empty_cache releases", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 40*mib, "")
			l.add(trace.KindFree, 0, 1<<40, 40*mib, "")
			l.add(trace.KindReclaim, trace.NoArena, 0, 0, "empty_cache")
			l.add(trace.KindAlloc, 0, 1<<41, 60*mib, "")
		}, 60, 60, 0},
		{"more than the device has is refused", func(l *list) {
			l.add(trace.KindAlloc, 0, 1<<40, 200*mib, "")
			l.add(trace.KindFree, 0, 1<<40, 200*mib, "")
			l.add(trace.KindAlloc, 0, 1<<40, 30*mib, "")
		}, 30, 40, 1}, // 30 MiB are two pages of 20
	}
	for _, test := range tests {
		l := (&list{}).main(100 * mib)
		test.make(l)
		native, expandable, refused := reserved(t, l)
		if native != test.native || expandable != test.expandable || refused != test.refused {
			t.Errorf("%s: %d and %d MiB, %d refused; want %d, %d, %d", test.name, native, expandable, refused, test.native, test.expandable, test.refused)
		}
	}
}

// TestDamaged: an event that contradicts those before is an error with its number.
func TestDamaged(t *testing.T) {
	l := &list{}
	l.add(trace.KindArena, 0, 1<<40, 0, "pool=x")
	_, err := Run(l, Options{Settings: settings(), Version: Torch211, Text: func(c int32) string { return l.texts[c] }})
	assert.That(t, err != nil && strings.Contains(err.Error(), `event 0: arena 0: pool="x"`), "a pool without numbers: %v", err)
	l = &list{}
	l.add(trace.KindArena, 0, 1<<40, 0, "")
	l.add(trace.KindAlloc, 0, 1<<40, mib, "")
	l.add(trace.KindAlloc, 0, 1<<40, mib, "")
	_, err = Run(l, Options{Settings: settings(), Version: Torch211, Text: func(c int32) string { return l.texts[c] }})
	assert.That(t, err != nil && strings.Contains(err.Error(), "event 2: a block at 0x10000000000, where one is live"), "two blocks at an address: %v", err)
}

// TestScatter: the slots of a scatter are all different, for each seed.
func TestScatter(t *testing.T) {
	for seed := range uint64(8) {
		s := newScatter(1<<50, seed+1)
		used := map[uint64]bool{}
		for range 1<<slotBits + 100 {
			addr, ok := s.Alloc(2 * mib)
			assert.Must(t, ok && addr != 0 && !used[addr], "seed %d: %#x after %d segments: %v", seed+1, addr, len(used), ok)
			used[addr] = true
		}
	}
}

// TestBand: which of two equal free blocks is taken decides whether a segment can be released for the next.
func TestBand(t *testing.T) {
	job := func() *list {
		l := (&list{}).main(1 << 40)
		for i := range int64(4) { // four segments of 20 MiB, of which half is used
			l.add(trace.KindAlloc, 0, 1<<40+i<<32, 9*mib, "")
			l.add(trace.KindAlloc, 0, 1<<41+i<<32, 9*mib, "")
		}
		l.add(trace.KindFree, 0, 1<<41+0<<32, 9*mib, "") // two equal free blocks, one in a segment that empties
		l.add(trace.KindFree, 0, 1<<41+3<<32, 9*mib, "")
		l.add(trace.KindAlloc, 0, 1<<42, 9*mib, "")
		l.add(trace.KindFree, 0, 1<<40+3<<32, 9*mib, "")
		l.add(trace.KindReclaim, trace.NoArena, 0, 0, "empty_cache")
		l.add(trace.KindAlloc, 0, 1<<43, 40*mib, "")
		return l
	}
	l := job()
	out, err := Run(l, Options{Settings: settings(), Version: Torch211, Placements: 8, Text: func(c int32) string { return l.texts[c] }})
	assert.NoError(t, err)
	if n := out[0]; n.Least[0] != 100*mib || n.Greatest[0] != 120*mib || n.Reserved[0] < n.Least[0] || n.Reserved[0] > n.Greatest[0] {
		t.Errorf("native: %d MiB, %d to %d; want from 100 to 120", n.Reserved[0]/mib, n.Least[0]/mib, n.Greatest[0]/mib)
	}
	if e := out[1]; e.Least[0] != e.Greatest[0] || e.Least[0] != e.Reserved[0] {
		t.Errorf("expandable: %d MiB, %d to %d; want no band", e.Reserved[0]/mib, e.Least[0]/mib, e.Greatest[0]/mib)
	}
}

// TestBandOfWaits: a block that another stream used can be free again before the next request, or only after the one behind it.
func TestBandOfWaits(t *testing.T) {
	l := (&list{}).main(1 << 40)
	l.add(trace.KindAlloc, 0, 1<<40, 30*mib, "")
	l.add(trace.KindStreamUse, 0, 1<<40, 0, "")
	l.on(5)
	l.add(trace.KindFree, 0, 1<<40, 30*mib, "")
	l.add(trace.KindAlloc, 0, 1<<41, 30*mib, "")
	l.add(trace.KindFreeDone, 0, 1<<40, 30*mib, "")
	l.add(trace.KindAlloc, 0, 1<<42, 30*mib, "")
	l.add(trace.KindIteration, trace.NoArena, 0, 0, "")
	l.add(trace.KindFree, 0, 1<<42, 30*mib, "")
	l.add(trace.KindAlloc, 0, 1<<43, 60*mib, "") // 30 MiB are free in each case
	out, err := Run(l, Options{Settings: settings(), Version: Torch211, Placements: 1, Text: func(c int32) string { return l.texts[c] }})
	assert.NoError(t, err)
	if n := out[0]; n.Reserved[0] != 120*mib || n.Least[0] != 120*mib || n.Greatest[0] != 150*mib {
		t.Errorf("native: %d MiB, %d to %d; want 120, to 150", n.Reserved[0]/mib, n.Least[0]/mib, n.Greatest[0]/mib)
	}
	l.done, l.events = false, l.events[:5] // up to the end of the wait
	if out, err = Run(l, Options{Settings: settings(), Version: Torch211, Placements: 1, Text: func(c int32) string { return l.texts[c] }}); err != nil {
		t.Fatal(err)
	}
	if n := out[0]; n.Reserved[0] != 60*mib || n.Least[0] != 30*mib || n.Greatest[0] != 60*mib || n.Refused != 0 {
		t.Errorf("native: %d MiB, %d to %d; want 60, from 30", n.Reserved[0]/mib, n.Least[0]/mib, n.Greatest[0]/mib)
	}
}

// TestVersionOf: the rules follow the torch of the recording.
func TestVersionOf(t *testing.T) {
	for text, want := range map[string]Version{"torch 2.6.0": Torch26, "torch 2.11.0+cu130": Torch211, "torch 2.13.0": Torch213} {
		v, ok := VersionOf([]string{"CUDA 13.0", text})
		assert.That(t, ok && v == want, "%s: %v, %v", text, v, ok)
	}
	for _, text := range []string{"jax 0.11", "torch unknown"} {
		v, ok := VersionOf([]string{text})
		assert.That(t, !ok, "%s: %v", text, v)
	}
}

// Calls of the driver are counted by steady iteration, from number 4 on.
func TestCalls(t *testing.T) {
	a := NewAllocator(AllocatorOptions{Settings: DefaultSettings(), Version: Torch211, Total: 8 << 30}, NewDriver(8<<30))
	j := &job{devices: []*device{{Allocator: a}}}
	for range 10 {
		for range 3 {
			b, err := a.Malloc(30<<20, 0)
			assert.NoError(t, err)
			a.Free(b)
			assert.NoError(t, a.EmptyCache())
		}
		j.mark(false)
	}
	maps, unmaps := j.calls.means()
	assert.That(t, maps == 3 && unmaps == 3, "%v maps and %v unmaps an iteration, want 3 of each", maps, unmaps)
	j.calls.ended = steadyFrom
	if maps, _ := j.calls.means(); maps != 0 {
		t.Errorf("%v maps without a steady iteration, want 0", maps)
	}
}
