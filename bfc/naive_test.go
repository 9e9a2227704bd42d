package bfc

import (
	"cmp"
	"slices"
)

// naive is the policy once more, as plainly as it can be put and as slow: one sorted list
// of spans that is searched from end to end for everything. The property test holds the
// Allocator against it.
type naive struct {
	options   Options
	memory    Memory
	spans     []span          // by address, of all regions
	regions   []uint64        // start addresses, ascending
	gone      map[uint64]bool // pages unmapped, by address
	used      map[uint64]int  // the iteration of the last use, by address of the page
	iteration int
	next      uint64
	credit    uint64 // what the last growth asked for less than the request
	newest    uint64 // start of the region grown last; 0 when it is gone
	ids       int64
	stats     Stats
}

type span struct {
	addr, size, requested uint64
	id                    int64 // 0 if free
	region                uint64
}

func newNaive(options Options, memory Memory) *naive {
	n := &naive{options: options, memory: memory, gone: map[uint64]bool{}, used: map[uint64]int{}, next: 2 << 20}
	if limit := (options.Limit + 255) / 256 * 256; options.Growth == Whole || limit < n.next {
		n.next = limit
	}
	return n
}

func (n *naive) alloc(size uint64) (Block, bool) {
	if size == 0 {
		return Block{}, false
	}
	rounded := (size + 255) / 256 * 256
	byLack := n.options.Growth == Needed
	steps := []func() bool{
		func() bool { return true },
		func() bool { return n.extend(rounded, true) },
		func() bool { return byLack && n.credit > 0 && n.extend(rounded, false) },
	}
	if block, ok := n.attempt(steps, rounded, size); ok {
		return block, true
	}
	total := uint64(0)
	for _, s := range n.idle() {
		total += s.size - n.lost(s.addr, s.addr+s.size)
	}
	if !n.options.GarbageCollection || total == 0 || rounded+n.stats.Reserved > n.options.Limit+total {
		return Block{}, false
	}
	n.collect()
	return n.attempt(steps[1:], rounded, size)
}

// attempt looks for a candidate after each step that had an effect.
func (n *naive) attempt(steps []func() bool, rounded, size uint64) (Block, bool) {
	for _, step := range steps {
		if !step() {
			continue
		}
		if s, ok := n.candidate(rounded); ok {
			return n.hand(s, rounded, size), true
		}
	}
	return Block{}, false
}

func (n *naive) part(s span, rounded uint64) uint64 {
	bound := uint64(128 << 20)
	if n.options.FragmentationFraction > 0 {
		bound = uint64(n.options.FragmentationFraction * float64(n.options.Limit))
	}
	if n.options.Split == SplitAlways {
		return rounded
	}
	if s.size >= 2*rounded || s.size-rounded >= bound {
		return rounded
	}
	return s.size
}

