package graphpool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/bfc"
)

const mib = 1 << 20

var needed = BFC(2<<20, bfc.Options{Growth: bfc.Needed})

// alloc and free make the requests of a shape by hand.
func (s *Shape) alloc(bytes int64) int32 {
	n := int32(len(s.sizes()))
	s.Ops = append(s.Ops, Op{Bytes: bytes, Block: n})
	return n
}

func (s *Shape) free(blocks ...int32) {
	for _, b := range blocks {
		s.Ops = append(s.Ops, Op{Block: b})
	}
}

// work asks for an output of n bytes that stays, and two pieces of work of twice that.
func work(n int64) *Shape {
	s := &Shape{}
	s.alloc(n)
	x, y := s.alloc(2*n), s.alloc(2*n)
	s.free(x, y)
	return s
}

func TestSums(t *testing.T) {
	s := work(mib)
	if s.Requested() != 5*mib || s.Outlives() != mib {
		t.Errorf("requested %d, outlives %d", s.Requested(), s.Outlives())
	}
	if e := (&Shape{}); e.Requested() != 0 || e.Outlives() != 0 {
		t.Error("a shape that asked for nothing did")
	}
}

// Torch's segments and where it splits, worked out by hand from its rules.
func TestTorch(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(h *torchHeap)
		want int64
	}{
		{"nothing", func(*torchHeap) {}, 0},
		{"one byte has a segment", func(h *torchHeap) { h.Alloc(1) }, 2 * mib},
		{"two of 1 MiB share it", func(h *torchHeap) { h.Alloc(mib); h.Alloc(mib) }, 2 * mib},
		{"a third does not", func(h *torchHeap) { h.Alloc(mib); h.Alloc(mib); h.Alloc(1) }, 4 * mib},
		{"beyond 1 MiB: 20", func(h *torchHeap) { h.Alloc(mib + 1) }, 20 * mib},
		{"small and large are apart", func(h *torchHeap) { h.Alloc(mib + 1); h.Alloc(1) }, 22 * mib},
		{"two below 10 MiB share one", func(h *torchHeap) { h.Alloc(10*mib - 512); h.Alloc(10 * mib) }, 20 * mib},
		{"10 MiB has its own", func(h *torchHeap) { h.Alloc(10 * mib); h.Alloc(10 * mib) }, 20 * mib},
		{"rounded up to 2 MiB", func(h *torchHeap) { h.Alloc(11*mib + 1) }, 12 * mib},
		{"a rest of 1 MiB is no block of the large pool", func(h *torchHeap) { h.Alloc(11 * mib); h.Alloc(mib + 1) }, 32 * mib},
		{"a rest of 512 bytes is one of the small", func(h *torchHeap) { h.Alloc(mib); h.Alloc(mib - 512); h.Alloc(512) }, 2 * mib},
		{"free neighbours merge", func(h *torchHeap) {
			a, b, c := h.Alloc(6*mib), h.Alloc(6*mib), h.Alloc(8*mib)
			h.Free(a)
			h.Free(c)
			h.Free(b)
			h.Alloc(20 * mib)
		}, 20 * mib},
		{"what is between two free chunks keeps them apart", func(h *torchHeap) {
			a, _, c := h.Alloc(6*mib), h.Alloc(6*mib), h.Alloc(8*mib)
			h.Free(a)
			h.Free(c)
			h.Alloc(9 * mib)
		}, 40 * mib},
		{"segments do not merge", func(h *torchHeap) {
			a, b := h.Alloc(10*mib), h.Alloc(10*mib)
			h.Free(a)
			h.Free(b)
			h.Alloc(20 * mib)
		}, 40 * mib},
		{"the best fit, not the first", func(h *torchHeap) {
			a := h.Alloc(16 * mib)
			b := h.Alloc(12 * mib)
			h.Free(a)
			h.Free(b)
			h.Alloc(12 * mib) // in b
			h.Alloc(16 * mib) // in a
		}, 28 * mib},
	} {
		h := Torch().(*torchHeap)
		test.do(h)
		if h.Mapped() != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, h.Mapped(), test.want)
		}
	}
}

