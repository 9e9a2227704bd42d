package graphs

import (
	"errors"
	"fmt"
	"slices"
)

// Sized is a shape with its size: the rows or tokens that its graph computes.
type Sized struct {
	Size int64
	*Sequence
}

// Bounds of what a Law takes and gives, so that no product of them exceeds an int64.
const (
	mostSize    = 1 << 20
	mostRequest = 1 << 41 // bytes
)

// Law says what a shape of any size requests, after a few of them: their requests are the same but for the bytes, which lie on
// straight lines through those of the sizes on both sides, or of the nearest two. The first shape of a pool may request more than
// others, as cuBLAS's workspace: whatever is first does so.
type Law struct {
	points []Sized  // by size, of the same requests; at least two
	once   [][]once // by request of a shape: what the first shape requests before it; last: at the end
	late   []Late   // of all: what an early one has, as the recording goes on behind it
}

// once is a request that only the first shape makes, and a free of its block if that is in the shape.
type once struct {
	bytes  int64 // 0: a free
	block  int32 // of the requests that are made once, by number
	stream int32
}

// Learn finds the law of at least two shapes, in the order in which they were captured.
func Learn(few []Sized) (*Law, error) {
	l, sizes := &Law{}, map[int64]bool{}
	for _, s := range few {
		if s.Size < 1 || s.Size > mostSize || sizes[s.Size] {
			return nil, fmt.Errorf("a shape of %d rows: want one of each size, from 1 to %d", s.Size, mostSize)
		}
		sizes[s.Size] = true
		for _, op := range s.Ops {
			if op.Bytes > mostRequest {
				return nil, fmt.Errorf("a request of %d bytes: want at most %d", op.Bytes, int64(mostRequest))
			}
		}
	}
	if len(few) < 2 {
		return nil, errors.New("the law of sizes needs two shapes")
	}
	rest := few[1:]
	for _, s := range rest {
		if !alike(s.Sequence, rest[0].Sequence) {
			return nil, fmt.Errorf("the shapes of %d and %d rows do not make the same requests", rest[0].Size, s.Size)
		}
	}
	l.points, l.late = bySize(rest), rest[0].Late
	first := few[0]
	if alike(first.Sequence, rest[0].Sequence) {
		l.points, l.late = bySize(few), first.Late
		return l, nil
	}
	if len(rest) < 2 {
		return nil, fmt.Errorf("the shapes of %d and %d rows do not make the same requests", first.Size, rest[0].Size)
	}
	if err := l.separate(first); err != nil {
		return nil, err
	}
	return l, nil
}

func bySize(shapes []Sized) []Sized {
	return slices.SortedFunc(slices.Values(shapes), func(x, y Sized) int { return int(x.Size - y.Size) })
}

// alike says whether two shapes make the same requests, of whatever bytes.
func alike(x, y *Sequence) bool {
	return slices.EqualFunc(x.Ops, y.Ops, func(a, b Op) bool {
		return (a.Bytes == 0) == (b.Bytes == 0) && a.Block == b.Block && a.Stream == b.Stream
	})
}

// separate finds what the first shape requests besides what the law says of its size.
func (l *Law) separate(first Sized) error {
	want, err := l.shape(first.Size)
	if err != nil {
		return err
	}
	l.once = make([][]once, len(want.Ops)+1)
	added := map[int32]int32{} // blocks that are requested once, by their number in the first shape
	at, made, matched := 0, int32(0), int32(0)
	numbers := map[int32]int32{} // of the law's blocks, by their number in the first shape
	for _, op := range first.Ops {
		number, extra := added[op.Block]
		switch {
		case op.Bytes == 0 && extra:
			l.once[at] = append(l.once[at], once{block: number})
			continue
		case at < len(want.Ops) && op.Bytes == 0 && want.Ops[at].Bytes == 0 && want.Ops[at].Block == numbers[op.Block]:
		case at < len(want.Ops) && op.Bytes > 0 && op.Bytes == want.Ops[at].Bytes:
			numbers[made] = matched
			made, matched = made+1, matched+1
		case op.Bytes > 0:
			added[made] = int32(len(added))
			l.once[at] = append(l.once[at], once{op.Bytes, added[made], op.Stream})
			made++
			continue
		default:
			return fmt.Errorf("the shape of %d rows frees what those of others keep", first.Size)
		}
		at++
	}
	if at < len(want.Ops) {
		return fmt.Errorf("the shapes of %d and %d rows do not make the same requests", first.Size, l.points[0].Size)
	}
	return nil
}

