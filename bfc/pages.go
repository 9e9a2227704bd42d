package bfc

import "slices"

// Growth Pages counts pages: a request takes those that are free anywhere before the memory maps more,
// so that no more are mapped than blocks have ever touched at a time, and a little slack. Physical pages
// are frames with numbers. A page whose frame was taken remembers it, and takes the same one back if that
// is free again: an owner that leaves old mappings in place then has nothing to do.

const (
	// maxNotedPages is how many pages of a region are noted. With TrimIteration pages beyond them stay mapped.
	maxNotedPages = 1 << 28
	// mostSlack is the most steps of slack: 4 % of the pages that blocks have touched at a time. Where an iteration asks for what
	// the last one did, pages move for nothing: there it is mostRepeated, 10 %.
	mostSlack    = 16
	mostRepeated = 40
	slackSteps   = 400 // a step is that part of the pages
	// stepBytes bounds slack where blocks are small against a page, and touch far more pages than they fill: with each step
	// no more are mapped than that part above the bytes of blocks.
	stepBytes = 160
	// movedShare of the pages may move to other addresses in an iteration before slack becomes greater.
	movedShare = 500
	// ages is the number of classes of pages by their last use: in this iteration, in the one before, in the
	// one before that, and earlier.
	ages = 4
)

// frame is a physical page.
type frame struct {
	page   uint64 // address of the page that it backs, or noPage
	unused bool   // it is in pager.unused
}

// handedOut counts blocks, and their bytes.
type handedOut struct{ blocks, bytes uint64 }

// noPage is the page of a frame that backs none.
const noPage = ^uint64(0)

// pager is the state of growth Pages. Counts are of pages.
type pager struct {
	frames []frame
	unused []uint32 // frames that backed no page when they came here; some may by now
	live   uint64   // pages that blocks touch
	most   uint64   // the most of them so far
	filled uint64   // the most bytes of blocks so far
	slack  uint64   // steps of it
	moved  uint64   // pages that were taken from other addresses in this iteration

	served, before handedOut // in this iteration, and in the last

	victims [ages][]uint64 // scratch of oldest
}

// notes says whether pages are noted.
func (a *Allocator) notes() bool { return a.pager != nil || a.options.Trim.When == TrimIteration }

// pageOf returns the index of the page of an address in its region.
func (a *Allocator) pageOf(r *region, addr uint64) uint64 {
	return (addr - r.addr&^(a.granularity-1)) / a.granularity
}

// notePages makes room for the pages of a region that is new or has become longer: the last bytes of it
// are mapped.
func (a *Allocator) notePages(r *region, bytes uint64) {
	if !a.notes() {
		return
	}
	pages := min(a.pageOf(r, r.end()-1)+1, maxNotedPages)
	r.pages = slices.Grow(r.pages, int(pages)-len(r.pages))[:pages]
	a.backed(byteRange{r.end() - bytes, r.end()})
}

// pageAt returns the page of an address; nil outside of regions, and beyond what is noted.
func (a *Allocator) pageAt(addr uint64) *page {
	at, _, ok := a.Locate(addr)
	if !ok {
		return nil
	}
	r := &a.regions[at]
	if i := a.pageOf(r, addr); i < uint64(len(r.pages)) {
		return &r.pages[i]
	}
	return nil
}

// pagesFrom returns the pages of [addr, addr+size), which lies in one region, as far as they are noted.
func (a *Allocator) pagesFrom(addr, size uint64) []page {
	at, _, ok := a.Locate(addr)
	if !ok {
		return nil
	}
	r := &a.regions[at]
	noted := uint64(len(r.pages))
	first, end := a.pageOf(r, addr), a.pageOf(r, addr+size-1)+1
	return r.pages[min(first, noted):min(end, noted)]
}

// shared says whether blocks before and behind a chunk touch its first and its last page.
func (a *Allocator) shared(index int32) (before, behind bool) {
	c := &a.chunks[index]
	first, end := c.addr&^(a.granularity-1), roundUp(c.addr+c.size, a.granularity)
	if c.addr > first {
		previous := c.prev
		if p := &a.chunks[previous]; p.id == freeID && p.addr > first {
			previous = p.prev
		}
		before = a.chunks[previous].id > wallID
	}
	if c.addr+c.size < end {
		next := c.next
		if n := &a.chunks[next]; n.id == freeID && n.addr+n.size < end {
			next = n.next
		}
		behind = a.chunks[next].id > wallID
	}
	return before, behind
}

// ownPages returns the pages of a chunk that no other block touches.
func (a *Allocator) ownPages(index int32) []page {
	c := &a.chunks[index]
	pages := a.pagesFrom(c.addr, c.size)
	before, behind := a.shared(index)
	if before {
		pages = pages[min(1, len(pages)):]
	}
	if behind {
		pages = pages[:max(len(pages), 1)-1]
	}
	return pages
}

