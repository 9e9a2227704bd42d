package tune

// pools are the arenas of pools by number. While somebody holds a pool the hook unmaps nothing of it. No event says when the
// last holder releases it, but from then on the hook unmaps free memory of the pool with that of other arenas. A replay does so
// from the first time that the recording shows it. A reclaim before that shows nothing: the pool may have had nothing free.
type pools map[int32]*pool

type pool struct {
	place    place // device and pool
	unpinned bool
}

// begin appends what it means for the arenas of a pool that it is held again.
func (p pools) begin(at place, o op, out []op) []op {
	for number, each := range p {
		if each.place == at && each.unpinned {
			each.unpinned = false
			o.kind, o.arena = opPin, number
			out = append(out, o)
		}
	}
	return out
}

// unmapped appends what it means for the operation's arena that the recorded allocator has unmapped some of it.
func (p pools) unmapped(o op, out []op) []op {
	if each := p[o.arena]; each != nil && !each.unpinned {
		each.unpinned = true
		o.kind = opUnpin
		out = append(out, o)
	}
	return out
}
