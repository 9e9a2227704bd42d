package export

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/trace"
)

// memory follows what is mapped and live on one device, and tells of every change in terms of
// torch's allocator: what a pause takes goes, what a resume brings back comes.
type memory struct {
	device int32
	text   func(int32) string
	told   *entries

	arenas map[int32]*arenaState
	live   map[int64]*liveBlock // by address; those freed and pending too
	mapped []mappedRange        // by address, disjoint, adjacent ones of an arena that coalesces joined
	free   int64                // what the device had left when it was last asked
}

type arenaState struct {
	stream    int64
	coalesces bool          // adjacent mappings are one segment
	paused    bool          // its mapped ranges are in gone
	gone      []mappedRange // to come back at the resume
}

type liveBlock struct {
	requested, provided int64
	stream              int64
	arena               int32
	context             int32
	phase               int32 // context of the innermost phase, -1 for none
	shared              bool  // another stream uses it: its free waits
	pending             bool  // freed, and waiting
}

// mappedRange is [from, to) of an arena.
type mappedRange struct {
	from, to int64
	arena    int32
}

func newMemory(device int32, text func(int32) string) *memory {
	return &memory{device: device, text: text, arenas: map[int32]*arenaState{}, live: map[int64]*liveBlock{}}
}

func (m *memory) event(e *trace.Event) {
	if e.Kind == trace.KindArena && e.Device == m.device {
		if m.arenas[e.Arena] == nil {
			m.arenas[e.Arena] = &arenaState{stream: e.Stream, coalesces: trace.ParseContext(e.Kind, m.text(e.Context)).Is("coalesces")}
		}
		return
	}
	if e.Kind == trace.KindDeviceUsed && e.Device == m.device && e.Arena != trace.NoArena { // else it is of some time before
		total, used := e.DeviceMemory()
		m.free = max(0, total-used)
		return
	}
	a := m.arenas[e.Arena]
	if a == nil {
		if e.Kind == trace.KindOOM && e.Device == m.device {
			m.told.failed(e, m.free)
		}
		return
	}
	switch e.Kind {
	case trace.KindAlloc, trace.KindRestore:
		b := &liveBlock{requested: e.Requested, provided: e.Provided, stream: e.Stream, arena: e.Arena, context: e.Context}
		m.live[e.Addr] = b
		m.told.allocated(e.Addr, b)
	case trace.KindStreamUse:
		if b := m.live[e.Addr]; b != nil && e.Stream != b.stream {
			b.shared = true
		}
	case trace.KindFree:
		m.freed(e.Addr, a)
	case trace.KindFreeDone:
		m.freeDone(e.Addr, a)
	case trace.KindMap, trace.KindAlias: // blocks of a graph memory lie where its store is seen
		m.mapRange(mappedRange{e.Addr, e.Addr + e.Provided, e.Arena}, a)
	case trace.KindUnmap, trace.KindUnalias:
		m.unmapRange(mappedRange{e.Addr, e.Addr + e.Provided, e.Arena}, a)
	case trace.KindPause:
		m.pause(e, a)
	case trace.KindResume:
		m.resume(e, a)
	case trace.KindPoolRelease:
		m.release(e.Arena, a)
	case trace.KindOOM:
		m.told.failed(e, m.free)
	}
}

// release ends an arena. One of a graph memory may leave ranges and blocks, which end with it.
func (m *memory) release(arena int32, a *arenaState) {
	for _, addr := range m.blocksOf(arena) {
		b := m.live[addr]
		if !b.pending && !a.paused {
			m.told.freeRequested(addr, b)
		}
		m.gone(addr, b, a)
	}
	for _, r := range m.mapped {
		if r.arena == arena {
			m.told.unmapped(r, a)
		}
	}
	m.mapped = slices.DeleteFunc(m.mapped, func(r mappedRange) bool { return r.arena == arena })
	delete(m.arenas, arena)
}

func (m *memory) freed(addr int64, a *arenaState) {
	b := m.live[addr]
	if b == nil || b.pending {
		return
	}
	if !a.paused {
		m.told.freeRequested(addr, b)
	}
	if b.shared {
		b.pending = true
		return
	}
	m.gone(addr, b, a)
}

func (m *memory) freeDone(addr int64, a *arenaState) {
	if b := m.live[addr]; b != nil && b.pending {
		m.gone(addr, b, a)
	}
}

func (m *memory) gone(addr int64, b *liveBlock, a *arenaState) {
	if !a.paused {
		m.told.freeCompleted(addr, b)
	}
	delete(m.live, addr)
}

func (m *memory) mapRange(r mappedRange, a *arenaState) {
	m.told.mapped(r, a)
	at, _ := slices.BinarySearchFunc(m.mapped, r.from, func(have mappedRange, from int64) int { return cmp.Compare(have.from, from) })
	m.mapped = slices.Insert(m.mapped, at, r)
	if !a.coalesces {
		return
	}
	if at+1 < len(m.mapped) && m.mapped[at+1].arena == r.arena && m.mapped[at+1].from == r.to {
		m.mapped[at].to = m.mapped[at+1].to
		m.mapped = slices.Delete(m.mapped, at+1, at+2)
	}
	if at > 0 && m.mapped[at-1].arena == r.arena && m.mapped[at-1].to == r.from {
		m.mapped[at-1].to = m.mapped[at].to
		m.mapped = slices.Delete(m.mapped, at, at+1)
	}
}

func (m *memory) unmapRange(r mappedRange, a *arenaState) {
	if a.paused {
		a.gone = without(a.gone, r)
		return
	}
	m.told.unmapped(r, a)
	m.mapped = without(m.mapped, r)
}

// without is what is left of ranges without those in cut.
func without(ranges []mappedRange, cut mappedRange) []mappedRange {
	var left []mappedRange
	for _, r := range ranges {
		if r.to <= cut.from || r.from >= cut.to {
			left = append(left, r)
			continue
		}
		if r.from < cut.from {
			left = append(left, mappedRange{r.from, cut.from, r.arena})
		}
		if r.to > cut.to {
			left = append(left, mappedRange{cut.to, r.to, r.arena})
		}
	}
	return left
}

// pause takes an arena's memory; one of 0 bytes failed.
func (m *memory) pause(e *trace.Event, a *arenaState) {
	if e.Requested == 0 || a.paused {
		return
	}
	for _, addr := range m.blocksOf(e.Arena) {
		b := m.live[addr]
		if !b.pending {
			m.told.freeRequested(addr, b)
		}
		m.told.freeCompleted(addr, b)
	}
	for _, r := range m.mapped {
		if r.arena == e.Arena {
			a.gone = append(a.gone, r)
			m.told.unmapped(r, a)
		}
	}
	m.mapped = slices.DeleteFunc(m.mapped, func(r mappedRange) bool { return r.arena == e.Arena })
	a.paused = true
}

func (m *memory) resume(e *trace.Event, a *arenaState) {
	if e.Requested == 0 || !a.paused {
		return
	}
	a.paused = false
	for _, r := range a.gone {
		m.mapRange(r, a)
	}
	a.gone = nil
	for _, addr := range m.blocksOf(e.Arena) {
		b := m.live[addr]
		m.told.returned(addr, b)
		if b.pending {
			m.told.freeRequested(addr, b)
		}
	}
}

// blocksOf are the addresses of an arena's blocks, ascending.
func (m *memory) blocksOf(arena int32) []int64 {
	var addrs []int64
	for addr, b := range m.live {
		if b.arena == arena {
			addrs = append(addrs, addr)
		}
	}
	slices.Sort(addrs)
	return addrs
}