// touch notes that a chunk has become a block, and leave that it no longer is, or is about to be none.
func (a *Allocator) touch(index int32) {
	if !a.notes() {
		return
	}
	pages := a.ownPages(index)
	for i := range pages {
		pages[i].live = true
	}
	if a.pager == nil {
		return
	}
	a.pager.served.blocks++
	a.pager.served.bytes += a.chunks[index].size
	a.pager.live += uint64(len(pages))
	a.pager.most = max(a.pager.most, a.pager.live)
	a.pager.filled = max(a.pager.filled, a.stats.BytesInUse+a.chunks[index].size) // the block is not in use yet
}

func (a *Allocator) leave(index int32) {
	if !a.notes() {
		return
	}
	pages := a.ownPages(index)
	for i := range pages {
		pages[i].live, pages[i].used, pages[i].left = false, a.ended+1, a.frees
	}
	if a.pager != nil {
		a.pager.live -= uint64(len(pages))
	}
}

// backed notes that ranges were mapped by one request. Each page whose last frame backs none gets that; then
// each other page gets the frame that was unmapped last of those that back none, else a new one.
func (a *Allocator) backed(ranges ...byteRange) {
	if a.pager == nil {
		return
	}
	p := a.pager
	for _, r := range ranges {
		for addr := r.from; addr < r.to; addr += a.granularity {
			if at := a.pageAt(addr); at != nil && at.back > 0 && p.frames[at.back-1].page == noPage {
				p.frames[at.back-1].page = addr
			}
		}
	}
	for _, r := range ranges {
		for addr := r.from; addr < r.to; addr += a.granularity {
			if at := a.pageAt(addr); at != nil && !p.backs(at, addr) {
				at.back = 1 + p.take()
				p.frames[at.back-1].page = addr
				at.left = a.frees // a block may have left the frame elsewhere just now
			}
		}
	}
}

// take returns a frame that backs no page, a new one if there is none.
func (p *pager) take() uint32 {
	for len(p.unused) > 0 {
		number := p.unused[len(p.unused)-1]
		p.unused = p.unused[:len(p.unused)-1]
		p.frames[number].unused = false
		if p.frames[number].page == noPage {
			return number
		}
	}
	p.frames = append(p.frames, frame{page: noPage})
	return uint32(len(p.frames) - 1)
}

// unbacked notes that a range is no longer mapped.
func (a *Allocator) unbacked(r byteRange) {
	if a.pager == nil {
		return
	}
	p := a.pager
	for addr := r.from; addr < r.to; addr += a.granularity {
		at := a.pageAt(addr)
		if at == nil || !p.backs(at, addr) {
			continue
		}
		f := &p.frames[at.back-1]
		f.page = noPage
		if !f.unused {
			f.unused = true
			p.unused = append(p.unused, at.back-1)
		}
	}
}

// backs says whether a page has a frame.
func (p *pager) backs(at *page, addr uint64) bool {
	return at.back > 0 && p.frames[at.back-1].page == addr
}

// freshPages returns how many pages of [from, to), a part of a free chunk, no block touches yet.
func (a *Allocator) freshPages(r byteRange) uint64 {
	count := uint64(0)
	pages := a.pagesFrom(r.from, r.to-r.from)
	for i := range pages {
		if !pages[i].live {
			count++
		}
	}
	return count
}

// canHold says whether the limit allows so many more pages that blocks touch.
func (a *Allocator) canHold(fresh uint64) bool {
	return a.pager.live+fresh <= a.options.Limit/a.granularity
}

// takePages unmaps free pages elsewhere for a request that is about to touch so many pages that no block
// touches yet. gaps are the unmapped ranges in which pages will be mapped, more is how many pages will
// be mapped at new addresses, and pages in keep stay as they are. It returns how many it unmapped.
func (a *Allocator) takePages(fresh uint64, gaps []byteRange, more uint64, keep byteRange) uint64 {
	p := a.pager
	if !a.memory.Coalesces() {
		return 0
	}
	mapped := a.stats.Reserved / a.granularity
	most := max(p.most, p.live+fresh) // a request that is refused in the end does not raise p.most
	lack := more
	for _, gap := range gaps {
		lack += gap.bytes() / a.granularity
	}
	back := a.takeBack(gaps, keep)
	lack -= min(lack, back)
	allowed := max(most, min(most+most*p.slack/slackSteps, (p.filled+p.filled*p.slack/stepBytes)/a.granularity))
	add := min(allowed-min(allowed, mapped), lack, a.room()/a.granularity)
	taken := a.takeOldest(lack-add, keep)
	p.moved += taken
	return back + taken
}

// takeRest unmaps what a request that was refused still lacks of so many pages, and returns whether there was any.
// The pages that were unmapped for it before serve its next attempt.
func (a *Allocator) takeRest(lack, released uint64, keep byteRange) bool {
	taken := a.takeOldest(lack-min(lack, released), keep)
	a.pager.moved += taken
	return taken > 0
}

// takeBack unmaps the free pages that pages of the gaps had last, and returns how many.
func (a *Allocator) takeBack(gaps []byteRange, keep byteRange) uint64 {
	p, list := a.pager, a.pager.victims[0][:0]
	for _, gap := range gaps {
		for addr := gap.from; addr < gap.to; addr += a.granularity {
			at := a.pageAt(addr)
			if at == nil || at.back == 0 {
				continue
			}
			if now := p.frames[at.back-1].page; now != noPage && a.listPage(now, keep) {
				list = append(list, now)
			}
		}
	}
	p.victims[0] = list
	return a.unmapPages(list)
}

