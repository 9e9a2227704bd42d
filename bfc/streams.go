package bfc

// Streams decides, for the arenas of a device with growth Pages, how much of what others hold idle a request takes before its
// arena maps more: so much that all together map no more than their blocks have touched at a time, and a little slack. The
// zero value is that of a device without arenas. Counts are in bytes.
type Streams struct {
	most  uint64 // the most that blocks of all arenas have touched at a time, as far as requests that map have seen
	slack uint64 // steps of it
	moved uint64 // what requests took of other arenas in this iteration
}

// Want returns how many bytes a request takes of other arenas before it maps bytes. Its own arena has unmapped released bytes for
// it. mapped and touched are sums of all arenas.
func (s *Streams) Want(bytes, released, mapped, touched uint64) uint64 {
	back := min(bytes, released)
	lack := bytes - back
	s.most = max(s.most, touched+lack)
	allowed := s.most + s.most/slackSteps*s.slack
	return lack - min(lack, allowed-min(allowed, mapped+back))
}

// Took notes that a request took bytes of another arena.
func (s *Streams) Took(bytes uint64) { s.moved += bytes }

// EndIteration ends an iteration; mapped is the sum of all arenas.
func (s *Streams) EndIteration(mapped uint64) {
	if s.moved > mapped/movedShare {
		s.slack = min(s.slack+1, mostSlack)
	}
	s.moved = 0
}

// Touched returns the bytes of pages that blocks touch, with growth Pages.
func (a *Allocator) Touched() uint64 {
	if a.pager == nil {
		return 0
	}
	return a.pager.live * a.granularity
}

// Movable returns the pages that a request of another arena takes, so many at most: pages that nobody has registered, that no
// block touches, and that are clear. They are in the order in which a request of this arena takes them, adjacent ones as one
// range. It changes nothing.
func (a *Allocator) Movable(pages uint64) []Range {
	var ranges []Range
	if a.pager == nil {
		return nil
	}
	a.listFree(pages, a.over, byteRange{})
	for age := ages - 1; age >= 0 && pages > 0; age-- {
		list := a.pager.victims[age]
		list = list[:min(pages, uint64(len(list)))]
		pages -= uint64(len(list))
		for len(list) > 0 {
			run, n := a.firstRun(list)
			ranges = append(ranges, Range{run.from, run.bytes()})
			list = list[n:]
		}
	}
	return ranges
}
