package verify

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// longestAttempt bounds the memory events kept for one attempt, in events. A growth gives
// up after a few hundred refusals, and a request maps at most a map for each hole it spans.
const longestAttempt = 1 << 20

// arena is one recorded heap and its replay.
type arena struct {
	stream   int64 // of the arena; of a block, unless streams says otherwise
	collects bool
	trim     bfc.TrimWhen // of pools and tags it is never
	heap     *bfc.Allocator
	script   script
	shape    *shape // of a graph memory, whose range it grows out of, or nil
	paused   bool

	streams map[uint64]int64 // blocks in use by address, whose stream is not the arena's
	shared  map[uint64]bool  // blocks that another stream used; true once they were freed
}

// parseArena makes the arena of an arena event with its options, or nil if it is not one
// of our allocator.
func parseArena(e *trace.Event, text string) (*arena, error) {
	words := &words{of: trace.ParseContext(e.Kind, text).Map()}
	if _, ours := words.of["growth"]; !ours {
		return nil, nil
	}
	options := words.options(uint64(e.Requested))
	a := &arena{
		stream: e.Stream, collects: options.GarbageCollection, trim: options.Trim.When,
		script:  script{granularity: words.number("granularity"), coalesces: words.flag("coalesces")},
		streams: map[uint64]int64{}, shared: map[uint64]bool{},
	}
	if words.err != nil {
		return nil, words.err
	}
	base, size := uint64(e.Addr), uint64(e.Provided)
	if a.script.coalesces && size != 0 && size <= math.MaxUint64-base {
		a.script.room = reservation{next: base, end: base + size, known: true}
	}
	var err error
	a.heap, err = bfc.New(options, &a.script)
	return a, err
}

// words are the options in the context of an arena event, and the first mistake in those that
// were read.
type words struct {
	of  map[string]string
	err error
}

// options are those of the allocator. Recordings that say nothing of a split, a trim or a
// placement are of the classic split, no trim and best fit.
func (w *words) options(limit uint64) bfc.Options {
	policy, err := bfc.ParseFields(func(name string) (string, bool) { text, said := w.of[name]; return text, said })
	w.keep(err)
	o := policy.Heap()
	o.Limit = limit
	o.GarbageCollection = w.flag("gc")
	if o.FragmentationFraction, err = strconv.ParseFloat(w.of["fraction"], 64); err != nil {
		w.keep(fmt.Errorf("fraction=%q is not a number", w.of["fraction"]))
	}
	return o
}

func (w *words) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *words) number(key string) uint64 {
	n, err := strconv.ParseUint(w.of[key], 10, 64)
	if err != nil {
		w.keep(fmt.Errorf("%s=%q is not a number of bytes", key, w.of[key]))
	}
	return n
}

func (w *words) flag(key string) bool {
	value := w.of[key]
	if value != "0" && value != "1" {
		w.keep(fmt.Errorf("%s=%q is not 0 or 1", key, value))
	}
	return value == "1"
}

// memory keeps an event of the memory for the end of the attempt.
func (a *arena) memory(e *trace.Event) *Mismatch {
	if len(a.script.events) == longestAttempt {
		return atEvent(e, fmt.Sprintf("an alloc, reclaim or oom within %d events of the memory", longestAttempt), describe(e))
	}
	a.script.events = append(a.script.events, *e)
	return nil
}

// unmap is of an attempt under way, or a give-back. Where garbage is collected, that is what
// every unmap is for, and so it is of one that says so.
func (a *arena) unmap(e *trace.Event, reclaiming bool) *Mismatch {
	if len(a.script.events) > 0 || a.collects || e.Requested > 0 {
		return a.memory(e)
	}
	if a.trim != bfc.TrimNever && !reclaiming {
		if wrong := a.trimmed(e); wrong != nil {
			return wrong
		}
	}
	return a.unmapFree(e)
}

// trimmed judges an unmap that is for no request and of no reclaim. Only a trim by iterations
// gives back so: idleness and pressure reclaim. It gives back what was excess when an iteration
// ended, but in slices, later, and then only what still is. Which mark a slice is of, and whether
// the device has done with what was freed before it, is in no event: so the slice has to be
// excess now, and that is all that can be demanded.
func (a *arena) trimmed(e *trace.Event) *Mismatch {
	switch {
	case a.trim != bfc.TrimIteration:
		return atEvent(e, "a reclaim before it, as nothing else gives back", describe(e))
	case !a.heap.InExcess(uint64(e.Addr), uint64(e.Provided)):
		return atEvent(e, "a reclaim before it, or an unmap of what is free and not expected to be used", describe(e))
	}
	return nil
}

func (a *arena) unmapFree(e *trace.Event) *Mismatch {
	if err := a.heap.Unmap(uint64(e.Addr), uint64(e.Provided)); err != nil {
		return atEvent(e, "an unmap of granules that are mapped and in one free chunk", describe(e))
	}
	a.script.mapped -= uint64(e.Provided)
	return nil
}

