package graphs

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

var needed = BFC(2<<20, bfc.Options{Growth: bfc.Needed})

// alloc and free make the requests of a shape by hand.
func (s *Sequence) alloc(bytes int64) int32 {
	n := int32(0)
	for _, op := range s.Ops {
		if op.Bytes > 0 {
			n++
		}
	}
	s.Ops = append(s.Ops, Op{Bytes: bytes, Block: n})
	return n
}

func (s *Sequence) free(blocks ...int32) {
	for _, b := range blocks {
		s.Ops = append(s.Ops, Op{Block: b})
	}
}

// work asks for an output of n bytes that stays, and two pieces of work of twice that.
func work(n int64) *Sequence {
	s := &Sequence{}
	s.alloc(n)
	x, y := s.alloc(2*n), s.alloc(2*n)
	s.free(x, y)
	return s
}

func TestSums(t *testing.T) {
	s := work(mib)
	assert.That(t, s.Requested() == 5*mib && s.Outlives() == mib, "requested %d, outlives %d", s.Requested(), s.Outlives())
	e := (&Sequence{})
	assert.That(t, e.Requested() == 0 && e.Outlives() == 0, "a shape that asked for nothing did")
}

// Torch's segments, worked out by hand from its rules; package torchalloc tests the others.
func TestTorch(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(h *torchHeap)
		want int64
	}{
		{"nothing", func(*torchHeap) {}, 0},
		{"small and large are apart", func(h *torchHeap) { h.Alloc(mib + 1); h.Alloc(1) }, 22 * mib},
		{"a rest of 512 bytes is one of the small", func(h *torchHeap) { h.Alloc(mib); h.Alloc(mib - 512); h.Alloc(512) }, 2 * mib},
		{"free neighbours merge", func(h *torchHeap) {
			a, b, c := h.Alloc(6*mib), h.Alloc(6*mib), h.Alloc(8*mib)
			h.Free(a)
			h.Free(c)
			h.Free(b)
			h.Alloc(20 * mib)
		}, 20 * mib},
	} {
		h := Torch().(*torchHeap)
		test.do(h)
		assert.That(t, h.Mapped() == test.want, "%s: %d bytes, want %d", test.name, h.Mapped(), test.want)
	}
}

// A held pool unmaps nothing for a growth, and another policy of growth or split is followed.
func TestBFC(t *testing.T) {
	asked := &Sequence{}
	x := asked.alloc(4 * mib)
	asked.alloc(mib)
	asked.free(x)
	asked.alloc(6 * mib)
	for _, test := range []struct {
		policy bfc.Options
		want   int64
	}{
		{bfc.Options{Growth: bfc.Needed}, 12 * mib},
		{bfc.Options{Growth: bfc.Needed, Split: bfc.SplitAlways}, 12 * mib},
		{bfc.Options{Growth: bfc.Double}, 4*mib + 4*mib + 8*mib},
	} {
		assert.Equal(t, Separate(BFC(2<<20, test.policy), []*Sequence{asked})[0], test.want, "%+v", test.policy)
	}
}

func TestPolicies(t *testing.T) {
	shapes := []*Sequence{work(2 * mib), work(8 * mib), work(4 * mib)}
	model := needed
	assert.Diff(t, []int64{10 * mib, 40 * mib, 20 * mib}, Separate(model, shapes), "separate")
	assert.Equal(t, Shared(model, LargestFirst(shapes)), 40*mib, "largest first")
	// 8 of 10 are free after the first; the second lacks 4 and 8; the third, of whose 16 free
	// bytes 8 are at the end, lacks 8 and 16.
	assert.Equal(t, Shared(model, SmallestFirst(shapes)), 46*mib, "smallest first")
	assert.Equal(t, Aliased(model, shapes), 40*mib, "aliased")
}

// What is freed after so many further shapes is in their way, and not in that of later ones.
func TestLate(t *testing.T) {
	one := func(shapes int) *Sequence {
		s := &Sequence{}
		s.alloc(4 * mib)
		if shapes > 0 {
			s.Late = []Late{{0, shapes}}
		}
		return s
	}
	for shapes, want := range []int64{16 * mib, 8 * mib, 12 * mib, 16 * mib, 16 * mib} {
		four := []*Sequence{one(shapes), one(shapes), one(shapes), one(shapes)}
		assert.Equal(t, Shared(needed, four), want, "freed after %d shapes", shapes)
	}
}

// Streams do not use each other's memory.
func TestStreams(t *testing.T) {
	asked := func(other int32) []*Sequence {
		return []*Sequence{{Ops: []Op{{4 * mib, 0, 0}, {0, 0, 0}, {4 * mib, 1, other}, {2 * mib, 2, 0}}}}
	}
	for name, want := range map[string][2]int64{"bfc": {6 * mib, 8 * mib}, "torch": {20 * mib, 40 * mib}} {
		model := Model(Torch)
		if name == "bfc" {
			model = needed
		}
		assert.Equal(t, [2]int64{Separate(model, asked(0))[0], Separate(model, asked(1))[0]}, want, "%s: on one stream and on two", name)
	}
}

// Whatever shapes ask for: ranges over one memory take the greatest of what they take alone,
// which is at least what is requested; a shared pool takes no less than that one, and the
// requests of a shape that was changed in no way take the same again.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shapes []*Sequence
		for range rapid.IntRange(1, 5).Draw(t, "shapes") {
			s := &Sequence{}
			var live []int32
			for range rapid.IntRange(1, 30).Draw(t, "operations") {
				if len(live) > 0 && rapid.Bool().Draw(t, "free") {
					at := rapid.IntRange(0, len(live)-1).Draw(t, "which")
					s.free(live[at])
					live = append(live[:at], live[at+1:]...)
					continue
				}
				live = append(live, s.alloc(rapid.Int64Range(1, 30*mib).Draw(t, "bytes")))
			}
			for _, b := range live {
				if rapid.Bool().Draw(t, "late") {
					s.Late = append(s.Late, Late{b, rapid.IntRange(1, 4).Draw(t, "shapes")})
				}
			}
			shapes = append(shapes, s)
		}
		for name, model := range map[string]Model{"bfc": needed, "torch": Torch} {
			alone := Separate(model, shapes)
			greatest := int64(0)
			for i, s := range shapes {
				greatest = max(greatest, alone[i])
				assert.Must(t, alone[i] >= s.Requested() && alone[i]%(2*mib) == 0,
					"%s: shape %d takes %d and requests %d", name, i, alone[i], s.Requested())
			}
			for _, order := range [][]*Sequence{shapes, LargestFirst(shapes), SmallestFirst(shapes)} {
				got := Aliased(model, order)
				assert.Must(t, got == greatest, "%s: aliased %d, the greatest alone %d", name, got, greatest)
				first, again := Shared(model, order), Shared(model, order)
				assert.Must(t, first == again, "%s: %d, and then %d", name, first, again)
				assert.Must(t, first >= order[0].Requested(), "%s: shared %d, the first requests %d", name, first, order[0].Requested())
			}
		}
	})
}
