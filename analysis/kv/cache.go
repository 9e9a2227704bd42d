package kv

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
)

// All, as the number of a sequence, means all sequences of a cache.
const All = -1

// Cache is one cache of an Account, changed by the marks of its engine. A mark that contradicts the
// state is an error that names the sequence or the block, and changes nothing.
type Cache struct {
	of        *Account
	slots     int64 // 0: as many as are reserved
	null      int64 // slots of blocks that are never handed out
	sequences map[int64]*sequenceState
	blocks    map[int64]*blockState // by physical number, those in use
	kept      map[int64]int64       // filled slots of blocks in no table whose content is kept
	hosted    map[int64]*hostedSequence
}

type sequenceState struct {
	number       int64
	start        int64 // when it got its first slots, ns
	held, tokens int64 // slots
	dead         int64 // of held: padding; all of it once the sequence has ended
	prompt       int64 // 0: not said
	bulk         int64 // tokens at the end of the last append of more than one
	step         int64 // in which it got its last token
	ended        bool
	counted      bool          // its lengths are in Requests
	open         []stretch     // contiguous: slots with room, in order
	table        []*blockState // paged
}

// stretch is adjacent slots that were reserved together.
type stretch struct{ start, slots, filled int64 }

// Cache adds a cache of some slots, 0: it has those that are reserved. null of its blocks are
// never handed out.
func (r *Account) Cache(time, slots, null int64) (*Cache, error) {
	if err := r.Advance(time); err != nil {
		return nil, err
	}
	if slots < 0 || slots > mostSlots || r.Block > mostSlots || null < 0 || null > 0 && null > slots/max(r.Block, 1) {
		return nil, fmt.Errorf("a cache of %d slots in blocks of %d, of which %d are null", slots, r.Block, null)
	}
	c := &Cache{
		of: r, slots: slots, null: null * r.Block,
		sequences: map[int64]*sequenceState{}, blocks: map[int64]*blockState{}, kept: map[int64]int64{}, hosted: map[int64]*hostedSequence{},
	}
	r.Caches++
	r.now.capacity += slots
	r.now.null += c.null
	return c, nil
}

// Reserve gives slots to a sequence, or to each: adjacent blocks from the first on, or, in a
// contiguous cache, slots of which `first` are padding.
func (c *Cache) Reserve(time, sequence, first, slots, prompt int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	paged := c.of.Block > 0
	switch {
	case slots <= 0 || first < 0 || prompt < 0 || !paged && first > slots:
		return fmt.Errorf("a reservation of %d slots from slot %d on, for a prompt of %d tokens: want numbers that fit the cache", slots, first, prompt)
	case paged && sequence == All:
		return errors.New("blocks are reserved for all sequences at once: reserve them for one sequence each")
	case slots > c.most() || first > mostSlots:
		return fmt.Errorf("%d slots from %d on for sequence %d, of at most %d", slots, first, sequence, c.most())
	case paged && slots%c.of.Block != 0:
		return fmt.Errorf("%d slots are not a multiple of a block of %d", slots, c.of.Block)
	}
	if sequence == All {
		for _, s := range c.sequences {
			c.extend(s, slots, 0)
		}
		return c.fits()
	}
	s := c.sequence(sequence, prompt)
	if !paged {
		c.extend(s, slots, first)
		return c.fits()
	}
	for number := first; number < first+slots/c.of.Block; number++ {
		if c.blocks[number] != nil {
			return fmt.Errorf("sequence %d is given block %d, which is in use", sequence, number)
		}
		c.forget(number)
		s.table = append(s.table, c.use(number, 0))
		s.held += c.of.Block
	}
	return c.fits()
}

// mostSlots is more than any memory has; larger numbers are errors.
const mostSlots = 1 << 40

// most returns how many slots a mark may name.
func (c *Cache) most() int64 {
	most := int64(mostSlots)
	if c.slots > 0 {
		most = c.slots
	}
	if c.of.Block > 0 {
		most = min(most, kvcache.MostBlocks*c.of.Block)
	}
	return most
}

// sequence returns the sequence of a number, a new one if there is none.
func (c *Cache) sequence(number, prompt int64) *sequenceState {
	s := c.sequences[number]
	if s == nil {
		s = &sequenceState{number: number, start: c.of.at}
		c.sequences[number] = s
		c.of.now.running++
		c.of.started++
	}
	s.prompt = max(s.prompt, prompt)
	return s
}

