package trace

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// naiveLive has what Live has byte by byte and block by block.
type naiveLive struct {
	mapped  map[int64]int32 // arena of each byte, of paused arenas too
	paused  map[int32]bool
	blocks  map[int64]*naiveBlock
	aliased map[int64]int64 // offset in the store of each byte
}

type naiveBlock struct {
	requested, provided int64
	shared, pending     bool
}

// state is what can be compared.
type state struct {
	Reserved, Requested, Provided int64
	Blocks                        map[int64]bool // pending, by address
	Mapped                        map[int32][]int64
	Aliased                       map[int64]int64
	Paused                        []int32
}

func (n *naiveLive) state() state {
	s := state{Blocks: map[int64]bool{}, Mapped: map[int32][]int64{}, Aliased: n.aliased}
	for b, arena := range n.mapped {
		s.Mapped[arena] = append(s.Mapped[arena], b)
		if !n.paused[arena] {
			s.Reserved++
		}
	}
	for _, bytes := range s.Mapped {
		slices.Sort(bytes)
	}
	s.Paused = slices.Sorted(maps.Keys(n.paused))
	for addr, b := range n.blocks {
		s.Blocks[addr] = b.pending
		if !b.pending {
			s.Requested += b.requested
			s.Provided += b.provided
		}
	}
	return s
}

func stateOf(l *Live) state {
	s := state{Reserved: l.totals.Reserved, Requested: l.totals.Requested, Provided: l.totals.Provided, Blocks: map[int64]bool{}, Mapped: map[int32][]int64{}, Aliased: map[int64]int64{}}
	s.Paused = slices.Sorted(maps.Keys(l.paused))
	for b := range l.Blocks() {
		s.Blocks[b.Alloc.Addr] = b.Pending
	}
	for arena := range int32(4) {
		for _, e := range l.Mapped(arena) {
			for i := range e.Provided {
				if e.Kind == KindAlias {
					s.Aliased[e.Addr+i] = e.Requested + i
				} else {
					s.Mapped[arena] = append(s.Mapped[arena], e.Addr+i)
				}
			}
		}
	}
	return s
}

// drawEvent makes the next event of a process with arenas 0 and 1, and 3 in a range of graph memory.
func (n *naiveLive) drawEvent(t *rapid.T, seq int64) (e Event, ok bool) {
	arena := rapid.Int32Range(0, 1).Draw(t, "arena")
	addr := int64(arena)*100 + rapid.Int64Range(0, 20).Draw(t, "addr")
	bytes := rapid.Int64Range(1, 8).Draw(t, "bytes")
	e = Event{Seq: seq, Device: 0, Arena: arena, Addr: addr, Provided: bytes}
	block := n.blocks[addr]
	switch rapid.SampledFrom([]Kind{KindMap, KindUnmap, KindAlloc, KindFree, KindFreeDone, KindStreamUse, KindShrink, KindPause, KindResume, KindAlias, KindUnalias}).Draw(t, "kind") {
	case KindMap:
		e.Kind = KindMap
		for b := addr; b < addr+bytes; b++ {
			if _, taken := n.mapped[b]; taken || n.paused[arena] {
				return e, false
			}
		}
		for b := addr; b < addr+bytes; b++ {
			n.mapped[b] = arena
		}
	case KindUnmap:
		e.Kind = KindUnmap
		for b := addr; b < addr+bytes; b++ {
			delete(n.mapped, b)
		}
	case KindAlloc:
		e.Kind, e.Requested = KindAlloc, bytes
		if block != nil {
			return e, false
		}
		n.blocks[addr] = &naiveBlock{requested: bytes, provided: bytes}
	case KindShrink:
		if block == nil || block.pending || block.provided == 1 {
			return e, false
		}
		e.Kind, e.Requested = KindShrink, block.requested
		e.Provided = rapid.Int64Range(1, block.provided-1).Draw(t, "what is left")
		block.provided = e.Provided
	case KindFree:
		e.Kind = KindFree
		if block == nil || block.pending {
			return e, false
		}
		if block.pending = block.shared; !block.shared {
			delete(n.blocks, addr)
		}
	case KindFreeDone:
		e.Kind = KindFreeDone
		if block == nil || !block.pending {
			return e, false
		}
		delete(n.blocks, addr)
	case KindStreamUse:
		e.Kind, e.Stream = KindStreamUse, rapid.Int64Range(0, 1).Draw(t, "stream")
		if block == nil || block.pending {
			return e, false
		}
		block.shared = block.shared || e.Stream != 0
	case KindPause, KindResume:
		e.Kind, e.Addr, e.Provided = KindPause, 0, 0
		for _, of := range n.mapped {
			if of == arena {
				e.Requested++
			}
		}
		failed := e.Requested > 0 && rapid.Bool().Draw(t, "failed")
		if failed {
			e.Requested = 0
		}
		if n.paused[arena] {
			e.Kind = KindResume
		}
		switch {
		case failed:
		case n.paused[arena]:
			delete(n.paused, arena)
		default:
			n.paused[arena] = true
		}
	case KindAlias, KindUnalias:
		e.Kind, e.Arena, e.Addr, e.Requested = KindAlias, 3, 1000+addr, addr
		if rapid.Bool().Draw(t, "unalias") {
			e.Kind = KindUnalias
		}
		for b := e.Addr; b < e.Addr+bytes; b++ {
			delete(n.aliased, b)
			if e.Kind == KindAlias {
				n.aliased[b] = b - 1000
			}
		}
	}
	return e, true
}

