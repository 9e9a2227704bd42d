package fit

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// longest is the length of the longest common subsequence, by the table.
func longest(a, b []uint64) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		corner := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = corner + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			corner = above
		}
	}
	return row[len(b)]
}

// Of random sequences as many elements are matched as can be, in their order, and only equal ones.
func TestAlign(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		a, b := make([]uint64, random.IntN(14)), make([]uint64, random.IntN(14))
		for _, s := range [][]uint64{a, b} {
			for i := range s {
				s[i] = random.Uint64N(4)
			}
		}
		match, ok := align(a, b)
		if !ok {
			t.Fatalf("%v and %v are not aligned", a, b)
		}
		count, last := 0, int32(-1)
		for i, n := range match {
			if n < 0 {
				continue
			}
			if n <= last || a[i] != b[n] {
				t.Fatalf("%v and %v: %v", a, b, match)
			}
			last, count = n, count+1
		}
		if want := longest(a, b); count != want {
			t.Fatalf("%v and %v: %d matched (%v), want %d", a, b, count, match, want)
		}
	}
	same := slices.Repeat([]uint64{1, 2, 3}, 100_000)
	if match, ok := align(same, same); !ok || match[len(same)-1] != int32(len(same)-1) {
		t.Error("equal sequences are not aligned")
	}
	if _, ok := align(make([]uint64, 2*mostEdits), slices.Repeat([]uint64{1}, 10)); ok {
		t.Error("sequences without anything in common are aligned")
	}
}

// A request that only some sizes have grows in proportion, and does not keep the others from their lines.
func TestResizeWithWorkspaces(t *testing.T) {
	at := func(batch int64, workspace bool) *Job {
		j := newJob()
		for n := range int64(30) {
			j.alloc(n, 2*batch+n)
			if workspace && n == 9 {
				j.alloc(100, batch).free(100)
			}
		}
		return j.process("p")
	}
	resized, err := Resize([]*Job{at(2, false), at(4, true)}, []float64{2, 4}, 8)
	if err != nil {
		t.Fatal(err)
	}
	if u := resized.Unsure; u.Workspaces != 1 || u.Requests != 30 {
		t.Errorf("unsure are %+v, want 30 requests with the workspace", u)
	}
	got, err := sequenceOf(resized.Likely)
	if err != nil {
		t.Fatal(err)
	}
	var want []int64
	for n := range int64(30) {
		want = append(want, (16+n)*mib)
		if n == 9 {
			want = append(want, 8*mib)
		}
	}
	if !slices.Equal(got.requested, want) {
		t.Errorf("requests of %v, want %v", got.requested, want)
	}
}

// Where equal origins follow each other, a request that one recording has more is the one whose bytes have no counterpart:
// the weights' gradient is not matched with the flag before it.
func TestRealign(t *testing.T) {
	at := func(batch int64, more bool) *Job {
		j := newJob()
		for n := range int64(100) {
			j.alloc(n, 2*batch)
		}
		if more {
			j.alloc(300, 1)
		}
		j.alloc(301, 150)
		for n := range int64(100) {
			j.alloc(400+n, 3)
		}
		return j.process("p")
	}
	for _, more := range [][]bool{{false, true}, {true, false}} {
		resized, err := Resize([]*Job{at(8, more[0]), at(16, more[1])}, []float64{8, 16}, 4)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sequenceOf(resized.Likely)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Repeat([]int64{8 * mib}, 100)
		if more[0] { // the nearest recording is that at 8; what the other lacks grows in proportion
			want = append(want, mib/2)
		}
		want = append(append(want, 150*mib), slices.Repeat([]int64{3 * mib}, 100)...)
		if !slices.Equal(got.requested, want) {
			t.Errorf("with the flag in the recordings: %v: requests of %v, want %v", more, got.requested[95:105], want[95:105])
		}
	}
}

// Of random sequences realign keeps what is equal and in order, and as many matches, and makes no fewer of them likely.
func TestRealignAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		a, b := make([]uint64, random.IntN(300)), make([]uint64, random.IntN(300))
		sizesA, sizesB := make([]int, len(a)), make([]int, len(b))
		for i := range a {
			a[i], sizesA[i] = random.Uint64N(2), random.IntN(3)
		}
		for i := range b {
			b[i], sizesB[i] = random.Uint64N(2), random.IntN(3)
		}
		match, ok := align(a, b)
		if !ok {
			t.Fatal("not aligned")
		}
		likely := func(x, y int) bool { return sizesA[x] == sizesB[y] }
		score := func() (sum int) {
			last := int32(-1)
			for x, y := range match {
				if y < 0 {
					continue
				}
				if y <= last || a[x] != b[y] {
					t.Fatalf("%v and %v: %v", a, b, match)
				}
				if last = y; likely(x, int(y)) {
					sum++
				}
				sum += matched
			}
			return sum
		}
		before := score()
		realign(a, b, match, likely)
		if after := score(); after < before {
			t.Fatalf("%v and %v: a score of %d, before %d", a, b, after, before)
		}
	}
}