// extend adds slots of its own to a sequence.
func (c *Cache) extend(s *sequenceState, slots, padding int64) {
	now := &c.of.now
	if c.slots == 0 {
		now.capacity += slots
	}
	now.held += slots
	s.held += slots
	if s.ended {
		padding = slots
	}
	now.dead += padding
	s.dead += padding
	if slots > padding {
		s.open = append(s.open, stretch{start: c.of.at, slots: slots - padding})
	}
}

// fits returns an error if more is reserved than there is.
func (c *Cache) fits() error {
	t := &c.of.now
	if t.held+t.cached+t.null > t.capacity {
		return fmt.Errorf("%d slots are reserved, %d kept and %d null, of %d", t.held, t.cached, t.null, t.capacity)
	}
	return nil
}

// Append fills the next slots of a sequence, or of each that has tokens and has not ended. None
// ends the sequence.
func (c *Cache) Append(time, sequence, tokens int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	if tokens < 0 || tokens > mostSlots {
		return fmt.Errorf("%d tokens are appended", tokens)
	}
	if sequence == All {
		c.of.steps++
		for _, s := range c.sequences {
			if s.tokens == 0 || s.ended {
				continue
			}
			s.step = c.of.steps
			if err := c.fill(s, tokens); err != nil {
				return err
			}
		}
		return nil
	}
	s := c.sequences[sequence]
	switch {
	case s == nil:
		return fmt.Errorf("%d tokens for sequence %d, which has no slots", tokens, sequence)
	case tokens == 0:
		c.end(s)
		return nil
	case s.ended:
		return fmt.Errorf("%d tokens for sequence %d, which has ended", tokens, sequence)
	}
	if s.step == c.of.steps && (tokens == 1 || s.step == 0) { // a second time in a step; more are a part of a prompt
		c.of.steps++
	}
	s.step = c.of.steps
	return c.fill(s, tokens)
}

// fill puts tokens into the slots of a sequence.
func (c *Cache) fill(s *sequenceState, tokens int64) error {
	if s.tokens+tokens > s.held-s.dead {
		return fmt.Errorf("sequence %d has %d tokens in %d slots, and gets %d more", s.number, s.tokens, s.held-s.dead, tokens)
	}
	first := s.tokens
	s.tokens += tokens
	if tokens > 1 {
		s.bulk = s.tokens
	}
	if c.of.Block == 0 {
		c.of.now.token += tokens
		for tokens > 0 {
			p := &s.open[0]
			n := min(tokens, p.slots-p.filled)
			p.filled += n
			tokens -= n
			if p.filled == p.slots {
				s.open = s.open[1:]
			}
		}
		return nil
	}
	for i := first / c.of.Block; i*c.of.Block < s.tokens; i++ {
		b := s.table[i]
		if now := min(s.tokens-i*c.of.Block, c.of.Block); now > b.filled {
			c.of.now.token += now - b.filled
			b.filled = now
		}
	}
	return nil
}

// end notes that a sequence has its last token. Its empty contiguous slots are internal from then on.
func (c *Cache) end(s *sequenceState) {
	if s.ended {
		return
	}
	s.ended = true
	now := &c.of.now
	now.running--
	c.of.through(s)
	if c.of.Block == 0 {
		for _, p := range s.open {
			c.of.never(p.slots-p.filled, p.start)
		}
		s.open = nil
		now.token -= s.tokens
		now.dead += s.held - s.dead
		s.dead = s.held
	}
}

// Free frees the slots of a sequence. Blocks that lie wholly in the first `kept` of them keep their
// content, if they are in no other table.
func (c *Cache) Free(time, sequence, kept int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	s := c.sequences[sequence]
	if s == nil && c.hosted[sequence] != nil {
		c.of.through(&c.hosted[sequence].sequenceState)
		delete(c.hosted, sequence)
		return nil
	}
	if s == nil {
		return fmt.Errorf("a free of sequence %d, which has no slots", sequence)
	}
	if kept < 0 || kept > s.held || kept > 0 && c.of.Block == 0 {
		return fmt.Errorf("sequence %d is freed but for %d of its %d slots", sequence, kept, s.held)
	}
	c.end(s)
	delete(c.sequences, sequence)
	if c.of.Block == 0 {
		now := &c.of.now
		now.held -= s.held
		now.dead -= s.dead
		if c.slots == 0 {
			now.capacity -= s.held
		}
	}
	for i, b := range s.table {
		c.leave(b, (int64(i)+1)*c.of.Block <= kept)
	}
	return nil
}

// End ends the cache.
func (c *Cache) End(time int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(c.sequences)) {
		if err := c.Free(time, number, 0); err != nil {
			return err
		}
	}
	for number := range c.kept {
		c.forget(number)
	}
	clear(c.hosted)
	c.of.now.capacity -= c.slots
	c.of.now.null -= c.null
	return nil
}
