package dataset

import (
	"cmp"
	"maps"
	"slices"

	"github.com/memprof/memprof/trace"
)

// openingKV follows the KV caches of a process, so that opening rows can restate them in few events. It ignores
// events that do not fit the ones before.
type openingKV struct {
	text   func(int32) string
	caches map[int64]*openingCache
}

type openingCache struct {
	cache     trace.Event // its kv_cache
	block     int64       // slots of a block; 0: the cache is contiguous
	sequences map[int64]*openingSequence
	users     map[int64]int // by block: the number of sequences that use it
	hosted    map[int64]*openingSequence
	kept      map[int64]struct{} // blocks that no sequence uses and whose content is kept
}

type openingSequence struct {
	first          trace.Event // its first event
	prompt         int32       // the context with prompt=
	slots, padding int64       // of a contiguous cache
	tokens         int64       // in its slots
	ended          bool        // it keeps its slots and gets no more tokens
	table          []int64     // its blocks, in the order of its tokens
}

func (f *openingKV) apply(e *trace.Event) {
	if e.Kind == trace.KindKVCache {
		if f.caches == nil {
			f.caches = map[int64]*openingCache{}
		}
		if f.caches[e.KVCache()] != nil {
			return // the opening rows of a part restate it
		}
		f.caches[e.KVCache()] = &openingCache{
			cache: *e, block: trace.ParseContext(e.Kind, f.text(e.Context)).Count("block", 0),
			sequences: map[int64]*openingSequence{}, hosted: map[int64]*openingSequence{}, users: map[int64]int{}, kept: map[int64]struct{}{},
		}
		return
	}
	c := f.caches[e.KVCache()]
	if c == nil {
		return
	}
	swap := e.Context != 0 && (e.Kind == trace.KindKVReserve || e.Kind == trace.KindKVFree) && trace.ParseContext(e.Kind, f.text(e.Context)).Get("swap") != ""
	switch e.Kind {
	case trace.KindKVReserve:
		if swap {
			c.swapIn(e)
			return
		}
		c.reserve(e)
	case trace.KindKVShare:
		c.share(e, trace.ParseContext(e.Kind, f.text(e.Context)).Int("position", -1))
	case trace.KindKVAppend:
		c.append(e)
	case trace.KindKVFree:
		if e.KVSequence() == trace.AllSequences && e.KVSlots() == 0 {
			delete(f.caches, e.KVCache())
			return
		}
		if swap {
			c.swapOut(e)
			return
		}
		c.free(e)
	}
}

// swapOut keeps what a sequence has on the host.
func (c *openingCache) swapOut(e *trace.Event) {
	s := c.sequences[e.KVSequence()]
	if s == nil {
		s = &openingSequence{tokens: e.KVSlots()}
	}
	if c.block == 0 || s.ended || s.tokens < 1 || c.hosted[e.KVSequence()] != nil {
		return
	}
	delete(c.sequences, e.KVSequence())
	for _, b := range s.table {
		c.leave(b, false)
	}
	s.first, s.table, s.prompt = *e, nil, 0
	c.hosted[e.KVSequence()] = s
}

// swapIn brings as many tokens back as its blocks hold.
func (c *openingCache) swapIn(e *trace.Event) {
	h := c.hosted[e.KVSequence()]
	if h == nil {
		return
	}
	c.reserve(&trace.Event{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Device: e.Device, Arena: e.Arena, Stream: e.Stream, Addr: e.Addr, Requested: e.Requested, Provided: e.Provided})
	back := min(h.tokens, e.KVSlots())
	c.sequences[e.KVSequence()].tokens += back
	if h.tokens -= back; h.tokens == 0 {
		delete(c.hosted, e.KVSequence())
	}
}

func (c *openingCache) sequence(e *trace.Event) *openingSequence {
	s := c.sequences[e.KVSequence()]
	if s == nil {
		s = &openingSequence{first: *e}
		c.sequences[e.KVSequence()] = s
	}
	return s
}

// count is the number of blocks that an event is about; 0 if that is more than a cache can have.
func (c *openingCache) count(e *trace.Event) int64 {
	const most = 1 << 24
	if c.block == 0 || e.KVSlots()/c.block > most {
		return 0
	}
	return e.KVSlots() / c.block
}

// use counts one more sequence that uses a block.
func (c *openingCache) use(block int64) {
	c.users[block]++
	delete(c.kept, block)
}

// leave counts one sequence less that uses a block. With keep, the content stays when no sequence uses it.
func (c *openingCache) leave(block int64, keep bool) {
	if c.users[block]--; c.users[block] > 0 {
		return
	}
	delete(c.users, block)
	if keep {
		c.kept[block] = struct{}{}
	}
}

func (c *openingCache) reserve(e *trace.Event) {
	if e.KVSequence() == trace.AllSequences {
		for _, s := range c.sequences {
			s.slots += e.KVSlots()
		}
		return
	}
	s := c.sequence(e)
	if e.Context != 0 {
		s.prompt = e.Context
	}
	if c.block == 0 {
		s.slots += e.KVSlots()
		s.padding += e.KVPadding()
		return
	}
	for b := e.KVFirstBlock(); b < e.KVFirstBlock()+c.count(e); b++ {
		c.use(b)
		s.table = append(s.table, b)
	}
}

