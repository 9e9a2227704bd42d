package stores

import (
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
)

// pagedStore is the memory under Paged: see the package comment.
type pagedStore struct {
	*pool
	options   kvcache.Options
	width     int               // sequences of a prompt
	watermark int64             // blocks
	running   int64             // groups that have blocks
	tables    map[int64]*tables // of the groups that have blocks, by id

	host                  int64 // free blocks of the host
	swappedOut, swappedIn int64 // blocks
	copies                int64 // on write, blocks

	named           *names // made last
	crossing        int64  // groups that have a block beyond the first, over all blocks
	hits, hitTokens int64  // groups that found a part of their prompt, and tokens found

	// Of the request that waits, which is asked about at every step.
	headGroup  kvcache.Group
	headTables tables

	parent   func(chance uint64, i int) int // the sequence that candidate i of a prompt goes on from
	selected []selection                    // of the group that grew last
}

// tables are the block tables of a group: those of its sequences, prompt after prompt.
type tables struct {
	group  *kvcache.Group
	room   int32 // slots that its one sequence can fill in its last block, which is its own; see growOne
	behind bool  // the last block's filled is less than its tokens: fillLast sets it
	length int   // tokens of each sequence; the prompt and what was generated
	final  int   // tokens of each sequence in the end
	of     [][]int32
}

// newPaged is an empty paged memory. Policy.Block and Capacity are at least 1.
func newPaged(o kvcache.Options) *pagedStore {
	n := o.Capacity / int64(o.Policy.Block)
	s := &pagedStore{
		pool:    newPool(n, int32(o.Policy.Block)),
		options: o,
		width:   max(1, o.Sampling.Width),
		tables:  map[int64]*tables{},
	}
	keep := uint64(o.Sampling.Keep * (1 << 53))
	s.parent = func(chance uint64, i int) int {
		drawn := chain(chance, uint64(i))
		if mix(drawn)>>11 < keep {
			return i
		}
		return int(drawn % uint64(s.width))
	}
	s.watermark = int64(math.Floor(o.Watermark * float64(n))) // vLLM rounds down
	s.host = n                                                // as many as the device has
	return s
}

// blocksOf is the blocks of a sequence of so many tokens.
func (s *pagedStore) blocksOf(tokens int) int64 {
	return (int64(tokens) + int64(s.size) - 1) / int64(s.size)
}

// finalOf is how many slots of block j a sequence of so many tokens fills in the end.
func (s *pagedStore) finalOf(j, tokens int) int32 {
	return int32(min(int64(s.size), max(0, int64(tokens)-int64(j)*int64(s.size))))
}

func (s *pagedStore) Possible(r *kvcache.Request) bool {
	return s.most(r) <= int64(len(s.blocks))
}

// most is the most blocks a request ever has: all its sequences share is the prompt's full blocks.
func (s *pagedStore) most(r *kvcache.Request) int64 {
	shared := int64(r.Prompt) / int64(s.size)
	return int64(r.PromptCount()) * (shared + int64(s.width)*(s.blocksOf(r.Length())-shared))
}

// allows says whether so many blocks may be taken by a request that does not run yet.
func (s *pagedStore) allows(blocks int64) bool {
	if s.running > 0 {
		blocks += s.watermark
	}
	return blocks <= s.free
}

func (s *pagedStore) Admit(g *kvcache.Group) bool {
	if in, ok := g.Private.(*swapped); ok {
		return s.swapIn(g, in)
	}
	s.headTables = tables{group: g, length: g.Length(), final: g.Request.Length()}
	n, found, ok := s.room(&s.headTables)
	if !ok {
		return false
	}
	t := &tables{group: g, length: g.Length(), final: g.Request.Length()}
	s.hit(found)
	known := len(found)
	g.Found = known * int(s.size)
	for range g.Request.PromptCount() {
		s.fork(found, t)
		found = nil
	}
	for j := known; j < len(n.keys); j++ {
		s.name(t.of[0][j], n.keys[j], n.places[j])
	}
	s.enterGroup(g, t)
	return true
}

// enterGroup keeps the tables of a group that runs from now on: with the group, where each step finds them, and by
// id, for a map of all.
func (s *pagedStore) enterGroup(g *kvcache.Group, t *tables) {
	g.Private = t
	s.tables[g.ID] = t
	s.running++
}