func (n *naive) candidate(rounded uint64) (span, bool) {
	var fits []span
	for _, s := range n.spans {
		if s.id == 0 && s.size >= rounded {
			fits = append(fits, s)
		}
	}
	slices.SortFunc(fits, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	for i, s := range fits {
		if i == 0 && n.restore(s.addr, s.addr+n.part(s, rounded)) || n.lost(s.addr, s.addr+n.part(s, rounded)) == 0 {
			return s, true
		}
	}
	return span{}, false
}

// lost is how many bytes of the pages that [from, to) touches are unmapped.
func (n *naive) lost(from, to uint64) (bytes uint64) {
	unit := n.memory.Granularity()
	for at := from / unit * unit; len(n.gone) > 0 && at < to; at += unit {
		if n.gone[at] {
			bytes += unit
		}
	}
	return bytes
}

// restore maps every run of lost pages that [from, to) touches, or none of them.
func (n *naive) restore(from, to uint64) bool {
	unit := n.memory.Granularity()
	type run struct{ addr, bytes uint64 }
	var runs []run
	for at := from / unit * unit; len(n.gone) > 0 && at < to; at += unit {
		if last := len(runs) - 1; !n.gone[at] {
			continue
		} else if last >= 0 && runs[last].addr+runs[last].bytes == at {
			runs[last].bytes += unit
		} else {
			runs = append(runs, run{at, unit})
		}
	}
	sum := uint64(0)
	for i, r := range runs {
		if n.stats.Reserved+sum+r.bytes > n.options.Limit || !n.memory.Map(r.addr, r.bytes) {
			for i--; i >= 0; i-- {
				n.memory.Unmap(runs[i].addr, runs[i].bytes)
			}
			return false
		}
		sum += r.bytes
	}
	for _, r := range runs {
		for at := r.addr; at < r.addr+r.bytes; at += unit {
			delete(n.gone, at)
		}
	}
	n.reserve(sum)
	return true
}

func (n *naive) reserve(bytes uint64) {
	n.stats.Reserved += bytes
	n.stats.PeakReserved = max(n.stats.PeakReserved, n.stats.Reserved)
}

func (n *naive) hand(s span, rounded, size uint64) Block {
	at := slices.Index(n.spans, s)
	part := n.part(s, rounded)
	n.ids++
	n.use(s.addr, part)
	n.spans[at] = span{s.addr, part, size, n.ids, s.region}
	if part < s.size {
		n.spans = slices.Insert(n.spans, at+1, span{addr: s.addr + part, size: s.size - part, region: s.region})
	}
	n.stats.NumAllocs++
	n.stats.BytesInUse += part
	n.stats.PeakBytesInUse = max(n.stats.PeakBytesInUse, n.stats.BytesInUse)
	n.stats.LargestAlloc = max(n.stats.LargestAlloc, part)
	return Block{s.addr, part, size, n.ids}
}

func (n *naive) extend(rounded uint64, credit bool) bool {
	n.credit = 0
	limit, unit := n.options.Limit, n.memory.Granularity()
	if n.options.Growth == Needed {
		for i, s := range n.spans {
			last := i+1 == len(n.spans) || n.spans[i+1].region != s.region
			if credit && last && s.region == n.newest && s.id == 0 && s.size < rounded && n.memory.Coalesces() && n.memory.Adjoins(rounded-s.size) {
				n.credit = s.size
			}
		}
		lack := rounded - n.credit
		if n.stats.Reserved+(lack+unit-1)/unit*unit > limit || !n.grow(lack) {
			n.credit = 0 // nothing was in vain
			return false
		}
		return true
	}
	available := (limit - n.stats.Reserved) / 256 * 256
	if rounded > available {
		return false
	}
	doubled := n.next < rounded
	for n.next < rounded {
		n.double()
	}
	want := min(n.next, available)
	if n.options.Headroom > 0 && want > rounded {
		left := int64(n.memory.Free()) - int64(n.options.Headroom)
		if left < 0 {
			left = 0
		}
		want = max(rounded, min(want, uint64(left)/unit*unit))
	}
	if n.stats.Reserved+(want+unit-1)/unit*unit > limit {
		want = (limit - n.stats.Reserved) / unit * unit
	}
	for ; want >= rounded; want = n.backedOff(want) {
		if n.grow(want) {
			if !doubled {
				n.double()
			}
			return true
		}
	}
	return false
}

func (n *naive) double() {
	if n.next >= 1<<63 {
		n.next = 1<<64 - 256
		return
	}
	n.next *= 2
}

func (n *naive) backedOff(want uint64) uint64 {
	less := (uint64(float32(want)*float32(0.9)) + 255) / 256 * 256
	if less == want {
		return want - 256
	}
	return less
}

func (n *naive) grow(bytes uint64) bool {
	addr, granted, ok := n.memory.Grow(bytes)
	if !ok {
		return false
	}
	n.reserve(granted)
	home := addr
	for _, s := range n.spans {
		if n.memory.Coalesces() && s.addr+s.size == addr {
			home = s.region
		}
	}
	if home == addr {
		n.regions = append(n.regions, addr)
	}
	n.newest = home
	n.spans = append(n.spans, span{addr: addr, size: granted, region: home})
	n.join()
	return true
}

// join restores the order of spans and merges free neighbours of one region.
func (n *naive) join() {
	slices.Sort(n.regions)
	slices.SortFunc(n.spans, func(a, b span) int { return cmp.Compare(a.addr, b.addr) })
	for i := 1; i < len(n.spans); i++ {
		if low, high := &n.spans[i-1], n.spans[i]; low.id == 0 && high.id == 0 && low.region == high.region {
			low.size += high.size
			n.spans = slices.Delete(n.spans, i, i+1)
			i--
		}
	}
}

func (n *naive) free(addr uint64) {
	for i, s := range n.spans {
		if s.addr == addr {
			n.stats.BytesInUse -= s.size
			n.use(s.addr, s.size)
			n.spans[i] = span{addr: s.addr, size: s.size, region: s.region}
		}
	}
	n.join()
}

// idle is the spans that are a whole free region.
func (n *naive) idle() (out []span) {
	count := map[uint64]int{}
	for _, s := range n.spans {
		count[s.region]++
	}
	for _, s := range n.spans {
		if s.id == 0 && count[s.region] == 1 {
			out = append(out, s)
		}
	}
	return out
}

func (n *naive) collect() (released uint64) {
	unit := n.memory.Granularity()
	for _, s := range n.idle() {
		mapped := s.size - n.lost(s.addr, s.addr+s.size)
		for at := s.addr; len(n.gone) > 0 && at < s.addr+s.size; at += unit {
			delete(n.gone, at)
		}
		for at := s.addr; len(n.used) > 0 && at < s.addr+s.size; at += unit {
			delete(n.used, at)
		}
		n.stats.Reserved -= mapped
		released += mapped
		n.memory.Release(s.addr, s.size)
		n.spans = slices.DeleteFunc(n.spans, func(o span) bool { return o == s })
		n.regions = slices.DeleteFunc(n.regions, func(r uint64) bool { return r == s.region })
		if n.newest == s.region {
			n.newest = 0
		}
	}
	return released
}

func (n *naive) unmap(addr, bytes uint64) bool {
	unit := n.memory.Granularity()
	if bytes == 0 || addr%unit != 0 || bytes%unit != 0 || n.lost(addr, addr+bytes) > 0 {
		return false
	}
	for _, s := range n.spans {
		if s.id == 0 && s.addr <= addr && addr+bytes <= s.addr+s.size {
			n.lose(addr, bytes)
			return true
		}
	}
	return false
}

// putBack is Allocator.Restore.
func (n *naive) putBack(addr, size, requested uint64) (Block, bool) {
	if size == 0 || addr%256 != 0 || size%256 != 0 || requested == 0 || requested > size || n.lost(addr, addr+size) > 0 {
		return Block{}, false
	}
	for at, s := range n.spans {
		if s.id != 0 || s.addr > addr || addr+size > s.addr+s.size {
			continue
		}
		n.ids++
		n.use(addr, size)
		pieces := []span{
			{addr: s.addr, size: addr - s.addr, region: s.region},
			{addr, size, requested, n.ids, s.region},
			{addr: addr + size, size: s.addr + s.size - addr - size, region: s.region},
		}
		pieces = slices.DeleteFunc(pieces, func(p span) bool { return p.size == 0 })
		n.spans = slices.Replace(n.spans, at, at+1, pieces...)
		n.stats.NumAllocs++
		n.stats.BytesInUse += size
		n.stats.PeakBytesInUse = max(n.stats.PeakBytesInUse, n.stats.BytesInUse)
		n.stats.LargestAlloc = max(n.stats.LargestAlloc, size)
		return Block{addr, size, requested, n.ids}, true
	}
	return Block{}, false
}

// listing is what Allocator.Regions should be.
func (n *naive) listing() []Region {
	out := []Region{}
	for _, start := range n.regions {
		r := Region{Addr: start}
		for _, s := range n.spans {
			if s.region != start {
				continue
			}
			c := Chunk{Offset: s.addr - start, Size: s.size, Requested: s.requested, ID: s.id}
			if s.id == 0 {
				c.ID = -1
			}
			r.Size += s.size
			r.Chunks = append(r.Chunks, c)
		}
		out = append(out, r)
	}
	return out
}
