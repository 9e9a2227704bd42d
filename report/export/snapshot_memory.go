package export

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

// memory writes each change of one device's mapped memory and live blocks as entries of torch's allocator. A
// pause becomes frees and unmaps, a resume maps and allocs.
type memory struct {
	device  int32
	text    func(int32) string
	entries *entries

	live   *trace.Live
	arenas map[int32]*arenaState // all arenas of the device, also ended ones
	phases []int32               // by a block's slot: the innermost phase at its alloc, or noPhase
	free   int64                 // free device memory at the last reading, in bytes
}

type arenaState struct {
	stream    int64
	coalesces bool // adjacent mappings are one segment
	native    bool // of torch's own allocator, with torch's pools
	small     bool // its segments are those of small requests
	pool      [2]int64
}

func newArenaState(stream int64, of trace.Context) *arenaState {
	a := &arenaState{stream: stream, coalesces: of.Is("coalesces"), native: of.Get("allocator") != "", small: of.Get("class") == "small"}
	if first, second, ok := strings.Cut(of.Get("pool"), "."); ok && a.native {
		a.pool[0], _ = strconv.ParseInt(first, 16, 64) // 0 if it is no number
		a.pool[1], _ = strconv.ParseInt(second, 16, 64)
	}
	return a
}

// mappedRange is [from, to) of an arena.
type mappedRange struct {
	from, to int64
	arena    int32
}

func newMemory(device int32, text func(int32) string) *memory {
	return &memory{device: device, text: text, live: trace.NewLive(), arenas: map[int32]*arenaState{}}
}

func (m *memory) event(e *trace.Event) {
	switch {
	case e.Kind == trace.KindArena && e.Device == m.device && m.arenas[e.Arena] == nil:
		m.arenas[e.Arena] = newArenaState(e.Stream, trace.ParseContext(e.Kind, m.text(e.Context)))
	case e.Kind == trace.KindDeviceUsed && e.Device == m.device && e.Arena != trace.NoArena: // a reading without an arena may be older
		total, used := e.DeviceMemory()
		m.free = max(0, total-used)
	case e.Kind == trace.KindOOM && (e.Device == m.device || m.arenas[e.Arena] != nil):
		m.entries.entry("oom", cmp.Or(e.Provided, m.free), e.Requested, 0, e.Stream, &origin{e.Context, m.entries.phase()})
	}
	a := m.arenas[e.Arena]
	if a == nil {
		return
	}
	if e.Kind.Changes()&trace.ChangesMapped != 0 {
		m.mapping(e, a)
		return
	}
	outcome, b := m.live.Add(e)
	switch {
	case outcome == trace.Allocated || outcome == trace.Replaced:
		for len(m.phases) <= int(b.Slot) {
			m.phases = append(m.phases, noPhase)
		}
		m.phases[b.Slot] = m.entries.phase()
		m.block("alloc", b)
	case m.live.IsPaused(e.Arena): // the pause has freed its blocks already
	case outcome == trace.Pended:
		m.block("free_requested", b)
	case outcome == trace.Freed:
		m.freed(b)
	}
}

// block writes an entry about a block. The free of an imported recording may have frames of its own.
func (m *memory) block(action string, b *trace.Block) {
	origin := m.originOf(b)
	if own := m.entries.own(); own != nil && action != "alloc" {
		origin = *own
	}
	size := int64(0)
	if action == "alloc" && !m.arenas[b.Alloc.Arena].native {
		size = b.Alloc.Provided
	}
	m.entries.entry(action, b.Alloc.Addr, b.Alloc.Requested, size, b.Alloc.Stream, &origin)
}

func (m *memory) freed(b *trace.Block) {
	if !b.Pending {
		m.block("free_requested", b)
	}
	m.block("free_completed", b)
}

func (m *memory) originOf(b *trace.Block) origin {
	return origin{b.Alloc.Context, m.phases[b.Slot]}
}

// mapping takes an event that changes what an arena has mapped.
func (m *memory) mapping(e *trace.Event, a *arenaState) {
	if e.Kind == trace.KindPoolRelease && !m.live.IsPaused(e.Arena) { // the remaining blocks of an arena of graph memory end with it
		m.freeAll(e.Arena, a)
	}
	switch outcome, _ := m.live.Add(e); outcome {
	case trace.Mapped:
		m.entries.mapped(rangeOf(e), a)
	case trace.Unmapped:
		m.entries.unmapped(rangeOf(e), a)
	case trace.Paused:
		m.freeAll(e.Arena, a)
	case trace.Resumed:
		m.restoreAll(e.Arena, a)
	}
}

// freeAll writes that the blocks of an arena are freed and its memory is unmapped.
func (m *memory) freeAll(arena int32, a *arenaState) {
	for _, b := range m.live.BlocksOf(arena) {
		m.freed(b)
	}
	for _, r := range joined(m.live.Mapped(arena), a) {
		m.entries.unmapped(r, a)
	}
}

// restoreAll writes that the memory of an arena is mapped and its blocks are allocated.
func (m *memory) restoreAll(arena int32, a *arenaState) {
	for _, r := range joined(m.live.Mapped(arena), a) {
		m.entries.mapped(r, a)
	}
	for _, b := range m.live.BlocksOf(arena) {
		m.block("alloc", b)
		if b.Pending {
			m.block("free_requested", b)
		}
	}
}

func rangeOf(e *trace.Event) mappedRange {
	return mappedRange{e.Addr, e.Addr + e.Provided, e.Arena}
}

// joined returns the mapped ranges of an arena by address. If the arena coalesces, adjacent ones are one range.
func joined(mappings []trace.Event, a *arenaState) []mappedRange {
	var ranges []mappedRange
	for i := range mappings {
		r := rangeOf(&mappings[i])
		if n := len(ranges); a.coalesces && n > 0 && ranges[n-1].to == r.from {
			ranges[n-1].to = r.to
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// segments returns the ranges that are mapped now, by address.
func (m *memory) segments() []mappedRange {
	var ranges []mappedRange
	for arena, a := range m.arenas {
		if !m.live.IsPaused(arena) {
			ranges = append(ranges, joined(m.live.Mapped(arena), a)...)
		}
	}
	slices.SortFunc(ranges, func(a, b mappedRange) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.arena, b.arena)) })
	return ranges
}
