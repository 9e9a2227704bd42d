package graphs

// Model creates the allocator of one stream of a pool, with nothing mapped.
type Model func() Heap

// Heap is an allocator that only grows.
type Heap interface {
	// Alloc allocates bytes, at least 1, and returns the place for Free.
	Alloc(bytes int64) (place uint64)
	// Free frees a place that Alloc returned, once.
	Free(place uint64)
	// Mapped returns the mapped physical memory in bytes.
	Mapped() int64
}

// Separate returns the mapped bytes of each shape in a pool of its own.
func Separate(model Model, shapes []*Sequence) []int64 {
	out := make([]int64, len(shapes))
	for i, s := range shapes {
		p := newPool(model)
		p.run(s)
		out[i] = p.mapped()
	}
	return out
}

// Shared returns the mapped bytes of one pool for all shapes, in the order given.
func Shared(model Model, shapes []*Sequence) int64 {
	p := newPool(model)
	due := make([][]placed, len(shapes)) // blocks by the shape after which they are freed
	for i, s := range shapes {
		blocks := p.run(s)
		for _, late := range s.Late {
			if at := i + late.Shapes; at < len(shapes) {
				due[at] = append(due[at], blocks[late.Block])
			}
		}
		for _, block := range due[i] {
			block.heap.Free(block.place)
		}
	}
	return p.mapped()
}

// Aliased returns the mapped bytes if the ranges of all shapes share memory: those of the greatest range.
func Aliased(model Model, shapes []*Sequence) int64 {
	greatest := int64(0)
	for _, bytes := range Separate(model, shapes) {
		greatest = max(greatest, bytes)
	}
	return greatest
}

// pool has a heap for each stream.
type pool struct {
	model Model
	heaps map[int32]Heap
}

// placed is a block in a heap.
type placed struct {
	heap  Heap
	place uint64
}

func newPool(model Model) *pool { return &pool{model, map[int32]Heap{}} }

func (p *pool) heap(stream int32) Heap {
	h := p.heaps[stream]
	if h == nil {
		h = p.model()
		p.heaps[stream] = h
	}
	return h
}

// run replays a shape and returns its blocks by number.
func (p *pool) run(s *Sequence) []placed {
	var blocks []placed
	for _, op := range s.Ops {
		if op.Bytes > 0 {
			h := p.heap(op.Stream)
			blocks = append(blocks, placed{h, h.Alloc(op.Bytes)})
			continue
		}
		blocks[op.Block].heap.Free(blocks[op.Block].place)
	}
	return blocks
}

func (p *pool) mapped() (sum int64) {
	for _, h := range p.heaps {
		sum += h.Mapped()
	}
	return sum
}
