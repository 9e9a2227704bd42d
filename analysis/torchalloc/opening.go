package torchalloc

import (
	"sort"

	"github.com/memprof/memprof/trace"
)

// opening has the segments and blocks that were there before the first event of a history where they were. The segments come first, by
// address; of the blocks in a segment, the one with the highest address comes first.
type opening struct {
	fronts []*Block // the free first blocks of the segments; of pages that joined others, the last one counts
}

// adopt takes the next segment, or pages of an expandable one.
func (o *opening) adopt(a *Allocator, at place, e *trace.Event) {
	addr, bytes := uint64(e.Addr), uint64(e.Provided)
	p := a.poolOf(bytes, at.stream)
	if at.small || bytes == smallSegment {
		p = a.poolOf(smallLimit, at.stream)
	}
	if at.expandable {
		o.fronts = append(o.fronts, a.adoptPages(p, at.stream, addr, bytes))
		return
	}
	a.stats.reserve(bytes)
	b := a.newSegment(p, addr, bytes, at.stream, 0)
	p.insert(b)
	o.fronts = append(o.fronts, b)
}

// adoptPages maps pages behind those of a stream's segment, and returns the free block that they are in.
func (a *Allocator) adoptPages(p *pool, stream, addr, bytes uint64) (b *Block) {
	p.unmapped.Descend(&Block{stream: stream, addr: addr}, func(found *Block) bool {
		if found.stream == stream {
			b = found
		}
		return false
	})
	if b == nil {
		b = a.newSegment(p, addr, endless, stream, p.page)
	} else if addr > b.addr {
		b = b.cutBack(addr - b.addr)
	}
	p.unmapped.Set(b)
	a.mapBlock(b, bytes)
	return b
}

// place returns the block of an alloc, of so many bytes; nil where no segment is free.
func (o *opening) place(a *Allocator, e *trace.Event, bytes int64) *Block {
	addr, size := uint64(e.Addr), uint64(bytes)
	at := sort.Search(len(o.fronts), func(i int) bool { return o.fronts[i].addr > addr }) - 1
	if at < 0 || size%unit != 0 {
		return nil
	}
	b := o.fronts[at]
	if b.allocated || !b.mapped || b.addr+b.size < addr+size {
		return nil
	}
	return a.carve(b, addr, size, uint64(e.Requested))
}
