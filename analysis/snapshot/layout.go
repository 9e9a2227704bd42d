package snapshot

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// layout follows the mapped memory and the blocks of a device and writes them as events.
type layout struct {
	w        *dataset.Writer
	out      *appender // of the events
	device   int32
	settings torchalloc.Settings
	base     int64 // of the clock, µs
	now      int64 // ns since it
	wrote    int64 // time of the last event

	arenas   map[arenaKey]int32
	memory   table[held]
	blocks   table[used]
	stacks   *stacks
	texts    []string            // which metadata numbers
	contexts map[[2]uint64]int32 // of stacks and metadata
	left     *int64              // how many more there may be
	written  map[int64]int64     // the device's numbers of stacks
	marks    *marks
	grads    gradients
	phase    string // that the frames of requests say, within those of marks; "" for none

	next      uint64 // where the block behind an opening one will begin; 0 if that is not known
	waiting   *used  // freeing, if it is a free that the next entry may complete
	freeing   used
	older     bool            // the block at hand existed before the first entry
	unproven  map[uint64]bool // older blocks that may be larger, by address
	opening   int64           // events before those of the first entry
	exact     int64           // the event behind the free of the last unproven block, and its time in ns
	exactTime int64
	halves    bool // a free is both a request and its completion
	entries   int64
	pools     map[int64][2]uint64 // see opening
	emptied   map[int64]bool      // see opening
	asked     map[int64]uint64    // see opening
	pooled    uint64              // pools that nobody names, see poolOf
	emptying  bool                // the last entries release what an emptied cache has
	sized     bool                // see opening
	freers    bool                // see opening
	odd       int64
}

type arenaKey struct {
	stream uint64
	class  class
}

// held is a mapping up to an address.
type held struct {
	to    uint64
	arena int32
	class class
}

func heldTo(h *held) uint64 { return h.to }

// used is a block that is live or pending.
type used struct {
	addr, size, requested uint64
	stream                uint64
	stack                 int64 // of the request
	arena                 int32
	role                  role
	older, pending        bool
	alone                 bool  // no segment of the file has it, so its memory is mapped while it lives
	freed                 int64 // time of the waiting free, ns
	freeStack             int64
	freer                 int32 // context of the waiting free, where it has a stack of its own
}

func (l *layout) write(e trace.Event) error {
	e.Time, e.Device, l.wrote = l.now, l.device, l.now
	return l.out.append(&e)
}

// arenaOf returns the arena of a stream and class, and creates it if needed.
func (l *layout) arenaOf(key arenaKey) (int32, error) {
	key.class.small = key.class.small && !l.sized // memprof's arenas serve requests of all sizes
	if number, known := l.arenas[key]; known {
		return number, nil
	}
	number := int32(len(l.arenas))
	l.arenas[key] = number
	size, joins, main := "large", "0", "0"
	if key.class.small {
		size = "small"
	}
	if key.class.expandable {
		joins = "1"
	}
	if key.stream == 0 && key.class.pool == [2]uint64{} {
		main = "1"
	}
	text := trace.FormatContext(
		trace.Field{Name: "allocator", Value: "native"}, trace.Field{Name: "coalesces", Value: joins},
		trace.Field{Name: "pool", Value: fmt.Sprintf("%x.%x", key.class.pool[0], key.class.pool[1])},
		trace.Field{Name: "main", Value: main}, trace.Field{Name: "class", Value: size})
	return number, l.write(trace.Event{Kind: trace.KindArena, Arena: number, Stream: int64(key.stream), Context: l.w.Intern(text)})
}

// take maps memory. Expandable memory joins adjacent mappings.
func (l *layout) take(from, to, stream uint64, c class, stack int64) error {
	arena, err := l.arenaOf(arenaKey{stream, c})
	if err != nil {
		return err
	}
	if len(l.memory.between(from, to, heldTo)) > 0 {
		l.odd++
		return nil
	}
	l.memory.set(from, held{to, arena, c})
	context, err := l.context(stack, 0)
	if err != nil {
		return err
	}
	size := int64(to - from)
	return l.write(trace.Event{Kind: trace.KindMap, Arena: arena, Addr: int64(from), Requested: size, Provided: size, Context: context})
}

