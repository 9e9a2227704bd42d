package bfc

import "slices"

func (n *naive) lose(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += n.memory.Granularity() {
		n.gone[at] = true
	}
	n.stats.Reserved -= bytes
}

// use notes the iteration in which pages were used last.
func (n *naive) use(addr, size uint64) {
	unit := n.memory.Granularity()
	for at := addr / unit * unit; at < addr+size; at += unit {
		n.used[at] = n.iteration
	}
}

// ranges lists the whole free pages of which wanted says so, neighbours joined in a span.
func (n *naive) ranges(wanted func(at uint64) bool) (out []Range) {
	unit := n.memory.Granularity()
	for _, s := range n.spans {
		joined := false
		for at := (s.addr + unit - 1) / unit * unit; s.id == 0 && at+unit <= s.addr+s.size; at += unit {
			switch {
			case !wanted(at):
				joined = false
			case joined:
				out[len(out)-1].Bytes += unit
			default:
				out, joined = append(out, Range{at, unit}), true
			}
		}
	}
	return out
}

// trim unmaps the free pages that the iteration that ended last has not used.
func (n *naive) trim() {
	excess := func(at uint64) bool {
		last, used := n.used[at]
		return n.options.Trim.When == TrimIteration && n.iteration > 0 && !n.gone[at] && (!used || last < n.iteration-1)
	}
	for _, r := range n.ranges(excess) {
		if n.memory.TryUnmap(r.Addr, r.Bytes) {
			n.lose(r.Addr, r.Bytes)
		}
	}
}

func (n *naive) unmapFree(bytes uint64) {
	unit := n.memory.Granularity()
	for _, r := range slices.Backward(n.ranges(func(at uint64) bool { return !n.gone[at] })) {
		part := min(r.Bytes, (bytes+unit-1)/unit*unit)
		if part > 0 && n.memory.TryUnmap(r.Addr+r.Bytes-part, part) {
			n.lose(r.Addr+r.Bytes-part, part)
			bytes -= min(bytes, part)
		}
	}
}
