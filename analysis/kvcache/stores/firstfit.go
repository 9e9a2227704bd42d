package stores

import (
	"cmp"
	"slices"
)

// firstFit takes exactly the requested slots from the low end of the first free piece that is large
// enough. Adjacent free pieces are one.
type firstFit struct {
	gaps     []piece // by start; no two touch
	slots    int64   // in gaps
	capacity int64
}

func newFirstFit(capacity int64) *firstFit {
	return &firstFit{gaps: []piece{{0, capacity}}, slots: capacity, capacity: capacity}
}

func (f *firstFit) alloc(size int64) (piece, bool) {
	i := f.find(size)
	if i < 0 {
		return piece{}, false
	}
	p := piece{f.gaps[i].start, size}
	f.slots -= size
	f.gaps[i].start += size
	f.gaps[i].size -= size
	if f.gaps[i].size == 0 {
		f.gaps = slices.Delete(f.gaps, i, i+1)
	}
	return p, true
}

// find is the index of the first gap that holds size, or -1.
func (f *firstFit) find(size int64) int {
	return slices.IndexFunc(f.gaps, func(h piece) bool { return h.size >= size })
}

func (f *firstFit) free(p piece) {
	f.slots += p.size
	i, _ := slices.BinarySearchFunc(f.gaps, p, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	f.gaps = slices.Insert(f.gaps, i, p)
	f.join(i)
	if i > 0 {
		f.join(i - 1)
	}
}

// join makes gap i and the one behind it one, if they touch.
func (f *firstFit) join(i int) {
	if i+1 < len(f.gaps) && f.gaps[i].start+f.gaps[i].size == f.gaps[i+1].start {
		f.gaps[i].size += f.gaps[i+1].size
		f.gaps = slices.Delete(f.gaps, i+1, i+2)
	}
}

func (f *firstFit) serves(size int64) bool { return f.find(size) >= 0 }
func (f *firstFit) available() int64       { return f.slots }
func (f *firstFit) most() int64            { return f.capacity }
