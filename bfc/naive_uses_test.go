package bfc

import "slices"

// take unmaps pages from the last address down, but of one span.
func (n *naive) take(lack uint64, keep span) {
	unit := n.memory.Granularity()
	if !n.memory.Coalesces() {
		return
	}
	for i := len(n.spans) - 1; i >= 0 && lack > 0; i-- {
		s := n.spans[i]
		from, at := (s.addr+unit-1)/unit*unit, (s.addr+s.size)/unit*unit
		if s.id != 0 || s == keep {
			continue
		}
		mayGo := func(at uint64) bool { return at >= from && !n.gone[at] && !n.expected(at) }
		for at > from && lack > 0 {
			if !mayGo(at - unit) {
				at -= unit
				continue
			}
			low, part := at, at
			for mayGo(low - unit) {
				low -= unit
				if at-part < lack {
					part = low
				}
			}
			if !n.memory.TryUnmap(part, at-part) {
				at = low
				continue
			}
			n.lose(part, at-part)
			lack -= min(lack, at-part)
			at = part
		}
	}
}

func (n *naive) lose(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += n.memory.Granularity() {
		n.gone[at] = true
	}
	n.stats.Reserved -= bytes
}

// use notes the iteration in which pages were used last.
func (n *naive) use(addr, size uint64) {
	unit := n.memory.Granularity()
	for at := addr / unit * unit; n.options.Trim.When != TrimNever && at < addr+size; at += unit {
		n.used[at] = n.iteration
	}
}

func (n *naive) expected(at uint64) bool {
	last, used := n.used[at]
	return used && n.iteration > 0 && last >= n.iteration-2
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

func (n *naive) trim() {
	noted := n.options.Trim.When != TrimNever
	for _, r := range n.ranges(func(at uint64) bool { return noted && n.iteration > 1 && !n.gone[at] && !n.expected(at) }) {
		if n.memory.TryUnmap(r.Addr, r.Bytes) {
			n.lose(r.Addr, r.Bytes)
		}
	}
	for _, r := range n.ranges(func(at uint64) bool { return noted && n.gone[at] && n.expected(at) }) {
		if n.stats.Reserved+r.Bytes <= n.options.Limit && n.memory.Map(r.Addr, r.Bytes) {
			for at := r.Addr; at < r.Addr+r.Bytes; at += n.memory.Granularity() {
				delete(n.gone, at)
			}
			n.reserve(r.Bytes)
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
