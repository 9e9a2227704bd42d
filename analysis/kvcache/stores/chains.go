package stores

import "math/bits"

// chains find blocks by numbers that they go by, the one added last first. A map of Go would do
// the same; but blocks come and go by the million, each is in once, and a link beside its number
// takes one access to memory where a map takes several.
type chains struct {
	size  int     // blocks
	heads []int32 // of the chains, a power of two that is at least the blocks; a block + 1, 0 is none
	tags  []tag   // of each block; nil until there is a number
}

// tag is the number of a block, and what comes behind it in its chain.
type tag struct {
	number uint64 // 0: none, and in no chain
	next   int32
}

// number is what a block goes by, whether it is in a chain or not; 0 is none.
func (c *chains) number(i int32) uint64 {
	if c.tags == nil {
		return 0
	}
	return c.tags[i].number
}

// call gives a block that is in no chain another number.
func (c *chains) call(i int32, number uint64) {
	if c.tags == nil {
		if number == 0 {
			return
		}
		c.tags, c.heads = make([]tag, c.size), make([]int32, 1<<bits.Len(uint(c.size-1)))
	}
	c.tags[i].number = number
}

// head is where the chain begins that a number belongs to. Numbers are spread over all their bits.
func (c *chains) head(number uint64) *int32 { return &c.heads[number&uint64(len(c.heads)-1)] }

// first is the block of a number that was added last, or none.
func (c *chains) first(number uint64) int32 {
	if c.tags == nil {
		return none
	}
	i := *c.head(number) - 1
	for i != none && c.tags[i].number != number {
		i = c.tags[i].next
	}
	return i
}

// add puts a block into the chain of its number, which is not 0.
func (c *chains) add(i int32) {
	t := &c.tags[i]
	head := c.head(t.number)
	t.next = *head - 1
	*head = i + 1
}

// remove takes a block out of the chain of its number.
func (c *chains) remove(i int32) {
	t := &c.tags[i]
	head := c.head(t.number)
	if *head == i+1 {
		*head = t.next + 1
		return
	}
	before := *head - 1
	for c.tags[before].next != i {
		before = c.tags[before].next
	}
	c.tags[before].next = t.next
}