// listPage says whether a mapped page can be unmapped: no block touches it, it is not to be kept, and it is
// not listed already. It then counts as listed.
func (a *Allocator) listPage(addr uint64, keep byteRange) bool {
	at := a.pageAt(addr)
	if at == nil || at.live || at.listed || at.registered > 0 || keep.from <= addr && addr < keep.to {
		return false
	}
	at.listed = true
	return true
}

// takeOldest unmaps so many mapped pages that no block touches: those first that were not touched for the
// most iterations, and of these the last by address. It returns how many it unmapped.
func (a *Allocator) takeOldest(count uint64, keep byteRange) uint64 {
	if count == 0 || !a.memory.Coalesces() {
		return 0
	}
	a.listFree(count, a.frees, keep)
	taken := uint64(0)
	for age := ages - 1; age >= 0 && taken < count; age-- {
		list := a.pager.victims[age]
		taken += a.unmapPages(list[:min(count-taken, uint64(len(list)))])
	}
	return taken
}

// listFree lists up to count pages of each age: mapped, touched by no block, and left by the free with that number or an earlier
// one. The highest address comes first.
func (a *Allocator) listFree(count, free uint64, keep byteRange) {
	p := a.pager
	for age := range p.victims {
		p.victims[age] = p.victims[age][:0]
	}
	for i := len(a.regions) - 1; i >= 0; i-- {
		r := &a.regions[i]
		base := r.addr &^ (a.granularity - 1)
		for k := len(r.pages) - 1; k >= 0; k-- {
			at, addr := &r.pages[k], base+uint64(k)*a.granularity
			if at.live || at.registered > 0 || at.left > free || !p.backs(at, addr) || keep.from <= addr && addr < keep.to {
				continue
			}
			age := min(a.ended+1-at.used, ages-1)
			if uint64(len(p.victims[age])) < count {
				p.victims[age] = append(p.victims[age], addr)
			}
		}
	}
}

// firstRun returns the adjacent pages with which a list begins, and how many they are.
func (a *Allocator) firstRun(list []uint64) (run byteRange, n int) {
	run = byteRange{list[0], list[0] + a.granularity}
	for n = 1; n < len(list); n++ {
		if addr := list[n]; addr == run.to {
			run.to += a.granularity
		} else if addr+a.granularity == run.from {
			run.from = addr
		} else {
			break
		}
	}
	return run, n
}

// unmapPages unmaps pages in the order of a list, adjacent ones at once, and returns how many. Those that the
// memory refuses stay mapped.
func (a *Allocator) unmapPages(list []uint64) uint64 {
	for _, addr := range list {
		a.pageAt(addr).listed = false
	}
	count := uint64(0)
	for len(list) > 0 {
		run, n := a.firstRun(list)
		list = list[n:]
		count += a.unmapRange(Range{run.from, run.bytes()}) / a.granularity
	}
	return count
}

// mapPages maps the unmapped part of r, which a request gets of a free chunk; pages that are free elsewhere
// pay for it as far as they are not slack, and where the memory refuses, all that can.
func (a *Allocator) mapPages(r byteRange) bool {
	a.missing = a.unmapped.cut(a.missing[:0], r.from, r.to)
	if len(a.missing) == 0 {
		return true
	}
	fresh := a.freshPages(r)
	if !a.canHold(fresh) {
		return false
	}
	released := a.takePages(fresh, a.missing, 0, r)
	return a.mapRange(r) || a.takeRest(a.unmapped.within(r.from, r.to)/a.granularity, released, r) && a.mapRange(r)
}

// extendByPages grows by what a request lacks behind a free tail, if there is one.
func (a *Allocator) extendByPages(lack uint64, tail int32) bool {
	keep := byteRange{}
	fresh := roundUp(lack, a.granularity) / a.granularity
	more := fresh
	if tail != none {
		c := &a.chunks[tail]
		keep = byteRange{c.addr &^ (a.granularity - 1), roundUp(c.addr+c.size, a.granularity)}
		fresh += a.freshPages(byteRange{c.addr, c.addr + c.size})
	}
	if !a.canHold(fresh) {
		return false
	}
	released := a.takePages(fresh, nil, more, keep)
	return a.extendBy(lack) || a.takeRest(more, released, keep) && a.extendBy(lack)
}

// endPages ends an iteration: where many pages moved in it, more of them may be mapped.
func (a *Allocator) endPages() {
	p := a.pager
	if p == nil {
		return
	}
	if a.ended > 1 && movedShare*p.moved > a.stats.Reserved/a.granularity {
		most := uint64(mostSlack)
		if p.served == p.before {
			most = mostRepeated
		}
		if p.slack < most {
			p.slack++
		}
	}
	p.moved, p.before, p.served = 0, p.served, handedOut{}
}