// room says whether t can be admitted now, and which blocks it would find.
func (s *pagedStore) room(t *tables) (n *names, found []int32, ok bool) {
	n = s.namesOf(&t.group.Request)
	found, free := s.find(n, t.length)
	need := s.need(t)*int64(t.group.Request.PromptCount()) - int64(len(found)) + free
	return n, found, s.allows(need)
}

// fill adds blocks to a table until it holds the tokens of t.
func (s *pagedStore) fill(table []int32, t *tables) []int32 {
	for j := len(table); int64(j) < s.blocksOf(t.length); j++ {
		table = append(table, s.take(s.finalOf(j, t.length), s.finalOf(j, t.final)))
	}
	return table
}

func (s *pagedStore) Grow(g *kvcache.Group) bool {
	t := g.Private.(*tables)
	if len(t.of) == 1 {
		return s.growOne(t)
	}
	selected := s.selectFor(t)
	var need int64
	for i := range selected {
		need += s.balance(s.prompt(t, i), &selected[i], t.length)
	}
	if need > s.free {
		return false
	}
	for i := range selected {
		s.replace(s.prompt(t, i), &selected[i])
	}
	for i := range t.of {
		s.extend(&t.of[i], t)
	}
	t.length++
	return true
}

// growOne is grow for a group of one sequence, which nearly all steps of nearly all simulations are about. Only
// full blocks are found by others, so the last one stays the sequence's own until it is full: until then only sums
// are kept up to date.
func (s *pagedStore) growOne(t *tables) bool {
	if t.room > 0 {
		t.room--
		t.length++
		t.behind = true
		s.filled++
		return true
	}
	s.fillLast(t)
	table := &t.of[0]
	j := t.length / int(s.size)
	inPlace := j < len(*table) && s.blocks[(*table)[j]].references == 1
	if !inPlace && s.free == 0 {
		return false
	}
	s.extend(table, t)
	t.length++
	if j == t.length/int(s.size) {
		t.room = s.size - int32(t.length%int(s.size))
	}
	return true
}

// fillLast records of the last block what growOne filled in it.
func (s *pagedStore) fillLast(t *tables) {
	if t.behind {
		last := t.of[0][len(t.of[0])-1]
		s.blocks[last].filled = s.finalOf(len(t.of[0])-1, t.length)
		t.behind = false
	}
}

// extend writes the next token of one sequence.
func (s *pagedStore) extend(table *[]int32, t *tables) {
	j := t.length / int(s.size)
	switch {
	case j == len(*table):
		*table = append(*table, s.take(1, s.finalOf(j, t.final)))
	case s.blocks[(*table)[j]].references > 1:
		(*table)[j] = s.own((*table)[j])
	default:
		s.write((*table)[j])
	}
}

// Release frees the blocks of a group, the last of each sequence first, so that the end of a prompt is
// evicted before its beginning: blocks behind an evicted one cannot be found.
func (s *pagedStore) Release(g *kvcache.Group) {
	t := g.Private.(*tables)
	g.Private = nil
	s.fillLast(t)
	for _, table := range t.of {
		for j := len(table) - 1; j >= 0; j-- {
			s.drop(table[j])
		}
	}
	s.part(t)
	delete(s.tables, g.ID)
	s.running--
}

// Shares counts free slots as blocked while they are too few for the first waiting request and the
// watermark; any block serves any request, so that none are fragmented; for a request on the host, as if it were computed again.
func (s *pagedStore) Shares(head *kvcache.Request) kvcache.Shares {
	size := int64(s.size)
	out := kvcache.Shares{
		Token:    s.filled,
		Reserve:  s.final - s.filled,
		Internal: s.used*size - s.final,
		Rounding: s.options.Capacity - int64(len(s.blocks))*size,
		Idle:     (s.free - s.cached) * size,
		Cached:   s.cached * size,
	}
	if head == nil {
		return out
	}
	s.headGroup.Request = *head
	s.headTables = tables{group: &s.headGroup, length: head.Prompt}
	if _, _, ok := s.room(&s.headTables); !ok {
		out.Blocked, out.Idle = out.Idle, 0
	}
	return out
}
