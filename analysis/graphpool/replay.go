package graphpool

// Model makes the allocator of one stream of a pool, with nothing mapped.
type Model func() Heap

// Heap is an allocator that only grows.
type Heap interface {
	// Alloc places bytes, at least 1, and names the place.
	Alloc(bytes int64) (place uint64)
	// Free takes a place back that Alloc named and that has not been freed.
	Free(place uint64)
	// Mapped is the physical memory it has taken, in bytes.
	Mapped() int64
}

// Separate is what the shapes take in a pool each, in the order given.
func Separate(model Model, shapes []*Shape) []int64 {
	out := make([]int64, len(shapes))
	for i, s := range shapes {
		p := newPool(model)
		p.run(s)
		out[i] = p.mapped()
	}
	return out
}

// Shared is what one pool takes for the shapes, one after the other as they are given.
func Shared(model Model, shapes []*Shape) int64 {
	p := newPool(model)
	due := make([][]placed, len(shapes)) // by the shape at whose end they are freed
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

// Aliased is what ranges over one physical memory take: the greatest of them.
func Aliased(model Model, shapes []*Shape) int64 {
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

// placed is a block and where it lies.
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

// run makes the requests of a shape; it returns where its blocks were, by number.
func (p *pool) run(s *Shape) []placed {
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
