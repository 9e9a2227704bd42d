package kvcache

import (
	"cmp"
	"slices"
)

// firstFit takes exactly the requested slots from the low end of the first free piece that is large
// enough. Adjacent free pieces are one.
type firstFit struct {
	holes    []piece // by start; no two touch
	slots    int64   // in holes
	capacity int64
}

func newFirstFit(capacity int64) *firstFit {
	return &firstFit{holes: []piece{{0, capacity}}, slots: capacity, capacity: capacity}
}

func (f *firstFit) alloc(size int64) (piece, bool) {
	i := f.find(size)
	if i < 0 {
		return piece{}, false
	}
	p := piece{f.holes[i].start, size}
	f.slots -= size
	f.holes[i].start += size
	f.holes[i].size -= size
	if f.holes[i].size == 0 {
		f.holes = slices.Delete(f.holes, i, i+1)
	}
	return p, true
}

// find is the index of the first hole that holds size, or -1.
func (f *firstFit) find(size int64) int {
	return slices.IndexFunc(f.holes, func(h piece) bool { return h.size >= size })
}

func (f *firstFit) free(p piece) {
	f.slots += p.size
	i, _ := slices.BinarySearchFunc(f.holes, p, func(a, b piece) int { return cmp.Compare(a.start, b.start) })
	f.holes = slices.Insert(f.holes, i, p)
	f.join(i)
	if i > 0 {
		f.join(i - 1)
	}
}

// join makes hole i and the one behind it one, if they touch.
func (f *firstFit) join(i int) {
	if i+1 < len(f.holes) && f.holes[i].start+f.holes[i].size == f.holes[i+1].start {
		f.holes[i].size += f.holes[i+1].size
		f.holes = slices.Delete(f.holes, i+1, i+2)
	}
}

func (f *firstFit) serves(size int64) bool { return f.find(size) >= 0 }
func (f *firstFit) available() int64       { return f.slots }
func (f *firstFit) most() int64            { return f.capacity }
