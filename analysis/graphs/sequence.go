package graphs

import (
	"cmp"
	"slices"
)

// Op is an allocation, or a free, of a shape.
type Op struct {
	Bytes  int64 // requested, at least 1; 0 is a free
	Block  int32 // allocations of a shape are numbered from 0 in the order they are made
	Stream int32 // the allocation's stream
}

// Late is the free of a block that outlived its shape.
type Late struct {
	Block  int32
	Shapes int // how many further shapes had begun by then, at least 1
}

// Sequence has the requests and frees of one capture, or of several that replay together.
type Sequence struct {
	Ops  []Op
	Late []Late
}

// Requested returns the maximum of live requested bytes.
func (s *Sequence) Requested() int64 {
	greatest, _ := s.live()
	return greatest
}

// Outlives returns the requested bytes of blocks that are live when the shape ends.
func (s *Sequence) Outlives() int64 {
	_, last := s.live()
	return last
}

// live returns the maximum and the last value of live requested bytes.
func (s *Sequence) live() (greatest, last int64) {
	var sizes []int64 // of blocks, by number
	for _, op := range s.Ops {
		if op.Bytes == 0 {
			last -= sizes[op.Block]
			continue
		}
		sizes = append(sizes, op.Bytes)
		last += op.Bytes
		greatest = max(greatest, last)
	}
	return greatest, last
}

// LargestFirst returns the shapes in descending order of Requested; equal ones keep their order.
func LargestFirst(shapes []*Sequence) []*Sequence {
	return ordered(shapes, -1)
}

// SmallestFirst returns them in ascending order; equal ones keep their order.
func SmallestFirst(shapes []*Sequence) []*Sequence {
	return ordered(shapes, 1)
}

func ordered(shapes []*Sequence, sign int) []*Sequence {
	bytes := map[*Sequence]int64{}
	for _, s := range shapes {
		bytes[s] = s.Requested()
	}
	return slices.SortedStableFunc(slices.Values(shapes), func(x, y *Sequence) int { return sign * cmp.Compare(bytes[x], bytes[y]) })
}
