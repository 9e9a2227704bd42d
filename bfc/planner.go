package bfc

import (
	"cmp"
	"slices"
)

const (
	// maxRequests bounds the requests of an iteration that is planned.
	maxRequests = 1 << 16
	// maxPlanWork bounds the time that a plan takes, to about three seconds: in pairs of blocks that
	// are live together, and in requests times obstacles, obstaclesPerPair of which take as long.
	maxPlanWork      = 1 << 26
	obstaclesPerPair = 16
	// maxPositions bounds the positions of an iteration that is planned.
	maxPositions = 4 * maxRequests
	// likeContext is how many requests in a row have to be of the same sizes for one to be the
	// like of another.
	likeContext = 4
	// maxWaitBits bounds the powers of two that are iterations between two tries to make a plan.
	maxWaitBits = 16
)

// origin is the request that a block was handed out for.
type origin struct {
	request   int32  // 1 + its index among the requests of its iteration; 0 where it is not noted
	iteration uint32 // as Allocator.ended counts them
}

// ending says when the block of a request is freed.
type ending uint8

const (
	endsLater ending = iota // after the next iteration, or nobody knows yet
	endsSame                // in the iteration of its request
	endsNext                // in the one after it
)

// lifetime is what is known of the block of a request. Positions count the requests and frees
// of an iteration from 0.
type lifetime struct {
	size     uint64 // bytes, a multiple of the granule
	from, to uint32 // positions of the request and, in the iteration of the free, of the free
	end      ending
}

// planner notes the requests and frees of iterations, and decides when to make a plan.
type planner struct {
	ends    freeSet  // the free chunks by where they end, all as if of the size of a granule
	origins []origin // by index, of the chunks in use

	current, previous []lifetime // by request, of this iteration and the one before
	position          uint32     // of the next request or free
	partial           [2]bool    // not all of this iteration, or the one before, is noted

	plan   plan
	missed [2]bool // the plan did not hold in this iteration, or the one before, as far as they went
	made   uint32  // plans
	tries  uint32  // to make one
	next   uint32  // ended iterations from which on another one is tried
}

func newPlanner() *planner {
	p := &planner{origins: make([]origin, 1)}
	p.ends.nodes = make([]freeNode, 1)
	return p
}

// addSlot makes room for the next index.
func (p *planner) addSlot() {
	p.ends.addSlot()
	p.origins = append(p.origins, origin{})
}

// requested notes a request that was served.
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

// advance returns the position and goes on to the next.
func (p *planner) advance() uint32 {
	if p.position == maxPositions {
		p.partial[0] = true
		return p.position
	}
	p.position++
	return p.position - 1
}

// due says whether a plan is wanted at the end of an iteration: there is none, or it has not
// held twice running.
func (p *planner) due(ended uint32) bool {
	return p.missed == [2]bool{true, true} && len(p.current) > 0 && ended >= p.next && p.partial == [2]bool{}
}

// predictLifetimes returns the lifetimes of the iteration that has just ended. Of blocks that are still
// live they are those of their likes of the iteration before. It returns nil if too many
// requests have no like there: the job does not repeat itself.
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

// pairs counts, over an iteration of many alike, the blocks with a place that are live when another
// is asked for.
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

// matchLikes finds likes for requests that have none, in order among those that are alike: that
// and the requests before them (step -1) or after (1) are of the same sizes. It returns how many.
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

// context is a request with a hash of its size and of those before or after it.
type context struct {
	key     uint64
	request int
}

// contexts are those of all requests, in the order of keys and then of requests.
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

// endIteration makes this iteration the one before.
func (p *planner) endIteration() {
	p.current, p.previous = p.previous[:0], p.current
	p.position = 0
	p.partial = [2]bool{false, p.partial[0]}
	p.missed = [2]bool{false, p.missed[0]}
	p.plan.cursor = 0
}

// endPlanned is what the end of an iteration is to plans.
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
	case p.made > 0 && a.ended-p.plan.first <= 2: // blocks of the first iteration were in the second, too
		a.expectPlan()
	}
	p.endIteration()
}
