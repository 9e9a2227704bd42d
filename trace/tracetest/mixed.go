package tracetest

import (
	"strings"

	"github.com/memprof/memprof/trace"
)

// Mixed returns a short process with an event of nearly every kind: an arena that grows, with phases, stacks
// and labels; one of a tag, which is paused; one of a pool for captures; a graph memory with
// two shapes; a KV cache; memory of other libraries; readings of the device. The events fit each
// other. Texts have NAME in place of a job's own words.
func Mixed() Process {
	m := &mixed{texts: []string{""}, ids: map[string]int32{"": 0}}
	const base, tagged, pool, store, first, second = 1 << 40, 2 << 40, 3 << 40, 4 << 40, 5 << 40, 6 << 40
	const mib = 1 << 20
	options := "growth=double\theadroom=0\tfraction=0\tgc=0\tgranularity=2097152\tcoalesces=1\t"
	m.add(trace.Event{Kind: trace.KindDeviceUsed, Requested: 80 << 30, Provided: 1 << 30, Arena: trace.NoArena}, "")
	m.add(trace.Event{Kind: trace.KindOverhead, Arena: trace.NoArena, Provided: 500 * mib}, "what=context")
	m.arena(0, base, options+"pool=0\ttag=\tmain=1")
	m.arena(1, tagged, options+"pool=0\ttag=NAME")
	m.arena(2, pool, options+"pool=NAME\ttag=")
	m.arena(3, store, options+"pool=0\tgraph_memory=1\tstore=1")
	m.arena(4, first, options+"pool=s1\tgraph_memory=1\tshape=NAME")
	m.arena(5, second, options+"pool=s2\tgraph_memory=1\tshape=NAME 2")
	m.mark(trace.KindStack, 1, 0, "main (NAME.py:9)")
	m.mark(trace.KindStack, 2, 1, "NAME (/src/NAME.py:5)")
	m.mark(trace.KindCaptureBegin, 1, 0, "pool=NAME\tname=NAME")
	m.memory(trace.KindMap, 2, pool, 2*mib)
	m.block(trace.KindAlloc, 2, pool, 1000, "module=NAME")
	m.mark(trace.KindCaptureEnd, 0, 0, "")
	m.memory(trace.KindMap, 3, store, 4*mib)
	m.add(trace.Event{Kind: trace.KindAlias, Arena: 4, Addr: first, Provided: 4 * mib}, "")
	m.add(trace.Event{Kind: trace.KindAlias, Arena: 5, Addr: second, Provided: 2 * mib}, "")
	m.block(trace.KindAlloc, 4, first, 5000, "module=NAME")
	m.block(trace.KindAlloc, 5, second, 6000, "module=NAME")
	m.kv(trace.KindKVCache, 0, 96, 100, "layout=paged\tblock=16\tnull=1\tengine=NAME\tname=NAME\tmodel=NAME")
	for iteration := range int64(4) {
		m.mark(trace.KindPhaseBegin, 0, 0, "forward")
		m.mark(trace.KindPhaseBegin, 0, 0, "NAME\tuses=NAME")
		if iteration == 0 {
			m.memory(trace.KindMap, 0, base, 8*mib)
			m.memory(trace.KindMap, 1, tagged, 4*mib)
			m.block(trace.KindAlloc, 1, tagged, 3*mib, "module=NAME")
			m.block(trace.KindAlloc, 0, base+4*mib, 777, "module=NAME.weight\tstack=2")
		}
		m.block(trace.KindAlloc, 0, base, 2*mib, "module=NAME.fc\tstack=2")
		m.add(trace.Event{Kind: trace.KindLabel, Addr: base}, "holds=NAME")
		m.block(trace.KindAlloc, 0, base+2*mib, mib, "NAME")
		m.add(trace.Event{Kind: trace.KindStreamUse, Addr: base + 2*mib, Stream: 32}, "")
		m.mark(trace.KindPhaseEnd, 0, 0, "NAME\tuses=NAME")
		m.mark(trace.KindPhaseEnd, 0, 0, "forward")
		m.add(trace.Event{Kind: trace.KindPause, Arena: 1, Requested: 4 * mib, Addr: 5000}, "tag=NAME")
		m.block(trace.KindFree, 0, base+2*mib, mib, "")
		m.block(trace.KindFree, 0, base, 2*mib, "")
		m.add(trace.Event{Kind: trace.KindResume, Arena: 1, Requested: 4 * mib, Addr: 5000}, "tag=NAME")
		m.block(trace.KindFreeDone, 0, base+2*mib, mib, "")
		m.kv(trace.KindKVReserve, iteration, 1+iteration, 16, "prompt=9")
		m.kv(trace.KindKVAppend, iteration, 9, 0, "")
		m.mark(trace.KindIteration, iteration, 0, "NAME")
	}
	m.kv(trace.KindKVFree, 0, 0, 0, "")
	m.add(trace.Event{Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Addr: 99, Provided: 64 * mib}, "library=NAME\tcall=NAME")
	m.add(trace.Event{Kind: trace.KindGrowFailed, Requested: 1 << 40}, "")
	m.add(trace.Event{Kind: trace.KindOOM, Requested: 1 << 40}, "module=NAME")
	m.add(trace.Event{Kind: trace.KindStatistics, Requested: 100, Provided: 200}, "")
	m.add(trace.Event{Kind: trace.KindExternalFree, Arena: trace.NoArena, Addr: 99}, "")
	m.block(trace.KindFree, 4, first, 5000, "")
	m.add(trace.Event{Kind: trace.KindUnalias, Arena: 4, Addr: first, Provided: 4 * mib}, "")
	m.add(trace.Event{Kind: trace.KindPoolRelease, Arena: 4, Addr: first}, "")
	m.block(trace.KindFree, 2, pool, 1000, "")
	m.memory(trace.KindUnmap, 2, pool, 2*mib)
	m.add(trace.Event{Kind: trace.KindPoolRelease, Arena: 2, Addr: pool}, "")
	m.short(options)
	return Process{Events: m.events, Texts: m.texts}
}

