package bfc

import (
	"math"
	"slices"
)

const (
	// noPlace is the address of a request that has no place in a plan.
	noPlace = math.MaxUint64
	// lookahead is how many requests of a plan are compared with a request of the job. A request of
	// the plan is no longer looked for when one lookahead/2 behind it was served.
	lookahead = 32
)

// plan says where the blocks of an iteration are placed.
type plan struct {
	requests []planned // in order
	cursor   int       // the first request that is looked for in this iteration
	first    uint32    // the plan's first iteration
}

// planned is a request of a plan.
type planned struct {
	size   uint64    // bytes, a multiple of the granule
	places [2]uint64 // addresses in even and odd iterations, or noPlace
	first  uint64    // address in the plan's first iteration, or noPlace
	later  bool      // its block ends later: it has no place and is served by best fit, which is no miss
	served uint32    // 1 + the last iteration in which it was served
}

// match returns the index of the plan's request that a request is taken for; -1: none.
func (p *plan) match(rounded uint64, iteration uint32) int {
	for k := p.cursor; k < len(p.requests) && k < p.cursor+lookahead; k++ {
		if r := &p.requests[k]; r.size == rounded && r.served != iteration+1 {
			return k
		}
	}
	return -1
}

// serve notes that request k of the plan was served.
func (p *plan) serve(k int, iteration uint32) {
	p.requests[k].served = iteration + 1
	p.cursor = max(p.cursor, k-lookahead/2)
	for p.cursor < len(p.requests) && p.requests[p.cursor].served == iteration+1 {
		p.cursor++
	}
}

// place returns the address of request k in an iteration, or noPlace.
func (p *plan) place(k int, iteration uint32) uint64 {
	if iteration == p.first {
		return p.requests[k].first
	}
	return p.requests[k].places[iteration&1]
}

// misses says whether an iteration counts as missed where request k is served outside of its place.
func (p *plan) misses(k int, iteration uint32) bool {
	r := &p.requests[k]
	return !r.later && (iteration != p.first || r.first != noPlace || r.places[iteration&1] == noPlace)
}

// allocPlanned is Alloc with PlacementPlanned.
func (a *Allocator) allocPlanned(rounded, size uint64) (Block, bool) {
	p := a.planner
	k := p.plan.match(rounded, a.ended)
	index := none
	if k >= 0 {
		index = a.takePlace(p.plan.place(k, a.ended), rounded)
	}
	if index == none {
		if index = a.find(rounded); index == none {
			return Block{}, false
		}
		p.missed[0] = p.missed[0] || k < 0 || p.plan.misses(k, a.ended)
	}
	if k >= 0 {
		p.plan.serve(k, a.ended)
	}
	block := a.handOut(index, size)
	p.origins[index] = p.requested(rounded, a.ended)
	return block, true
}

// takePlace returns the chunk of just a place, in no free set; or none, if a block is in the way or the
// memory refuses to map it.
func (a *Allocator) takePlace(addr, rounded uint64) int32 {
	if addr == noPlace {
		return none
	}
	if last := a.growing(); last != nil && addr+rounded > last.end() && a.freeTo(last, addr) {
		lack := addr + rounded - last.end()
		a.unmapElsewhere(lack, a.chunks[last.wall].prev)
		a.extendBy(lack)
	}
	index := a.endingAfter(addr + rounded)
	if index == none || a.chunks[index].addr > addr {
		return none
	}
	if !a.unmapped.empty() && !a.mapFor(index, byteRange{addr &^ (a.granularity - 1), roundUp(addr+rounded, a.granularity)}) {
		return none
	}
	return a.carve(index, addr, rounded)
}

// growing returns the last region if growths lengthen it by what is needed, so that a plan can have
// places behind it; else nil.
func (a *Allocator) growing() *region {
	last := len(a.regions) - 1
	if a.options.Growth != Needed || !a.memory.Coalesces() || last < 0 || a.regions[last].wall != a.lastGrown {
		return nil
	}
	return &a.regions[last]
}

// freeTo says whether a region has no block from addr on; addr may be behind its end.
func (a *Allocator) freeTo(r *region, addr uint64) bool {
	tail := &a.chunks[a.chunks[r.wall].prev]
	return addr >= r.end() || tail.id == freeID && addr >= tail.addr
}