// Shapes predicts shapes of some sizes, captured in their order.
func (l *Law) Shapes(sizes []int64) (out []*Sequence, err error) {
	for i, size := range sizes {
		s, err := l.shape(size)
		if err != nil {
			return nil, err
		}
		if i == 0 && l.once != nil {
			s = l.withOnce(s)
		}
		out = append(out, s)
	}
	return out, nil
}

// shape is a shape that is not the first.
func (l *Law) shape(size int64) (*Sequence, error) {
	if size < 1 || size > mostSize {
		return nil, fmt.Errorf("a graph of %d rows: want from 1 to %d", size, mostSize)
	}
	// The last two points at most as large as the size, or the first two.
	at := 0
	for at+2 < len(l.points) && l.points[at+1].Size <= size {
		at++
	}
	x, y := l.points[at], l.points[at+1]
	s := &Sequence{Ops: slices.Clone(x.Ops), Late: l.late}
	for i := range s.Ops {
		if op := &s.Ops[i]; op.Bytes > 0 {
			op.Bytes = between(x.Size, y.Size, op.Bytes, y.Ops[i].Bytes, size)
			if op.Bytes > mostRequest {
				return nil, fmt.Errorf("a graph of %d rows requests %d bytes at once: more than any card has", size, op.Bytes)
			}
		}
	}
	return s, nil
}

// between is the line through two points at a size, at least 1, so that an allocation stays one.
func between(x, y, atX, atY, size int64) int64 {
	rise, run := atY-atX, y-x
	return max(1, atX+rise/run*(size-x)+rise%run*(size-x)/run)
}

// withOnce adds what the first shape requests once.
func (l *Law) withOnce(s *Sequence) *Sequence {
	out := &Sequence{}
	var numbers, onces []int32 // of the law's blocks, and of those requested once, in out
	made := int32(0)
	for at := range len(s.Ops) + 1 {
		for _, o := range l.once[at] {
			if o.bytes == 0 {
				out.Ops = append(out.Ops, Op{Block: onces[o.block], Stream: o.stream})
				continue
			}
			onces = append(onces, made)
			out.Ops = append(out.Ops, Op{Bytes: o.bytes, Block: made, Stream: o.stream})
			made++
		}
		if at == len(s.Ops) {
			break
		}
		op := s.Ops[at]
		if op.Bytes > 0 {
			numbers = append(numbers, made)
			made++
		}
		op.Block = numbers[op.Block]
		out.Ops = append(out.Ops, op)
	}
	for _, late := range s.Late {
		out.Late = append(out.Late, Late{numbers[late.Block], late.Shapes})
	}
	return out
}

// Linear is what vLLM estimates that graphs of several lists take: the greatest of what memory grew by with the first of each,
// and for each other graph of a list what it grew by with the second, at least a MiB. In bytes.
func Linear(lists []Grown) (bytes int64) {
	const least = 1 << 20
	for _, g := range lists {
		bytes = max(bytes, g.First)
	}
	for _, g := range lists {
		bytes += max(g.Second, least) * max(0, g.Graphs-1)
	}
	return bytes
}

// Grown is by how many bytes memory grew with the first and the second of so many graphs.
type Grown struct{ First, Second, Graphs int64 }
