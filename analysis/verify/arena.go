package verify

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// longestAttempt is the most events of the memory that one attempt may have. A growth is refused at
// most a few hundred times, and a request maps each unmapped range of its chunk once.
const longestAttempt = 1 << 20

// arena is one recorded arena and its replay.
type arena struct {
	id       int32
	takes    bool   // it takes pages of other arenas before it maps more
	gives    bool   // they take its own
	mapped   uint64 // bytes, by the events so far
	released uint64 // of the attempt under way: bytes unmapped for it, and not mapped
	over     uint64 // frees before which all work is over, by the last fence event
	stream   int64  // of the arena and its blocks
	collects bool   // it has garbage collection
	trim     bfc.TrimWhen
	heap     *bfc.Allocator
	script   script
	sums     *sums  // of its device
	shape    *shape // the range of a graph memory that it grows in, or nil
	paused   bool
	fences   bool // its fence events say which work is over: what may still be read stays as it is

	registered []addresses // that may not be unmapped; a range may be there several times

	shared map[uint64]bool // by address: a block that another stream used; true once it was freed
}

// parseArena makes an arena of an arena event; nil for one of another allocator.
func parseArena(e *trace.Event, text string) (*arena, error) {
	words := &words{of: trace.ParseContext(e.Kind, text).Map()}
	if _, ours := words.of["growth"]; !ours {
		return nil, nil
	}
	options := words.options(uint64(e.Requested))
	a := &arena{
		id: e.Arena, takes: words.of["takes"] == "1", gives: words.of["gives"] == "1",
		stream: e.Stream, collects: options.GarbageCollection, trim: options.Trim.When,
		script: script{granularity: words.number("granularity"), coalesces: words.flag("coalesces")},
		fences: words.of["fences"] == "1",
		shared: map[uint64]bool{},
	}
	if words.err != nil {
		return nil, words.err
	}
	base, size := uint64(e.Addr), uint64(e.Provided)
	if a.script.coalesces && size != 0 && size <= math.MaxUint64-base {
		a.script.room = reservation{next: base, end: base + size, known: true}
	}
	var err error
	if a.heap, err = bfc.New(options, &a.script); err == nil && a.fences {
		a.heap.Over(0)
	}
	return a, err
}

// fence takes a fence event. It may come within a request, before what depends on it.
func (a *arena) fence(e *trace.Event) *Mismatch {
	over := uint64(e.FreesOver())
	if !a.fences || over > a.heap.Frees() || over < a.over {
		return atEvent(e, fmt.Sprintf("from %d to %d frees, in an arena with fences", a.over, a.heap.Frees()), describe(e))
	}
	a.over = over
	a.heap.Over(over)
	return nil
}

// words are the fields of an arena event, and the first error in those that were read.
type words struct {
	of  map[string]string
	err error
}

