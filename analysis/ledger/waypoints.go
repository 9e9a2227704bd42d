package ledger

// newest has the newest segment that starts in each bucket of addresses; buckets a multiple of its length apart share a
// place. Most searches go on from there, and need no waypoint.
type newest [1 << 14]int32

// bucket is 1<<20 bytes wide.
const bucket = 20

func (n *newest) of(bucket int64) *int32 { return &n[bucket&int64(len(n)-1)] }

// newestBelow is the newest segment of the bucket of addr, or of one of the few below, if it is one of the arena and not
// above addr; else none.
func (l *Ledger) newestBelow(ar *Arena, addr int64) int32 {
	for at := addr >> bucket; ar.head != none && at > addr>>bucket-waypointSteps; at-- {
		i := *l.newest.of(at)
		if s := &l.segments[i]; s.Addr>>bucket == at && s.Addr <= addr && s.Size > 0 && s.arena == ar.Index {
			return i
		}
	}
	return none
}

// waypointSteps is how many segments apart the waypoints of an arena are. A search starts at a waypoint, goes on segment by
// segment, and leaves new waypoints; it deletes a waypoint whose segment is gone. A search only passes segments that were
// added, or lost their waypoint, since the last one: so the steps of all searches are at most in proportion to the events.
const waypointSteps = 4 // a step misses the cache

// waypointBelow is the segment at the greatest waypoint of an arena that is not above addr; none where there is none.
func (l *Ledger) waypointBelow(ar *Arena, addr int64) int32 {
	for {
		start, i := int64(0), none
		ar.waypoints.Descend(addr, func(key int64, segment int32) bool {
			start, i = key, segment
			return false
		})
		if i == none {
			return none
		}
		if s := &l.segments[i]; s.Addr == start && s.Size > 0 && s.arena == ar.Index {
			return i
		}
		ar.waypoints.Delete(start)
	}
}

// noteWaypoint makes a segment of an arena a waypoint.
func (l *Ledger) noteWaypoint(ar *Arena, i int32) {
	if ar.waypoints.Len() > ar.segments {
		ar.waypoints.Clear() // most of them have gone
	}
	ar.waypoints.Set(l.segments[i].Addr, i)
}