// TestLiveIsWhatEachByteIs: after each event Live has what a model of single bytes has, and so has a Live
// that only had its rows.
func TestLiveIsWhatEachByteIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &naiveLive{mapped: map[int64]int32{}, paused: map[int32]bool{}, blocks: map[int64]*naiveBlock{}, aliased: map[int64]int64{}}
		l := NewLive()
		for seq := range rapid.Int64Range(0, 40).Draw(t, "events") {
			e, ok := n.drawEvent(t, seq)
			if !ok {
				continue
			}
			l.Add(&e)
			diff := gocmp.Diff(n.state(), stateOf(l))
			assert.Must(t, diff == "", "after %v of %d bytes at %d of arena %d (-want +got):\n%s", e.Kind, e.Provided, e.Addr, e.Arena, diff)
			got, want := l.ReservedOn(0), n.state().Reserved
			assert.Must(t, got == want, "%d bytes reserved on the device, want %d", got, want)
		}
		again := NewLive()
		for _, e := range slices.SortedFunc(slices.Values(l.Rows()), func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) }) {
			again.Add(&e)
		}
		diff := gocmp.Diff(n.state(), stateOf(again))
		assert.Must(t, diff == "", "restated (-want +got):\n%s", diff)
	})
}

// TestSlotsOfBlocksAreUsedAgain: what a reader keeps by slot is bounded by what is live.
func TestSlotsOfBlocksAreUsedAgain(t *testing.T) {
	l := NewLive()
	for i := range int64(1000) {
		outcome, b := l.Add(&Event{Kind: KindAlloc, Addr: i, Requested: 1, Provided: 1})
		assert.Must(t, outcome == Allocated && b.Slot <= 3, "alloc %d: outcome %d, slot %d", i, outcome, b.Slot)
		if outcome, freed := l.Add(&Event{Kind: KindFree, Addr: i - 3}); i >= 3 && (outcome != Freed || freed.Alloc.Addr != i-3) {
			t.Fatalf("free %d: outcome %d, %+v", i-3, outcome, freed)
		}
	}
	outcome, b := l.Add(&Event{Kind: KindAlloc, Addr: 999})
	assert.That(t, outcome == Replaced && b.Alloc.Requested == 0, "alloc over a live block: outcome %d, %+v", outcome, b)
	if outcome, b := l.Add(&Event{Kind: KindFree, Addr: 5}); outcome != Unchanged || b != nil {
		t.Errorf("free of no block: outcome %d, %+v", outcome, b)
	}
}

// TestReleaseOfARange: what is left in a range of graph memory ends with its arena, and is not restated.
func TestReleaseOfARange(t *testing.T) {
	l := NewLive()
	l.Add(&Event{Kind: KindArena, Arena: 1})
	l.Add(&Event{Kind: KindAlias, Arena: 1, Addr: 100, Provided: 10})
	l.Add(&Event{Kind: KindAlloc, Arena: 1, Addr: 100, Requested: 5, Provided: 5})
	l.Add(&Event{Kind: KindAlloc, Arena: 0, Addr: 100, Requested: 3, Provided: 3}) // of a native allocator, in the same place
	l.Add(&Event{Kind: KindPoolRelease, Arena: 1})
	rows := l.Rows()
	assert.That(t, len(rows) == 1 && rows[0].Requested == 3, "restated: %+v", rows)
	got := l.Totals().Requested
	assert.That(t, got == 3, "%d bytes requested, want 3", got)
}