// give unmaps memory. It must contain no block.
func (l *layout) give(from, to uint64, stack int64) error {
	if end, behind := l.around(from); end > from || behind < to {
		l.odd++
		return nil
	}
	context, err := l.context(stack, 0)
	if err != nil {
		return err
	}
	var unmapped trace.Event
	for _, start := range l.memory.between(from, to, heldTo) {
		m := *l.memory.get(start)
		cut, end := max(start, from), min(m.to, to)
		l.memory.delete(start)
		if start < cut {
			l.memory.set(start, held{cut, m.arena, m.class})
		}
		if m.to > end {
			l.memory.set(end, held{m.to, m.arena, m.class})
		}
		// Torch unmaps at once what it mapped in several steps.
		if unmapped.Provided > 0 && unmapped.Arena == m.arena && unmapped.Addr+unmapped.Provided == int64(cut) {
			unmapped.Provided += int64(end - cut)
			continue
		}
		if err := l.writeUnmap(unmapped); err != nil {
			return err
		}
		unmapped = trace.Event{Kind: trace.KindUnmap, Arena: m.arena, Addr: int64(cut), Provided: int64(end - cut), Context: context}
	}
	return l.writeUnmap(unmapped)
}

// writeUnmap writes an unmap, if there is one.
func (l *layout) writeUnmap(e trace.Event) error {
	if e.Provided == 0 {
		return nil
	}
	return l.write(e)
}

// memoryAt is the mapping with an address, nil where none has it. It is valid until the mappings change.
func (l *layout) memoryAt(addr uint64) *held {
	if _, m := l.memory.upTo(addr); m != nil && addr < m.to {
		return m
	}
	return nil
}

// reaches says whether a mapping, with what joins it, reaches an address. The class of pages is
// in part a guess (see classOf), so that pages of two classes join.
func (l *layout) reaches(m *held, to uint64) bool {
	for m.class.expandable && m.to < to {
		next := l.memory.get(m.to)
		if next == nil || !next.class.expandable {
			break
		}
		m = next
	}
	return to <= m.to
}

// around returns the end of the block that begins at an address or before it, and the begin of the one behind
// it; 0 and the greatest number if there is none.
func (l *layout) around(addr uint64) (end, behind uint64) {
	if _, b := l.blocks.upTo(addr); b != nil {
		end = b.addr + b.size
	}
	if _, b := l.blocks.from(addr + 1); b != nil {
		return end, b.addr
	}
	return end, math.MaxUint64
}

// sizeOf is the size of the block that serves n bytes at an address of a mapping, with the next block at behind.
func (l *layout) sizeOf(addr, n, behind uint64, m *held) uint64 {
	size := l.settings.Round(max(n, 1))
	if m.class.small || m.class.expandable {
		return size
	}
	behind = min(behind, m.to)
	if l.next > 0 {
		behind = min(behind, l.next)
	}
	rest := behind - min(behind, addr+size)
	if rest <= smallRequest || size >= l.settings.MaxSplit {
		size += rest
	} else if l.older {
		l.unproven[addr] = true
	}
	return size
}

