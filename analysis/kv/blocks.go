package kv

import (
	"fmt"
)

type blockState struct {
	number     int64
	references int64
	start      int64
	filled     int64
}

// use adds a block that is in no table to one.
func (c *Cache) use(number, filled int64) *blockState {
	b := &blockState{number: number, references: 1, start: c.of.at, filled: filled}
	c.blocks[number] = b
	now := &c.of.now
	if c.slots == 0 {
		now.capacity += c.of.Block
	}
	now.held += c.of.Block
	now.token += filled
	now.logical++
	now.unique++
	return b
}

// forget drops the content of a block, if it was kept.
func (c *Cache) forget(number int64) {
	if _, was := c.kept[number]; was {
		delete(c.kept, number)
		c.of.now.cached -= c.of.Block
		if c.slots == 0 {
			c.of.now.capacity -= c.of.Block
		}
	}
}

// Share adds adjacent blocks, of other tables or kept, to the table of a sequence: at its end, or in place
// of the block at position if that is not negative. For sequence All it says that the content of blocks
// in no table is kept.
func (c *Cache) Share(time, sequence, first, slots, position int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	if c.of.Block == 0 {
		return fmt.Errorf("sequence %d shares slots of a contiguous cache", sequence)
	}
	count := slots / c.of.Block
	if slots%c.of.Block != 0 || count < 1 || slots > c.most() || first < 0 || first > mostSlots || position >= 0 && count != 1 {
		return fmt.Errorf("sequence %d shares %d slots from block %d on", sequence, slots, first)
	}
	for number := first; number < first+count; number++ {
		if err := c.share(sequence, number, position); err != nil {
			return err
		}
	}
	return c.fits()
}

func (c *Cache) share(sequence, number, position int64) error {
	if sequence == All {
		if c.blocks[number] != nil {
			return fmt.Errorf("block %d is kept and in use", number)
		}
		c.keep(number, c.of.Block)
		return nil
	}
	b := c.blocks[number]
	filled, kept := c.kept[number]
	if b == nil && !kept {
		return fmt.Errorf("sequence %d shares block %d, which nobody uses and which was not kept", sequence, number)
	}
	s := c.sequence(sequence, 0)
	if position >= int64(len(s.table)) {
		return fmt.Errorf("sequence %d has %d blocks, and none at %d to replace", sequence, len(s.table), position)
	}
	if b == nil {
		c.forget(number)
		b = c.use(number, filled)
	} else {
		b.references++
		c.of.now.logical++
	}
	c.of.hits++
	c.of.hitSlots += c.of.Block
	if position < 0 {
		s.table = append(s.table, b)
		s.held += c.of.Block
		return nil
	}
	old := s.table[position]
	s.table[position] = b
	c.leave(old, false)
	return nil
}

// keep keeps the content of a block that is in no table.
func (c *Cache) keep(number, filled int64) {
	if _, was := c.kept[number]; !was {
		c.of.now.cached += c.of.Block
		if c.slots == 0 {
			c.of.now.capacity += c.of.Block
		}
	}
	c.kept[number] = filled
}

// leave removes a block from a table.
func (c *Cache) leave(b *blockState, keep bool) {
	now := &c.of.now
	now.logical--
	if b.references--; b.references > 0 {
		return
	}
	delete(c.blocks, b.number)
	now.unique--
	now.held -= c.of.Block
	now.token -= b.filled
	if c.slots == 0 {
		now.capacity -= c.of.Block
	}
	c.of.never(c.of.Block-b.filled, b.start)
	if keep {
		c.keep(b.number, b.filled)
	}
}

// Drop drops the content of blocks in a row that were kept.
func (c *Cache) Drop(time, first, slots int64) error {
	if err := c.of.Advance(time); err != nil {
		return err
	}
	if c.of.Block == 0 || slots%c.of.Block != 0 || slots > c.most() || first < 0 || first > mostSlots {
		return fmt.Errorf("the content of %d slots from %d on is dropped", slots, first)
	}
	for number := first; number < first+slots/c.of.Block; number++ {
		if _, was := c.kept[number]; !was {
			return fmt.Errorf("the content of block %d is dropped, which was not kept", number)
		}
		c.forget(number)
	}
	return nil
}