// A held pool unmaps nothing for a growth, and another policy of growth or split is followed.
func TestBFC(t *testing.T) {
	asked := &Shape{}
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
		if got := Separate(BFC(2<<20, test.policy), []*Shape{asked})[0]; got != test.want {
			t.Errorf("%+v: %d bytes, want %d", test.policy, got, test.want)
		}
	}
}

func TestPolicies(t *testing.T) {
	shapes := []*Shape{work(2 * mib), work(8 * mib), work(4 * mib)}
	model := needed
	if diff := cmp.Diff([]int64{10 * mib, 40 * mib, 20 * mib}, Separate(model, shapes)); diff != "" {
		t.Errorf("separate (-want +got):\n%s", diff)
	}
	if got := Shared(model, LargestFirst(shapes)); got != 40*mib {
		t.Errorf("largest first %d", got)
	}
	// 8 of 10 are free after the first; the second lacks 4 and 8; the third, of whose 16 free
	// bytes 8 are at the end, lacks 8 and 16.
	if got := Shared(model, SmallestFirst(shapes)); got != 46*mib {
		t.Errorf("smallest first %d", got)
	}
	if got := Aliased(model, shapes); got != 40*mib {
		t.Errorf("aliased %d", got)
	}
}

// What is freed after so many further shapes is in their way, and not in that of later ones.
func TestLate(t *testing.T) {
	one := func(shapes int) *Shape {
		s := &Shape{}
		s.alloc(4 * mib)
		if shapes > 0 {
			s.Late = []Late{{0, shapes}}
		}
		return s
	}
	for shapes, want := range []int64{16 * mib, 8 * mib, 12 * mib, 16 * mib, 16 * mib} {
		four := []*Shape{one(shapes), one(shapes), one(shapes), one(shapes)}
		if got := Shared(needed, four); got != want {
			t.Errorf("freed after %d shapes: %d, want %d", shapes, got, want)
		}
	}
}

// Streams do not use each other's memory.
func TestStreams(t *testing.T) {
	asked := func(other int32) []*Shape {
		return []*Shape{{Ops: []Op{{4 * mib, 0, 0}, {0, 0, 0}, {4 * mib, 1, other}, {2 * mib, 2, 0}}}}
	}
	for name, want := range map[string][2]int64{"bfc": {6 * mib, 8 * mib}, "torch": {20 * mib, 40 * mib}} {
		model := Model(Torch)
		if name == "bfc" {
			model = needed
		}
		if got := [2]int64{Separate(model, asked(0))[0], Separate(model, asked(1))[0]}; got != want {
			t.Errorf("%s: on one stream and on two %d, want %d", name, got, want)
		}
	}
}

// Whatever shapes ask for: ranges over one memory take the greatest of what they take alone,
// which is at least what is requested; a shared pool takes no less than that one, and the
// requests of a shape that was changed in no way take the same again.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shapes []*Shape
		for range rapid.IntRange(1, 5).Draw(t, "shapes") {
			s := &Shape{}
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
				if alone[i] < s.Requested() || alone[i]%(2*mib) != 0 {
					t.Fatalf("%s: shape %d takes %d and requests %d", name, i, alone[i], s.Requested())
				}
			}
			for _, order := range [][]*Shape{shapes, LargestFirst(shapes), SmallestFirst(shapes)} {
				if got := Aliased(model, order); got != greatest {
					t.Fatalf("%s: aliased %d, the greatest alone %d", name, got, greatest)
				}
				first, again := Shared(model, order), Shared(model, order)
				if first != again {
					t.Fatalf("%s: %d, and then %d", name, first, again)
				}
				if first < order[0].Requested() {
					t.Fatalf("%s: shared %d, the first requests %d", name, first, order[0].Requested())
				}
			}
		}
	})
}