// short has two arenas with growth pages whose device is short of memory: one takes a page of the other.
func (m *mixed) short(options string) {
	const taker, source, mib = 7 << 40, 8 << 40, 1 << 20
	options = strings.Replace(options, "double", "pages", 1) + "pool=0\ttag=\t"
	m.arena(6, taker, options+"takes=1")
	m.arena(7, source, options+"gives=1")
	m.mark(trace.KindPoolBegin, 0, 0, "pool=NAME")
	m.mark(trace.KindPoolEnd, 0, 0, "pool=NAME")
	m.memory(trace.KindMap, 7, source, 4*mib)
	m.block(trace.KindAlloc, 7, source, 4*mib, "module=NAME")
	m.add(trace.Event{Kind: trace.KindRegister, Arena: 7, Addr: source, Provided: 2 * mib}, "by=NAME")
	m.block(trace.KindFree, 7, source, 4*mib, "")
	m.add(trace.Event{Kind: trace.KindTake, Arena: 6, Requested: 2 * mib, Provided: 1}, "arena=7")
	m.memory(trace.KindUnmap, 7, source+2*mib, 2*mib)
	m.memory(trace.KindMap, 6, taker, 2*mib)
	m.add(trace.Event{Kind: trace.KindAlloc, Arena: 6, Addr: taker, Requested: mib, Provided: 2 * mib}, "module=NAME")
	m.add(trace.Event{Kind: trace.KindShortage, Arena: 6}, "")
	m.add(trace.Event{Kind: trace.KindShrink, Arena: 6, Addr: taker, Requested: mib, Provided: mib}, "")
	m.add(trace.Event{Kind: trace.KindMapFailed, Arena: 6, Addr: taker + 2*mib, Requested: 2 * mib}, "")
	m.add(trace.Event{Kind: trace.KindReclaim, Arena: 6, Requested: 2 * mib}, "request")
	m.add(trace.Event{Kind: trace.KindDeregister, Addr: source, Provided: 2 * mib}, "")
	m.add(trace.Event{Kind: trace.KindCheckpoint, Arena: 6, Requested: 1, Provided: mib}, "pool=NAME")
	m.kv(trace.KindKVShare, 1, 2, 16, "position=0")
}

type mixed struct {
	events []trace.Event
	texts  []string
	ids    map[string]int32
}

func (m *mixed) add(e trace.Event, context string) {
	context = strings.TrimSuffix(context, "\t")
	id, known := m.ids[context]
	if !known {
		id = int32(len(m.texts))
		m.ids[context] = id
		m.texts = append(m.texts, context)
	}
	e.Seq, e.Time, e.Thread, e.Context = int64(len(m.events)), int64(len(m.events)+1)*256_000, 7, id
	m.events = append(m.events, e)
}

func (m *mixed) arena(id int32, base int64, options string) {
	m.add(trace.Event{Kind: trace.KindArena, Arena: id, Addr: base, Requested: -1, Provided: 1 << 30}, options)
}

func (m *mixed) mark(kind trace.Kind, requested, provided int64, context string) {
	m.add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: requested, Provided: provided}, context)
}

func (m *mixed) memory(kind trace.Kind, arena int32, addr, bytes int64) {
	m.add(trace.Event{Kind: kind, Arena: arena, Addr: addr, Requested: bytes, Provided: bytes}, "")
}

// block adds an event of a block of `requested` bytes, rounded up to 256.
func (m *mixed) block(kind trace.Kind, arena int32, addr, requested int64, context string) {
	m.add(trace.Event{Kind: kind, Arena: arena, Addr: addr, Requested: requested, Provided: (requested + 255) &^ 255}, context)
}

func (m *mixed) kv(kind trace.Kind, sequence, requested, provided int64, context string) {
	e := trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Stream: 1, Addr: sequence, Requested: requested, Provided: provided}
	if kind == trace.KindKVCache {
		e.Device = 0
	}
	m.add(e, context)
}