// begin makes a block live. If size is 0, it follows from torch's rules.
func (l *layout) begin(addr, size, n, stream uint64, stack int64, metadata uint64) error {
	m := l.memoryAt(addr)
	alone := m == nil // the job recorded no entries of segments (skip_actions), or torch did not write the file
	if alone {
		size = cmp.Or(size, l.settings.Round(max(n, 1)))
		if err := l.take(addr, addr+size, stream, class{small: size <= smallRequest}, 0); err != nil {
			return err
		}
		if m = l.memory.get(addr); m == nil {
			return nil
		}
	}
	end, behind := l.around(addr)
	if size == 0 {
		size = l.sizeOf(addr, n, behind, m)
	}
	if addr < end || behind < addr+size || !l.reaches(m, addr+size) {
		l.odd++
		return nil
	}
	context, err := l.context(stack, metadata)
	if err != nil {
		return err
	}
	r := noRole
	if stack > 0 || !l.older { // nobody kept the stack of an older block without one
		r = l.stacks.role(stack)
	}
	if !l.older {
		if err := l.enter(r); err != nil {
			return err
		}
	}
	n = min(n, size)
	b := used{addr: addr, size: size, requested: n, stream: stream, stack: stack, arena: m.arena, role: r, older: l.older, alone: alone}
	l.blocks.set(addr, b)
	l.grads.count(&b, l.settings.Round(n), 1)
	e := trace.Event{Kind: trace.KindAlloc, Arena: m.arena, Stream: int64(stream), Addr: int64(addr), Requested: int64(n), Provided: int64(size), Context: context}
	if err := l.write(e); err != nil {
		return err
	}
	return l.label(addr, r)
}

func (l *layout) event(kind trace.Kind, b *used) trace.Event {
	return trace.Event{Kind: kind, Arena: b.arena, Stream: int64(b.stream), Addr: int64(b.addr), Requested: int64(b.requested), Provided: int64(b.size), Context: b.freer}
}

// noStack is the context of a free without a stack, of a block whose request has one.
const noStack = "stack=0"

// freedBy sets the context of a free whose stack is not that of the request.
func (l *layout) freedBy(b *used, stack int64) (err error) {
	switch {
	case stack == b.stack:
		b.freer = 0
	case stack == 0:
		b.freer = l.w.Intern(noStack)
	default:
		b.freer, err = l.context(stack, 0)
	}
	return err
}

// finished writes the waiting free: a completed one if final, otherwise a pending one that other streams delay.
func (l *layout) finished(final bool) error {
	b := l.waiting
	if b == nil {
		return nil
	}
	l.waiting = nil
	// The free has the time of its request, but for marks that came between.
	now := l.now
	l.now = max(b.freed, l.wrote)
	defer func() { l.now = now }()
	if final {
		return l.ended(trace.KindFree, b)
	}
	b.pending = true
	l.blocks.set(b.addr, *b)
	use := trace.Event{Kind: trace.KindStreamUse, Arena: b.arena, Stream: -1, Addr: int64(b.addr)}
	if err := l.write(use); err != nil {
		return err
	}
	return l.write(l.event(trace.KindFree, b))
}

// ended writes the end of a block, and unmaps the memory that only this block had.
func (l *layout) ended(kind trace.Kind, b *used) error {
	l.blocks.delete(b.addr)
	l.grads.count(b, l.settings.Round(b.requested), -1)
	if l.unproven[b.addr] {
		delete(l.unproven, b.addr)
		l.exact, l.exactTime = l.out.next+1, l.now
	}
	if err := l.write(l.event(kind, b)); err != nil || !b.alone {
		return err
	}
	return l.give(b.addr, b.addr+b.size, 0)
}

// together says whether a completion belongs to the call of the waiting free, as that of a block which no other
// stream uses: it has the same stack, and comes some microseconds later at most.
func (l *layout) together(e *entry) bool {
	return e.stack == l.waiting.freeStack && l.now-l.waiting.freed < 50_000
}

