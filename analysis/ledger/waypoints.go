package ledger

import "github.com/tidwall/btree"

// waypoints are starts of segments of an arena, from where a search goes on segment by segment: those
// that searches came by, waypointSteps apart. One that has gone is forgotten when it is met. So the
// steps of a search are paid for by the events since the last one: what it passes was added or
// lost its waypoint since.
type waypoints struct {
	starts btree.Set[int64]
}

const waypointSteps = 4 // a step misses the cache

// below is the segment at the greatest waypoint that is not above addr, as `find` has it; none
// where there is none.
func (w *waypoints) below(addr int64, find func(start int64) int32) int32 {
	for {
		start, ok := int64(0), false
		w.starts.Descend(addr, func(key int64) bool {
			start, ok = key, true
			return false
		})
		if !ok {
			return none
		}
		if i := find(start); i != none {
			return i
		}
		w.starts.Delete(start)
	}
}

// note makes a start a waypoint of an arena of so many segments.
func (w *waypoints) note(start int64, segments int) {
	if w.starts.Len() > segments {
		w.starts.Clear() // most of them have gone
	}
	w.starts.Insert(start)
}