func (c *openingCache) share(e *trace.Event, position int64) {
	if e.KVSequence() == trace.AllSequences {
		for b := e.KVFirstBlock(); b < e.KVFirstBlock()+c.count(e); b++ {
			if c.users[b] == 0 {
				c.kept[b] = struct{}{}
			}
		}
		return
	}
	s := c.sequence(e)
	if position < 0 && e.Context != 0 {
		s.prompt = e.Context
	}
	if position >= 0 && position < int64(len(s.table)) {
		old := s.table[position]
		s.table[position] = e.KVFirstBlock()
		c.use(e.KVFirstBlock())
		c.leave(old, false)
		return
	}
	for b := e.KVFirstBlock(); b < e.KVFirstBlock()+c.count(e); b++ {
		c.use(b)
		s.table = append(s.table, b)
	}
}

func (c *openingCache) append(e *trace.Event) {
	if e.KVSequence() == trace.AllSequences {
		for _, s := range c.sequences {
			if s.tokens > 0 && !s.ended {
				s.tokens += e.KVTokens()
			}
		}
		return
	}
	if s := c.sequences[e.KVSequence()]; s != nil {
		s.tokens += e.KVTokens()
		s.ended = s.ended || e.KVTokens() == 0
	}
}

func (c *openingCache) free(e *trace.Event) {
	if e.KVSequence() == trace.AllSequences {
		for b := e.KVFirstBlock(); b < e.KVFirstBlock()+c.count(e); b++ {
			delete(c.kept, b)
		}
		return
	}
	delete(c.hosted, e.KVSequence())
	s := c.sequences[e.KVSequence()]
	if s == nil {
		return
	}
	delete(c.sequences, e.KVSequence())
	for i, b := range s.table {
		c.leave(b, (int64(i)+1)*c.block <= e.KVKept())
	}
}

// rows returns events that restate the caches, ordered by seq within a cache. All rows of a sequence have the seq
// of its first event.
func (f *openingKV) rows() []trace.Event {
	var rows []trace.Event
	for _, c := range f.caches {
		rows = append(rows, c.cache)
		for _, run := range blockRuns(slices.Sorted(maps.Keys(c.kept)), func(int64) bool { return false }) {
			e := c.cache
			e.Kind, e.Device, e.Addr, e.Requested, e.Provided, e.Context = trace.KindKVShare, trace.NoDevice, -1, run.first, run.count*c.block, 0
			rows = append(rows, e)
		}
		named := map[int64]bool{}
		ordered := slices.AppendSeq(slices.Collect(maps.Values(c.sequences)), maps.Values(c.hosted))
		slices.SortFunc(ordered, func(a, b *openingSequence) int { return cmp.Compare(a.first.Seq, b.first.Seq) })
		for _, s := range ordered {
			if s.first.Kind == trace.KindKVFree { // on the host
				e := s.first
				e.Provided = s.tokens
				rows = append(rows, e)
				continue
			}
			rows = append(rows, s.rows(c.block, named)...)
		}
	}
	return rows
}

// rows returns events that restate a sequence. named has the blocks that rows of earlier sequences reserve; they are
// shared.
func (s *openingSequence) rows(block int64, named map[int64]bool) []trace.Event {
	var rows []trace.Event
	add := func(kind trace.Kind, requested, provided int64, context int32) {
		e := s.first
		e.Kind, e.Requested, e.Provided, e.Context = kind, requested, provided, context
		rows = append(rows, e)
	}
	if block == 0 && s.slots > 0 {
		add(trace.KindKVReserve, s.padding, s.slots, s.prompt)
	}
	for _, run := range blockRuns(s.table, func(b int64) bool { return named[b] }) {
		if run.marked {
			add(trace.KindKVShare, run.first, run.count*block, s.prompt)
			continue
		}
		add(trace.KindKVReserve, run.first, run.count*block, s.prompt)
		for b := run.first; b < run.first+run.count; b++ {
			named[b] = true
		}
	}
	if s.tokens > 0 {
		add(trace.KindKVAppend, s.tokens, 0, 0)
	}
	if s.ended {
		add(trace.KindKVAppend, 0, 0, 0)
	}
	return rows
}

type blockRun struct {
	first, count int64
	marked       bool
}

// blockRuns groups blocks with consecutive numbers, of which all or none are marked.
func blockRuns(blocks []int64, marked func(int64) bool) []blockRun {
	var runs []blockRun
	for _, b := range blocks {
		m := marked(b)
		if n := len(runs); n > 0 && runs[n-1].first+runs[n-1].count == b && runs[n-1].marked == m {
			runs[n-1].count++
			continue
		}
		runs = append(runs, blockRun{b, 1, m})
	}
	return runs
}