// entry takes an entry of the trace.
func (l *layout) entry(e *entry) error {
	l.now = max(l.now, (e.timeUS-l.base)*1000)
	l.entries++
	completed := e.action == actionFreeCompleted || e.action == actionFree
	if l.waiting != nil {
		final := l.halves || completed && l.waiting.addr == e.addr && l.together(e)
		if err := l.finished(final); err != nil || completed && final {
			return err
		}
	}
	if e.action != actionSegmentFree && e.action != actionSegmentUnmap {
		l.emptying = false
	}
	switch e.action {
	case actionSegmentAlloc, actionSegmentMap:
		pool, known := l.pools[l.entries]
		if !known {
			pool = l.poolOf(e)
		}
		return l.take(e.addr, e.addr+e.size, e.stream, classOf(e.action, e.size, pool), e.stack)
	case actionSegmentFree, actionSegmentUnmap:
		if l.emptied[l.entries] {
			l.emptying = true
			if err := l.emptyCache(); err != nil {
				return err
			}
		}
		of := l.memoryAt(e.addr)
		if of == nil || of.class.pool[1] < unnamed {
			return l.give(e.addr, e.addr+e.size, e.stack)
		}
		return l.giveUnnamed(e, of.arena)
	case actionAlloc:
		return l.begin(e.addr, e.block, e.size, e.stream, e.stack, e.metadata)
	case actionFreeRequested:
		b := l.blocks.get(e.addr)
		if b == nil || b.pending {
			l.odd++
			return nil
		}
		l.freeing = *b
		l.waiting = &l.freeing
		l.waiting.freed, l.waiting.freeStack = l.now, e.stack
		if err := l.freedIn(b, e.stack); err != nil {
			return err
		}
		return l.freedBy(l.waiting, e.stack)
	case actionFreeCompleted, actionFree:
		known := l.blocks.get(e.addr)
		if known == nil {
			l.odd++
			return nil
		}
		b := *known
		if err := l.freedBy(&b, e.stack); err != nil {
			return err
		}
		if b.pending {
			return l.ended(trace.KindFreeDone, &b)
		}
		return l.ended(trace.KindFree, &b)
	case actionOOM:
		context, err := l.context(e.stack, e.metadata)
		if err != nil {
			return err
		}
		arena, err := l.arenaOf(arenaKey{e.stream, class{small: e.size <= smallRequest, expandable: l.settings.Expandable}})
		if err != nil {
			return err
		}
		return l.write(trace.Event{Kind: trace.KindOOM, Arena: arena, Stream: int64(e.stream), Requested: int64(e.size), Provided: int64(e.addr), Context: context})
	}
	return nil
}

// emptyCache writes that the job emptied the cache: no request made the releases that follow.
func (l *layout) emptyCache() error {
	return l.write(trace.Event{Kind: trace.KindReclaim, Arena: trace.NoArena, Context: l.w.Intern("empty_cache")})
}

// mostContexts bounds the contexts of a file over what any job has.
const mostContexts = 4 << 20

// context returns the context of a request with a stack, a name, or both.
func (l *layout) context(stack int64, metadata uint64) (int32, error) {
	key := [2]uint64{uint64(stack), metadata}
	if key == [2]uint64{} {
		return 0, nil
	}
	if number, known := l.contexts[key]; known {
		return number, nil
	}
	if *l.left--; *l.left < 0 {
		return 0, fmt.Errorf("the requests have more than %d different stacks and names", mostContexts)
	}
	node, err := l.stack(stack)
	if err != nil {
		return 0, err
	}
	var fields []trace.Field
	if metadata > 0 {
		fields = append(fields, trace.Field{Name: "module", Value: clean(l.texts[metadata-1])})
	}
	if node > 0 {
		fields = append(fields, trace.Field{Name: "stack", Value: strconv.FormatInt(node, 10)})
	}
	number := l.w.Intern(trace.FormatContext(fields...))
	l.contexts[key] = number
	return number, nil
}

// stack writes the stack events that a stack needs and that were not written for the device, and
// returns the stack's number there.
func (l *layout) stack(number int64) (int64, error) {
	if number == 0 {
		return 0, nil
	}
	if own, known := l.written[number]; known {
		return own, nil
	}
	node := l.stacks.nodes.of(number)
	parent, err := l.stack(node.parent)
	if err != nil {
		return 0, err
	}
	own := int64(len(l.written) + 1)
	l.written[number] = own
	return own, l.mark(trace.Event{Kind: trace.KindStack, Requested: own, Provided: parent, Context: l.w.Intern(l.stacks.texts[node.frame-1])})
}
