package iterations

import (
	"cmp"
	"slices"
)

// mostPoints bounds the points of a course. When there are more, every second one is left out.
const mostPoints = 96

// Groups that are no context of an alloc event.
const (
	everything = -1 // all that is held, where it is not known by context
	libraries  = -2 // and below: the other libraries, in order of first use
	// mostContexts bounds the contexts that are kept apart.
	mostContexts = 1 << 20
)

// holding is what a group of blocks holds. blocks is 0 where it is not known.
type holding struct {
	group         int32
	blocks, bytes int64
}

// holdings are those of a device now, by the context of the alloc event: module, stack or label of what requested them.
type holdings struct {
	by   []holding // by context
	work int64     // requested so far
}

func (h *holdings) add(context int32, blocks, bytes int64) {
	if uint(context) >= uint(len(h.by)) {
		context = h.extend(context)
	}
	g := &h.by[context]
	g.blocks += blocks
	g.bytes += bytes
}

// extend makes room for a context. Contexts beyond mostContexts are one group.
func (h *holdings) extend(context int32) int32 {
	if uint32(context) >= mostContexts {
		context = 0
	}
	for int(context) >= len(h.by) {
		h.by = append(h.by, holding{group: int32(len(h.by))})
	}
	return context
}

// point is a point of a trace at which a job that does not leak holds what it held at the one before.
type point struct {
	x         float64 // iterations, requests or seconds
	seq, time int64
	work      int64     // requested up to there
	held      []holding // ascending by group
}

// at returns what a group holds at the point.
func (p *point) at(group int32) holding {
	at, found := slices.BinarySearchFunc(p.held, group, func(h holding, group int32) int { return cmp.Compare(h.group, group) })
	if !found {
		return holding{group: group}
	}
	return p.held[at]
}

// course keeps points of one kind in bounded memory. The first is left out: in it a job sets up.
type course struct {
	count  int64 // of all
	stride int64 // of those that are kept
	points []point
}

func (c *course) add(seq, time int64, others []int64, now *holdings) {
	c.count++
	c.stride = max(c.stride, 1)
	if c.count == 1 || (c.count-2)%c.stride != 0 {
		return
	}
	if len(c.points) == mostPoints {
		for i := range mostPoints / 2 {
			c.points[i] = c.points[2*i]
		}
		clear(c.points[mostPoints/2:])
		c.points = c.points[:mostPoints/2]
		if c.stride *= 2; (c.count-2)%c.stride != 0 {
			return
		}
	}
	p := point{x: float64(c.count - 1), seq: seq, time: time, work: now.work}
	for i := len(others) - 1; i >= 0; i-- {
		p.held = append(p.held, holding{int32(libraries - i), 0, others[i]})
	}
	for i := range now.by {
		if now.by[i].blocks != 0 {
			p.held = append(p.held, now.by[i])
		}
	}
	c.points = append(c.points, p)
}
