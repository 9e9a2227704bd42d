package kvcache

import (
	"errors"
	"fmt"
)

// contiguous is the memory under Max, Pow2 and Oracle. Each request reserves one piece: a row for each
// of its sequences, of as many slots as the policy says,
//
//	          c tokens so far    F in the end          R reserved
//	┌────────────────────────┬──────────────────────┬─────────────────────┐
//	│         token          │       reserve        │      internal       │
//	│         token          │       reserve        │      internal       │
//	└────────────────────────┴──────────────────────┴─────────────────────┘
//
// and an allocator returns a piece that may be larger: the difference is rounding. Each sequence has
// its own copy of a common prompt.
//
// Max reserves a fixed length, Pow2 the prompt plus the output rounded up to a power of two, Oracle the
// length that will be needed; none reserves more than the model's limit. A request that outgrows its
// reservation moves to a new one of twice the size, and the old one is freed after that. Until
// then its reserve ends at the end of the reservation.
type contiguous struct {
	policy    Policy
	maxLength int64 // 0: no limit
	pieces    allocator
	width     int64 // sequences of a prompt

	// Sums over all running requests, in slots.
	token, reserve, internal, rounding int64
}

// allocator hands out pieces of a row of slots.
type allocator interface {
	// alloc places size slots, at least 1.
	alloc(size int64) (piece, bool)
	// free frees a piece that alloc returned.
	free(p piece)
	// serves says whether alloc would succeed now.
	serves(size int64) bool
	// available returns how many slots are in no piece.
	available() int64
	// most returns the largest size that an empty memory serves.
	most() int64
}

// piece is a range of slots that were handed out.
type piece struct {
	start int64
	size  int64 // at least the requested size
}

// reservation is the memory of a running request.
type reservation struct {
	piece   piece
	columns int64 // tokens reserved for each sequence
	tokens  int64 // of each sequence, at most columns
}

func newContiguous(o Options) (*contiguous, error) {
	c := &contiguous{policy: o.Policy, maxLength: int64(o.MaxLength), width: int64(max(o.Sampling.Width, 1))}
	if c.policy.Kind == Max && c.policy.Length < 1 {
		return nil, errors.New("the policy max needs the length that is reserved")
	}
	switch o.Policy.Allocator {
	case Buddy:
		c.pieces = newBuddy(o.Capacity)
	case FirstFit:
		c.pieces = newFirstFit(o.Capacity)
	case BestFit:
		pieces, err := newBestFit(o.Capacity)
		if err != nil {
			return nil, err
		}
		c.pieces = pieces
	default:
		return nil, fmt.Errorf("allocator %d is not known", o.Policy.Allocator)
	}
	return c, nil
}

// columns is how many tokens are reserved for each sequence of a request that is about to have
// so many.
func (c *contiguous) columns(r *Request, tokens int64) int64 {
	var n int64
	switch c.policy.Kind {
	case Max:
		n = int64(c.policy.Length)
	case Pow2:
		n = int64(r.Prompt) + powerOfTwo(int64(r.Output))
	case Oracle:
		n = int64(r.Length())
	}
	n = c.limit(n)
	for n < tokens {
		n = c.limit(2 * n)
	}
	return n
}

// limit is n, or the model's limit if that is less. What a request needs is never above it.
func (c *contiguous) limit(n int64) int64 {
	if c.maxLength > 0 {
		return min(n, c.maxLength)
	}
	return n
}

// rows is how many sequences a request has from the start.
func (c *contiguous) rows(r *Request) int64 { return int64(max(r.Prompts, 1)) * c.width }

func (c *contiguous) possible(r *Request) bool {
	final := int64(r.Length())
	return (c.maxLength == 0 || final <= c.maxLength) && c.rows(r)*c.columns(r, final) <= c.pieces.most()
}

func (c *contiguous) admit(g *group) bool {
	tokens := int64(g.length())
	columns := c.columns(&g.request, tokens+1)
	p, ok := c.pieces.alloc(int64(g.sequences) * columns)
	if !ok {
		return false
	}
	v := &reservation{piece: p, columns: columns, tokens: tokens}
	g.private = v
	c.add(g, v, 1)
	return true
}

func (c *contiguous) grow(g *group) bool {
	v := g.private.(*reservation)
	if v.tokens < v.columns {
		c.add(g, v, -1)
		v.tokens++
		c.add(g, v, 1)
		return true
	}
	columns := c.columns(&g.request, v.tokens+1)
	p, ok := c.pieces.alloc(int64(g.sequences) * columns)
	if !ok {
		return false
	}
	c.add(g, v, -1)
	c.pieces.free(v.piece)
	*v = reservation{piece: p, columns: columns, tokens: v.tokens + 1}
	c.add(g, v, 1)
	return true
}

func (c *contiguous) release(g *group) {
	v := g.private.(*reservation)
	c.add(g, v, -1)
	c.pieces.free(v.piece)
	g.private = nil
}

// swapOut is false: reservations are dropped and computed again.
func (c *contiguous) swapOut(*group) bool { return false }

// add adds a reservation to the sums, or takes it away with sign -1.
func (c *contiguous) add(g *group, v *reservation, sign int64) {
	rows, final := int64(g.sequences), int64(g.request.Length())
	c.token += sign * rows * v.tokens
	c.reserve += sign * rows * (min(final, v.columns) - v.tokens)
	c.internal += sign * rows * max(v.columns-final, 0)
	c.rounding += sign * (v.piece.size - rows*v.columns)
}

func (c *contiguous) shares(head *Request) Shares {
	s := Shares{Token: c.token, Reserve: c.reserve, Internal: c.internal, Rounding: c.rounding}
	free := c.pieces.available()
	if head != nil && !c.pieces.serves(c.rows(head)*c.columns(head, int64(head.Prompt)+1)) {
		s.Fragmented = free
	} else {
		s.Idle = free
	}
	return s
}
