package tune

// pools are the arenas of pools by number. While a pool is in use the hook unmaps nothing of it. Once its use count is 0, the hook
// unmaps its free memory with that of other arenas. No event records that count, so a replay unmaps it from the first time that
// the recording does. A reclaim before that proves nothing: the pool may have had nothing free.
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
