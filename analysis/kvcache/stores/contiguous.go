package stores

import (
	"errors"

	"github.com/memprof/memprof/analysis/kvcache"
)

// contiguousStore is the memory under Max, Pow2 and Oracle: see the package comment.
type contiguousStore struct {
	policy    kvcache.Policy
	maxLength int64 // 0: no limit
	pieces    *buddy
	width     int64 // sequences of a prompt

	// Sums over all running requests, in slots.
	token, reserve, internal, rounding int64
}

// reservation is the memory of a running request.
type reservation struct {
	piece   piece
	columns int64 // tokens reserved for each sequence
	tokens  int64 // of each sequence, at most columns
}

func newContiguous(o kvcache.Options) (*contiguousStore, error) {
	c := &contiguousStore{policy: o.Policy, maxLength: int64(o.MaxLength), pieces: newBuddy(o.Capacity), width: int64(max(o.Sampling.Width, 1))}
	if c.policy.Kind == kvcache.Max && c.policy.Length < 1 {
		return nil, errors.New("the policy max needs the length that is reserved")
	}
	return c, nil
}

// columns is how many tokens are reserved for each sequence of a request that is about to have
// so many.
func (c *contiguousStore) columns(r *kvcache.Request, tokens int64) int64 {
	var n int64
	switch c.policy.Kind {
	case kvcache.Max:
		n = int64(c.policy.Length)
	case kvcache.Pow2:
		n = int64(r.Prompt) + 1<<order(int64(r.Output))
	case kvcache.Oracle:
		n = int64(r.Length())
	}
	n = c.limit(n)
	for n < tokens {
		n = c.limit(2 * n)
	}
	return n
}

// limit is n, or the model's limit if that is less. What a request needs is never above it.
func (c *contiguousStore) limit(n int64) int64 {
	if c.maxLength > 0 {
		return min(n, c.maxLength)
	}
	return n
}

// rows is how many sequences a request has from the start.
func (c *contiguousStore) rows(r *kvcache.Request) int64 { return int64(max(r.Prompts, 1)) * c.width }

func (c *contiguousStore) Possible(r *kvcache.Request) bool {
	final := int64(r.Length())
	return (c.maxLength == 0 || final <= c.maxLength) && c.rows(r)*c.columns(r, final) <= c.pieces.largest
}

func (c *contiguousStore) Admit(g *kvcache.Group) bool {
	tokens := int64(g.Length())
	columns := c.columns(&g.Request, tokens+1)
	p, ok := c.pieces.alloc(int64(g.Sequences) * columns)
	if !ok {
		return false
	}
	v := &reservation{piece: p, columns: columns, tokens: tokens}
	g.Private = v
	c.add(g, v, 1)
	return true
}

func (c *contiguousStore) Grow(g *kvcache.Group) bool {
	v := g.Private.(*reservation)
	if v.tokens < v.columns {
		c.add(g, v, -1)
		v.tokens++
		c.add(g, v, 1)
		return true
	}
	columns := c.columns(&g.Request, v.tokens+1)
	p, ok := c.pieces.alloc(int64(g.Sequences) * columns)
	if !ok {
		return false
	}
	c.add(g, v, -1)
	c.pieces.free(v.piece)
	*v = reservation{piece: p, columns: columns, tokens: v.tokens + 1}
	c.add(g, v, 1)
	return true
}

func (c *contiguousStore) Release(g *kvcache.Group) {
	v := g.Private.(*reservation)
	c.add(g, v, -1)
	c.pieces.free(v.piece)
	g.Private = nil
}

// SwapOut is false: reservations are dropped and computed again.
func (c *contiguousStore) SwapOut(*kvcache.Group) bool { return false }

// add adds a reservation to the sums, or takes it away with sign -1.
func (c *contiguousStore) add(g *kvcache.Group, v *reservation, sign int64) {
	rows, final := int64(g.Sequences), int64(g.Request.Length())
	c.token += sign * rows * v.tokens
	c.reserve += sign * rows * (min(final, v.columns) - v.tokens)
	c.internal += sign * rows * max(v.columns-final, 0)
	c.rounding += sign * (v.piece.size - rows*v.columns)
}

func (c *contiguousStore) Shares(head *kvcache.Request) kvcache.Shares {
	s := kvcache.Shares{Token: c.token, Reserve: c.reserve, Internal: c.internal, Rounding: c.rounding, Idle: c.pieces.slots}
	if head == nil {
		return s
	}
	switch need := c.rows(head) * c.columns(head, int64(head.Prompt)+1); {
	case need > s.Idle:
		s.Blocked, s.Idle = s.Idle, 0
	case !c.pieces.serves(need):
		s.Fragmented, s.Idle = s.Idle, 0
	}
	return s
}
