package verify

import (
	"context"
	"fmt"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// fromRing verifies a process whose first events a ring dropped. The ring restates what was live and mapped. What else decides where
// a block lies follows from the events since the start: how much the next growth takes, how far an arena reaches whose last pages are
// unmapped, and which pages earlier iterations used. So no placement is replayed. Verified are the sequence, the checksums, and that
// each free ends a live block of the same size, from the restated blocks on.
func fromRing(ctx context.Context, p *dataset.Process) (*Result, error) {
	j := newJudge(p)
	j.replay = nil
	j.matched = newMatched(p.Dropped())
	if err := j.all(ctx); err != nil {
		return nil, err
	}
	return j.result(), nil
}

// chunk names a block: arenas of graph memory may have blocks at equal addresses.
type chunk struct {
	arena int32
	addr  int64
}

// matched follows which blocks are live, without a replay.
type matched struct {
	first  int64 // seq of the first event that is no restatement
	blocks map[chunk]trace.Event
	shared map[chunk]bool // blocks that another stream used; true once they were freed
	arenas map[int32]bool

	allocs, frees, growths int64
	wrong                  *Mismatch // the first event of the restatement that cannot be
}

// newMatched is before the event first, which the events before it restate.
func newMatched(first int64) *matched {
	return &matched{first: first, blocks: map[chunk]trace.Event{}, shared: map[chunk]bool{}, arenas: map[int32]bool{}}
}

// opening takes the restating rows at the start of a batch and returns the batch without them.
func (m *matched) opening(b *trace.Batch) *trace.Batch {
	n := 0
	for ; n < len(b.Seq) && b.Seq[n] < m.first; n++ {
		e := b.Event(n)
		if wrong := m.step(&e); wrong != nil && m.wrong == nil {
			m.wrong = wrong
		}
	}
	if n == 0 {
		return b
	}
	m.allocs, m.frees, m.growths = 0, 0, 0
	rest := b.Slice(n, b.Len())
	return &rest
}

// step takes one event.
func (m *matched) step(e *trace.Event) *Mismatch {
	if wrong := m.wrong; wrong != nil && e.Seq >= m.first {
		return wrong
	}
	at := chunk{e.Arena, e.Addr}
	switch e.Kind {
	case trace.KindArena:
		m.arenas[e.Arena] = true
	case trace.KindMap:
		m.growths++
	case trace.KindAlloc, trace.KindRestore:
		if _, live := m.blocks[at]; live {
			return atEvent(e, "an address that no live block has", describe(e))
		}
		m.blocks[at] = *e
		m.allocs++
	case trace.KindShrink:
		block, live := m.blocks[at]
		if !live {
			return atEvent(e, "the address of a live block", fmt.Sprintf("%#x", uint64(e.Addr)))
		}
		block.Provided = e.Provided
		m.blocks[at] = block
	case trace.KindStreamUse:
		if block, live := m.blocks[at]; live && e.Stream != block.Stream && !m.shared[at] {
			m.shared[at] = false
		}
	case trace.KindFree:
		return m.free(e, at)
	case trace.KindFreeDone:
		if !m.shared[at] {
			return atEvent(e, "a block that was freed and that another stream used", fmt.Sprintf("%#x", uint64(e.Addr)))
		}
		return m.end(e, at)
	case trace.KindPoolRelease:
		for c := range m.blocks {
			if c.arena == e.Arena {
				delete(m.blocks, c)
			}
		}
	}
	return nil
}

func (m *matched) free(e *trace.Event, at chunk) *Mismatch {
	freed, shared := m.shared[at]
	switch {
	case shared && freed:
		return atEvent(e, "no second free of a block whose free_done is pending", fmt.Sprintf("a free of %#x", uint64(e.Addr)))
	case shared:
		m.shared[at] = true
		m.frees++
		return nil
	}
	m.frees++
	return m.end(e, at)
}

// end ends a block.
func (m *matched) end(e *trace.Event, at chunk) *Mismatch {
	block, live := m.blocks[at]
	if !live {
		return atEvent(e, "the address of a live block in its arena", fmt.Sprintf("%#x", uint64(e.Addr)))
	}
	delete(m.blocks, at)
	delete(m.shared, at)
	return agree(e, bfc.Block{Addr: uint64(block.Addr), Size: uint64(block.Provided), Requested: uint64(block.Requested)})
}
