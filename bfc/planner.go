package bfc

import (
	"cmp"
	"slices"
)

const (
	// maxRequests is the most requests of an iteration that can be planned.
	maxRequests = 1 << 16
	// maxPlanWork bounds the time of making a plan, to about three seconds. It is in pairs of blocks
	// that are live together; a request that passes obstaclesPerPair obstacles takes as long as a pair.
	maxPlanWork      = 1 << 26
	obstaclesPerPair = 16
	// maxPositions is the most positions of an iteration that can be planned.
	maxPositions = 4 * maxRequests
	// likeContext is how many requests in a row must have the same sizes in two iterations for one to
	// be the like of the other.
	likeContext = 4
	// maxWaitBits: try number n waits for 2^n iterations, at most 2^maxWaitBits.
	maxWaitBits = 16
)

// origin is the request that a block was handed out for, where that is noted.
type origin struct {
	request   int32  // 1 + its index among the requests of its iteration; 0: not noted
	iteration uint32 // from 0
}

// ending says when the block of a request is freed.
type ending uint8

const (
	endsLater ending = iota // after the next iteration, or not known
	endsSame                // in the iteration of its request
	endsNext                // in the one after it
)

// lifetime is when the block of a request is live, as far as it is known. Positions number the requests
// and frees of an iteration from 0.
type lifetime struct {
	size     uint64 // bytes, a multiple of the granule
	from, to uint32 // positions of the request and, in the iteration of the free, of the free
	end      ending
}

// planner notes the requests and frees of iterations, decides when to make a plan, and has the plan.
type planner struct {
	ends    freeSet  // the free chunks by the address of their end; the set has 1 granule as the size of all
	origins []origin // by index, of chunks in use

	current, previous []lifetime // by request, of this iteration and the one before
	position          uint32     // of the next request or free
	partial           [2]bool    // this iteration, and the one before: more requests or positions than are noted

	plan   plan
	missed [2]bool // this iteration, and the one before: a request missed, or their number differs from the plan's
	made   uint32  // how many plans were made
	tries  uint32  // how many times making one was tried
	next   uint32  // the next try is when ended is at least this
}

func newPlanner() *planner {
	p := &planner{origins: make([]origin, 1)}
	p.ends.nodes = make([]freeNode, 1)
	return p
}

// addSlot makes room for one more slot.
func (p *planner) addSlot() {
	p.ends.addSlot()
	p.origins = append(p.origins, origin{})
}

// requested notes a request that succeeded, and returns the origin of its block.
func (p *planner) requested(rounded uint64, iteration uint32) origin {
	at := p.advance()
	if len(p.current) == maxRequests {
		p.partial[0] = true
		return origin{}
	}
	p.current = append(p.current, lifetime{size: rounded, from: at})
	return origin{int32(len(p.current)), iteration}
}

// freed notes the free of a block.
func (p *planner) freed(o origin, iteration uint32) {
	at := p.advance()
	switch {
	case o.request == 0:
	case o.iteration == iteration:
		l := &p.current[o.request-1]
		l.to, l.end = at, endsSame
	case o.iteration+1 == iteration:
		l := &p.previous[o.request-1]
		l.to, l.end = at, endsNext
	}
}

// advance returns the position of a request or free, and counts it.
func (p *planner) advance() uint32 {
	if p.position == maxPositions {
		p.partial[0] = true
		return p.position
	}
	p.position++
	return p.position - 1
}

// due says whether to try a plan at the end of an iteration: two iterations running were missed, and
// are completely noted.
func (p *planner) due(ended uint32) bool {
	return p.missed == [2]bool{true, true} && len(p.current) > 0 && ended >= p.next && p.partial == [2]bool{}
}

// predictLifetimes returns the lifetimes of the iteration that just ended. Blocks that are still live
// have the end of their likes of the iteration before. It returns nil if fewer than 7 of 8 requests
// have a like: the job does not repeat itself.
func (p *planner) predictLifetimes() []lifetime {
	like := make([]int, len(p.current)) // 1 + index in previous
	taken := make([]bool, len(p.previous))
	found := p.matchLikes(like, taken, -1) + p.matchLikes(like, taken, 1)
	if 8*found < 7*len(p.current) {
		return nil
	}
	lifetimes := slices.Clone(p.current)
	for i := range lifetimes {
		if l := &lifetimes[i]; l.end == endsLater && like[i] > 0 && p.previous[like[i]-1].end == endsNext {
			l.to, l.end = p.previous[like[i]-1].to, endsNext
		}
	}
	return lifetimes
}

// pairs returns, summed over the requests whose block has a place, how many other blocks with a place
// are live when the request is made, in an iteration that follows one like it.
func pairs(lifetimes []lifetime, length uint32) uint64 {
	freed := make([]bool, length)
	live, count := uint64(0), uint64(0)
	for i := range lifetimes {
		if l := &lifetimes[i]; l.end != endsLater {
			freed[l.to] = true
			if l.end == endsNext {
				live++
			}
		}
	}
	for position := range length {
		switch {
		case freed[position]:
			live--
		case len(lifetimes) > 0 && lifetimes[0].from == position:
			if lifetimes[0].end != endsLater {
				count += live
				live++
			}
			lifetimes = lifetimes[1:]
		}
	}
	return count
}

// matchLikes finds likes for requests that have none, and returns how many it finds. Two requests are
// alike if they and the requests before them (step -1) or behind them (step 1) have the same sizes;
// among those that are, they are paired in order.
func (p *planner) matchLikes(like []int, taken []bool, step int) int {
	found := 0
	before := contexts(p.previous, step)
	for _, c := range contexts(p.current, step) {
		for len(before) > 0 && (before[0].key < c.key || before[0].key == c.key && taken[before[0].request]) {
			before = before[1:]
		}
		if like[c.request] == 0 && len(before) > 0 && before[0].key == c.key {
			like[c.request] = 1 + before[0].request
			taken[before[0].request] = true
			found++
		}
	}
	return found
}

// context is a request with a hash of its size and of those before or behind it.
type context struct {
	key     uint64
	request int
}

// contexts returns the contexts of all requests, by key and then by request.
func contexts(l []lifetime, step int) []context {
	all := make([]context, len(l))
	for i := range l {
		key := uint64(0)
		for at, n := i, 0; n < likeContext && at >= 0 && at < len(l); at, n = at+step, n+1 {
			key = (key + l[at].size) * 0x9e3779b97f4a7c15
		}
		all[i] = context{key, i}
	}
	slices.SortFunc(all, func(a, b context) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.request, b.request)) })
	return all
}

// endIteration makes this iteration the one before it, and begins a new one.
func (p *planner) endIteration() {
	p.current, p.previous = p.previous[:0], p.current
	p.position = 0
	p.partial = [2]bool{false, p.partial[0]}
	p.missed = [2]bool{false, p.missed[0]}
	p.plan.cursor = 0
}

// endPlanned ends an iteration: it may make a plan, and notes what the plan expects to be used.
func (a *Allocator) endPlanned() {
	p := a.planner
	p.missed[0] = p.missed[0] || len(p.current) != len(p.plan.requests)
	var lifetimes []lifetime
	if p.due(a.ended) {
		p.tries++
		p.next = a.ended + 1<<min(p.tries, maxWaitBits)
		lifetimes = p.predictLifetimes()
	}
	switch {
	case lifetimes != nil && a.makePlan(lifetimes):
		p.made++
		a.expectPlan()
	case p.made > 0 && a.ended-p.plan.first <= 2: // blocks of the plan's first iteration can live in its second
		a.expectPlan()
	}
	p.endIteration()
}