// options returns the options of the arena's allocator.
func (w *words) options(limit uint64) bfc.Options {
	o, err := bfc.ParseFields(func(name string) (string, bool) { text, said := w.of[name]; return text, said })
	w.keep(err)
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

// memory keeps an event of the memory until the attempt ends.
func (a *arena) memory(e *trace.Event) *Mismatch {
	if wrong := a.keeps(e); e.Kind == trace.KindUnmap && wrong != nil {
		return wrong
	}
	if len(a.script.events) == longestAttempt {
		return atEvent(e, fmt.Sprintf("an alloc, reclaim or oom within %d events of the memory", longestAttempt), describe(e))
	}
	a.script.events = append(a.script.events, *e)
	return nil
}

// unmap takes an unmap event: of an attempt under way, or of free pages for no request. In an arena with
// garbage collection, and where the event has requested bytes, it belongs to an attempt.
func (a *arena) unmap(e *trace.Event, reclaiming bool) *Mismatch {
	if len(a.script.events) > 0 || a.collects || e.ForRequest() {
		return a.memory(e)
	}
	if a.trim != bfc.TrimNever && !reclaiming && !a.ofSource() {
		if wrong := a.trimmed(e); wrong != nil {
			return wrong
		}
	}
	return a.unmapFree(e)
}

// ofSource says whether the memory is of an allocator of the framework's, the source of a memory pool. It
// unmaps what it has when it likes, and maps it again: free memory by an unmap and a map for no request,
// all of it by a pause and a resume.
func (a *arena) ofSource() bool { return !a.script.coalesces }

// trimmed checks an unmap outside of requests and reclaims. Only trim iteration unmaps so; idle
// reclaims. The hook unmaps what was excess when an iteration ended, later and in slices, if it
// is still excess then. Which iteration a slice belongs to, and whether the device had finished with the
// pages, is in no event. So all that can be checked is that the slice is excess now.
func (a *arena) trimmed(e *trace.Event) *Mismatch {
	switch {
	case a.trim != bfc.TrimIteration:
		return atEvent(e, "a reclaim before it, as nothing else unmaps", describe(e))
	case !a.heap.InExcess(uint64(e.Addr), uint64(e.Provided)):
		return atEvent(e, "a reclaim before it, or an unmap of what is free and was not touched by the last iteration", describe(e))
	}
	return nil
}

func (a *arena) unmapFree(e *trace.Event) *Mismatch {
	if wrong := a.keeps(e); wrong != nil {
		return wrong
	}
	if a.fences && !a.ofSource() && !a.heap.IsClear(uint64(e.Addr), uint64(e.Provided)) {
		return atEvent(e, "an unmap of pages that no queued work can read: a fence before it", describe(e))
	}
	if err := a.heap.Unmap(uint64(e.Addr), uint64(e.Provided)); err != nil {
		return atEvent(e, "an unmap of pages that are mapped and within one free chunk", describe(e))
	}
	a.script.mapped -= uint64(e.Provided)
	return nil
}

// remap takes a map event for no request: of pages that the source of the memory has mapped again, or that a request unmapped to
// map them elsewhere, and did not.
func (a *arena) remap(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 {
		return atEvent(e, "a map for no request between requests", describe(e))
	}
	if !a.ofSource() && !a.fences || a.heap.Remap(uint64(e.Addr), uint64(e.Provided)) != nil {
		return atEvent(e, "a map for a request, or by the source of the memory", describe(e))
	}
	a.script.mapped += uint64(e.Provided)
	return nil
}

// attempt replays the attempt that ends with e, which is an alloc or a request that failed.
func (a *arena) attempt(e *trace.Event) *Mismatch {
	if a.paused {
		return atEvent(e, "no request in an arena that is paused", describe(e))
	}
	s := &a.script
	s.at, s.end, a.released = 0, e, 0
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
	return nil
}

// shortage takes the shortage event of an arena, of which it has one at most.
func (a *arena) shortage(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 || a.heap.InShortage() {
		return atEvent(e, "it in an arena that is at rest and not in a shortage", "a shortage")
	}
	a.heap.Shortage()
	return nil
}

// shrink replays a shrink event.
func (a *arena) shrink(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	if len(a.script.events) > 0 || a.paused || a.shared[addr] || !a.heap.InShortage() {
		return atEvent(e, "it for a live block of an arena that is in a shortage, at rest and not paused", "a shrink")
	}
	block, err := a.heap.Shrink(addr)
	if err != nil {
		return atEvent(e, "the address of a block in use with slack", fmt.Sprintf("%#x", addr))
	}
	return agree(e, block)
}

// restore replays a restore event.
func (a *arena) restore(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 {
		return atEvent(e, "the end of the request under way", "a restore")
	}
	if _, err := a.heap.Restore(uint64(e.Addr), uint64(e.Provided), uint64(e.Requested)); err != nil {
		return atEvent(e, "a place that is mapped and within one free chunk", place(uint64(e.Provided), uint64(e.Addr)))
	}
	return nil
}

// pause takes a pause or resume event, both of which have the bytes that are mapped. A call that failed
// changed nothing.
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

// outcome is the result of a replayed attempt in words.
func outcome(block bfc.Block, ok bool) string {
	if !ok {
		return "the request to fail"
	}
	return place(block.Size, block.Addr)
}

// use notes that a stream uses a block.
func (a *arena) use(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	if _, live := a.heap.Find(addr); !live || a.shared[addr] {
		return atEvent(e, "the address of a block in use", fmt.Sprintf("%#x", addr))
	}
	if e.Stream != a.stream {
		a.shared[addr] = false
	}
	return nil
}

// free takes a free event: the block ends, or is pending if another stream used it.
func (a *arena) free(e *trace.Event) *Mismatch {
	addr := uint64(e.Addr)
	freed, shared := a.shared[addr]
	if !shared {
		return a.release(e)
	}
	if freed {
		return atEvent(e, "no second free of a block whose free_done is pending", fmt.Sprintf("a free of %#x", addr))
	}
	a.shared[addr] = true
	block, _ := a.heap.Find(addr)
	return agree(e, block)
}

// freeDone takes the free_done event of a pending block.
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
	return agree(e, block)
}

// agree checks that a free event has the bytes of the block that it ends.
func agree(e *trace.Event, block bfc.Block) *Mismatch {
	if block.Requested == uint64(e.Requested) && block.Size == uint64(e.Provided) {
		return nil
	}
	return atEvent(e,
		fmt.Sprintf("%s for a request of %d, as it was handed out", place(block.Size, block.Addr), block.Requested),
		fmt.Sprintf("%s for a request of %d", place(uint64(e.Provided), uint64(e.Addr)), uint64(e.Requested)))
}
