package kv

import "fmt"

// hostedSequence is a sequence whose content is on the host.
type hostedSequence struct {
	sequenceState
	content int64 // tokens there
}

// SwapOut copies the content of a sequence to the host and frees its blocks. tokens are its content where no mark
// said it before, else 0.
func (c *Cache) SwapOut(time, sequence, tokens int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	s := c.sequences[sequence]
	switch {
	case c.of.Block == 0:
		return fmt.Errorf("sequence %d of a contiguous cache goes to the host: only blocks can", sequence)
	case tokens < 0 || tokens > mostSlots:
		return fmt.Errorf("sequence %d goes to the host with %d tokens", sequence, tokens)
	case s == nil && tokens > 0 && c.hosted[sequence] == nil:
		c.hosted[sequence] = &hostedSequence{sequenceState{number: sequence, start: c.of.at}, tokens}
		return nil
	case s == nil:
		return fmt.Errorf("sequence %d goes to the host, and has no slots", sequence)
	case s.ended:
		return fmt.Errorf("sequence %d goes to the host, and has ended", sequence)
	}
	h := &hostedSequence{*s, s.tokens}
	h.table, h.held, h.tokens = nil, 0, 0
	delete(c.sequences, sequence)
	c.of.now.running--
	c.of.swappedOut += int64(len(s.table))
	for _, b := range s.table {
		c.leave(b, false)
	}
	c.hosted[sequence] = h
	return nil
}

// SwapIn gives a sequence on the host adjacent blocks, which its content fills. It may come back in several calls.
func (c *Cache) SwapIn(time, sequence, first, slots int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	h := c.hosted[sequence]
	s := c.sequences[sequence]
	if h == nil {
		return fmt.Errorf("sequence %d comes back from the host, where it is not", sequence)
	}
	if s == nil {
		s = &h.sequenceState
		c.sequences[sequence] = s
		c.of.now.running++
	}
	tokens := s.tokens
	if err := c.Reserve(time, sequence, first, slots, 0); err != nil {
		return err
	}
	c.of.swappedIn += slots / c.of.Block
	back := min(h.content, slots)
	if h.content -= back; h.content == 0 {
		delete(c.hosted, sequence)
	}
	bulk, step := s.bulk, s.step
	err := c.fill(s, back)
	s.bulk, s.step = bulk, step
	if err == nil && s.tokens != tokens+back {
		return fmt.Errorf("sequence %d came back with %d tokens of %d", sequence, s.tokens, tokens+back)
	}
	return err
}
