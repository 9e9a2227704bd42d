package graphpool

import (
	"cmp"
	"slices"
)

// Op is an allocation, or a free, of a shape.
type Op struct {
	Bytes  int64 // asked for, at least 1; 0: a free
	Block  int32 // allocations of a shape are numbered from 0 in the order they are made
	Stream int32 // any number that tells streams apart; that of the allocation
}

// Late is the free of a block that outlived its shape.
type Late struct {
	Block  int32
	Shapes int // how many further shapes had begun by then, at least 1
}

// Shape is what one capture, or the pieces of one, asked for. The zero value asked for nothing.
type Shape struct {
	Ops  []Op
	Late []Late
}

// Requested is the greatest sum of bytes that were asked for and not freed.
func (s *Shape) Requested() int64 {
	greatest, _ := s.live()
	return greatest
}

// Outlives is what was asked for and not freed when the shape was over, in bytes.
func (s *Shape) Outlives() int64 {
	_, last := s.live()
	return last
}

// live is the sum of bytes that were asked for and not freed, at its greatest and in the end.
func (s *Shape) live() (greatest, last int64) {
	sizes := s.sizes()
	for _, op := range s.Ops {
		if op.Bytes == 0 {
			last -= sizes[op.Block]
			continue
		}
		last += op.Bytes
		greatest = max(greatest, last)
	}
	return greatest, last
}

// sizes are the bytes of the blocks, by number.
func (s *Shape) sizes() []int64 {
	var sizes []int64
	for _, op := range s.Ops {
		if op.Bytes > 0 {
			sizes = append(sizes, op.Bytes)
		}
	}
	return sizes
}

// LargestFirst orders shapes by what they request at most, equals as they are.
func LargestFirst(shapes []*Shape) []*Shape {
	return ordered(shapes, -1)
}

// SmallestFirst is the other way round; equals stay as they are.
func SmallestFirst(shapes []*Shape) []*Shape {
	return ordered(shapes, 1)
}

func ordered(shapes []*Shape, sign int) []*Shape {
	type sized struct {
		shape *Shape
		bytes int64
	}
	list := make([]sized, len(shapes))
	for i, s := range shapes {
		list[i] = sized{s, s.Requested()}
	}
	slices.SortStableFunc(list, func(x, y sized) int { return sign * cmp.Compare(x.bytes, y.bytes) })
	out := make([]*Shape, len(shapes))
	for i, s := range list {
		out[i] = s.shape
	}
	return out
}