// makePlan makes a plan for iterations with the given lifetimes, which are those of the iteration that
// just ended. It returns false, and keeps the plan there is, if that would take too long.
func (a *Allocator) makePlan(lifetimes []lifetime) bool {
	p := &a.planner.plan
	length := a.planner.position
	obstacles, leaving := a.obstacles(lifetimes)
	if pairs(lifetimes, length)+uint64(len(lifetimes)*len(obstacles)/obstaclesPerPair) > maxPlanWork {
		return false
	}
	p.first = a.ended
	p.requests = p.requests[:0]
	for i := range lifetimes {
		l := &lifetimes[i]
		p.requests = append(p.requests, planned{size: l.size, places: [2]uint64{noPlace, noPlace}, first: noPlace, later: l.end == endsLater})
	}
	around := newArrangement(obstacles, nil, 2*length)
	order := bySize(lifetimes)
	for _, i := range order {
		for parity := range uint32(2) {
			p.requests[i].places[parity] = around.place(lifetimes[i].size, lifetimes[i].span(length, parity))
		}
	}
	p.placeFirst(lifetimes, order, newArrangement(obstacles, leaving, 2*length))
	return true
}

// placeFirst finds the places of the plan's first iteration, in which blocks of the iteration before
// it are where no plan put them, until they are freed. A request whose place would overlap one of them
// gets another for this iteration, which overlaps no block of it nor of the next.
func (p *plan) placeFirst(lifetimes []lifetime, order []int, around *arrangement) {
	length := around.circle / 2
	// Keep the places that overlap no leaving block, and note those of the iteration behind this one.
	for i := range lifetimes {
		r, l := &p.requests[i], &lifetimes[i]
		now, then := r.places[p.first&1], r.places[(p.first+1)&1]
		own := byteRange{now, now + r.size}
		if now != noPlace && !slices.ContainsFunc(around.leaving, func(left leaver) bool { return left.meets(own, l.span(length, 0)) }) {
			r.first = now
			around.put(own, l.span(length, 0))
		}
		if then != noPlace { // as far as the end of the next iteration
			next := l.span(length, 1)
			around.put(byteRange{then, then + r.size}, positions{next.from, min(next.to, around.circle)})
		}
	}
	// Find other places for the rest.
	for _, i := range order {
		if r := &p.requests[i]; r.first == noPlace {
			r.first = around.place(r.size, lifetimes[i].span(length, 0))
		}
	}
}

// expectPlan notes the plan's places as used now, and makes earlier uses count no more: the places are
// all that is expected to be used. Blocks in use need no note, since their frees note them.
func (a *Allocator) expectPlan() {
	if !a.notes() {
		return
	}
	a.forgotten = a.ended
	for i := range a.planner.plan.requests {
		r := &a.planner.plan.requests[i]
		a.expectPlace(r.places[0], r.size)
		a.expectPlace(r.places[1], r.size)
		if a.planBegins() {
			a.expectPlace(r.first, r.size)
		}
	}
}

// expectPlace notes a place as used now, up to the end of its region; not one that begins in none.
func (a *Allocator) expectPlace(addr, size uint64) {
	if at, _, ok := a.Locate(addr); ok {
		a.noteUse(addr, min(size, a.regions[at].end()-addr))
	}
}

// planBegins says whether this is a plan's first iteration. In it blocks come one by one while those of
// the iteration before are freed. So pages that the plan expects may still be unmapped elsewhere, and
// are not mapped ahead.
func (a *Allocator) planBegins() bool {
	return a.planner != nil && a.planner.made > 0 && a.planner.plan.first == a.ended
}

// obstacles returns the ranges where nothing can be placed, addresses ascending: all that is outside
// of regions, and blocks that are not predicted to be freed in the coming iteration. leaving are the
// other blocks.
func (a *Allocator) obstacles(lifetimes []lifetime) (out []byteRange, leaving []leaver) {
	end := uint64(0)
	for i := range a.regions {
		r := &a.regions[i]
		out = append(out, byteRange{end, r.addr})
		for index := a.chunks[r.wall].next; index != r.wall; index = a.chunks[index].next {
			c := &a.chunks[index]
			if c.id == freeID {
				continue
			}
			if o := a.planner.origins[index]; o.request > 0 && o.iteration+1 == a.ended && lifetimes[o.request-1].end == endsNext {
				leaving = append(leaving, leaver{byteRange{c.addr, c.addr + c.size}, lifetimes[o.request-1].to})
			} else if last := &out[len(out)-1]; last.to == c.addr {
				last.to += c.size
			} else {
				out = append(out, byteRange{c.addr, c.addr + c.size})
			}
		}
		end = r.end()
	}
	if a.growing() != nil {
		end = noPlace
	}
	return append(out, byteRange{end, noPlace}), leaving
}