// ahead maps granules that nobody asked for, between attempts: what was given back though the
// coming iteration will use it.
func (a *arena) ahead(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 {
		return atEvent(e, "a map ahead between requests", describe(e))
	}
	if a.trim != bfc.TrimIteration || !a.heap.InAhead(uint64(e.Addr), uint64(e.Provided)) || a.heap.Remap(uint64(e.Addr), uint64(e.Provided)) != nil {
		return atEvent(e, "a map ahead of what was given back and is expected to be used", describe(e))
	}
	a.script.mapped += uint64(e.Provided)
	return nil
}

// attempt replays the attempt that ends with e: an alloc, or a request that failed.
func (a *arena) attempt(e *trace.Event) *Mismatch {
	if a.paused {
		return atEvent(e, "no request in an arena that is paused", describe(e))
	}
	s := &a.script
	s.at, s.end = 0, e
	block, ok := a.heap.Alloc(uint64(e.Requested))
	if s.wrong != nil {
		return s.wrong
	}
	if s.at < len(s.events) {
		left := &s.events[s.at]
		return atEvent(left, "no such event: the replay asks for no more and comes to "+outcome(block, ok), describe(left))
	}
	if e.Kind == trace.KindAlloc && (!ok || block.Addr != uint64(e.Addr) || block.Size != uint64(e.Provided)) || e.Kind != trace.KindAlloc && ok {
		return atEvent(e, outcome(block, ok), describe(e))
	}
	if len(s.events) > 0 {
		if reserved := a.heap.Stats().Reserved; reserved != s.mapped {
			return atEvent(e, fmt.Sprintf("%d bytes mapped after it", reserved), fmt.Sprintf("maps and unmaps that leave %d", s.mapped))
		}
		s.events = s.events[:0]
	}
	if ok && e.Stream != a.stream {
		a.streams[block.Addr] = e.Stream
	}
	return nil
}

// restore makes a block live at the place where a checkpoint had it.
func (a *arena) restore(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 {
		return atEvent(e, "the end of the request under way", "a restore")
	}
	block, err := a.heap.Restore(uint64(e.Addr), uint64(e.Provided), uint64(e.Requested))
	if err != nil {
		return atEvent(e, "a place that is mapped and of one free chunk", place(uint64(e.Provided), uint64(e.Addr)))
	}
	if e.Stream != a.stream {
		a.streams[block.Addr] = e.Stream
	}
	return nil
}

// pause takes an arena's memory away until resume, unless the call failed. Both say how much
// that is.
func (a *arena) pause(e *trace.Event, text string) *Mismatch {
	if strings.Contains(text, "\tfailed=") {
		return nil
	}
	if len(a.script.events) > 0 || a.paused == (e.Kind == trace.KindPause) {
		return atEvent(e, "it in an arena that is at rest and "+map[bool]string{true: "paused", false: "not paused"}[!a.paused], e.Kind.String())
	}
	if uint64(e.Requested) != a.script.mapped {
		return atEvent(e, fmt.Sprintf("the %d bytes that are mapped", a.script.mapped), fmt.Sprintf("%d", e.Requested))
	}
	a.paused = !a.paused
	return nil
}

// outcome is what a replayed attempt came to, in words.
func outcome(block bfc.Block, ok bool) string {
	if !ok {
		return "the request to fail"
	}
	return place(block.Size, block.Addr)
}

// use notes a stream that uses a block.
func (a *arena) use(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	if _, live := a.heap.Find(addr); !live || a.shared[addr] {
		return atEvent(e, "the address of a block in use", fmt.Sprintf("%#x", addr))
	}
	own, elsewhere := a.streams[addr]
	if !elsewhere {
		own = a.stream
	}
	if e.Stream != own {
		a.shared[addr] = false
	}
	return nil
}

// free ends a block, or makes it pending if other streams used it.
func (a *arena) free(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	freed, shared := a.shared[addr]
	if !shared {
		return a.release(e)
	}
	if freed {
		return atEvent(e, "no second free of a block that waits for its free_done", fmt.Sprintf("a free of %#x", addr))
	}
	a.shared[addr] = true
	block, _ := a.heap.Find(addr)
	return agree(e, block)
}

// freeDone ends a pending block.
func (a *arena) freeDone(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	if !a.shared[addr] {
		return atEvent(e, "a block that was freed and that another stream used", fmt.Sprintf("%#x", addr))
	}
	delete(a.shared, addr)
	return a.release(e)
}

func (a *arena) release(e *trace.Event) *Mismatch {
	block, err := a.heap.Free(uint64(e.Addr))
	if err != nil {
		return atEvent(e, "the address of a block in use in its arena", fmt.Sprintf("%#x", uint64(e.Addr)))
	}
	if len(a.streams) > 0 {
		delete(a.streams, block.Addr)
	}
	return agree(e, block)
}

// agree compares a free with the block it ends.
func agree(e *trace.Event, block bfc.Block) *Mismatch {
	if block.Requested == uint64(e.Requested) && block.Size == uint64(e.Provided) {
		return nil
	}
	return atEvent(e,
		fmt.Sprintf("%s for a request of %d, as it was handed out", place(block.Size, block.Addr), block.Requested),
		fmt.Sprintf("%s for a request of %d", place(uint64(e.Provided), uint64(e.Addr)), uint64(e.Requested)))
}
