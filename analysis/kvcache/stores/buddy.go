package stores

import (
	"math/bits"
	"slices"
)

// buddy hands out powers of two. A memory that is none itself starts as the powers of two that
// it is the sum of, the largest at the lowest address:
//
//	15,728 = 8192 + 4096 + 2048 + 1024 + 256 + 64 + 32 + 16
//
// A request takes the smallest free block that is large enough, at the lowest address among equals, and
// halves it, keeping the lower half, while a half is large enough. A freed block merges with its buddy,
// the other half of the block that both came from, while that is free. The first blocks have no
// buddy.
type buddy struct {
	blocks  [63][]int64 // starts of the free blocks of 2^k slots, ascending
	slots   int64       // in free blocks
	largest int64       // size of the first block of the start, the most that is ever served
}

// piece is a range of slots that were handed out.
type piece struct {
	start int64
	size  int64 // at least the requested size
}

func newBuddy(capacity int64) *buddy {
	b := &buddy{slots: capacity}
	var start int64
	for k := len(b.blocks) - 1; k >= 0; k-- {
		if size := int64(1) << k; capacity&size != 0 {
			b.blocks[k] = []int64{start}
			b.largest = max(b.largest, size)
			start += size
		}
	}
	return b
}

// order is the exponent of the least power of two that holds size, which is at least 1.
func order(size int64) int { return bits.Len64(uint64(size - 1)) }

// alloc places size slots, at least 1.
func (b *buddy) alloc(size int64) (piece, bool) {
	want := order(size)
	k := b.find(want)
	if k < 0 {
		return piece{}, false
	}
	start := b.blocks[k][0]
	b.blocks[k] = slices.Delete(b.blocks[k], 0, 1)
	for k > want {
		k--
		b.insert(k, start+1<<k)
	}
	b.slots -= 1 << want
	return piece{start, 1 << want}, true
}

// find is the least order from want of which a block is free, or -1.
func (b *buddy) find(want int) int {
	for k := want; k < len(b.blocks); k++ {
		if len(b.blocks[k]) > 0 {
			return k
		}
	}
	return -1
}

func (b *buddy) insert(k int, start int64) {
	i, _ := slices.BinarySearch(b.blocks[k], start)
	b.blocks[k] = slices.Insert(b.blocks[k], i, start)
}

// free merges by address: the buddy of a block of the start would have to be free in one piece
// at an address where smaller ones of the start lie, and they never merge to its size.
func (b *buddy) free(p piece) {
	b.slots += p.size
	k, start := order(p.size), p.start
	for {
		i, ok := slices.BinarySearch(b.blocks[k], start^1<<k)
		if !ok {
			break
		}
		b.blocks[k] = slices.Delete(b.blocks[k], i, i+1)
		start &^= 1 << k
		k++
	}
	b.insert(k, start)
}

// serves says whether alloc would succeed now.
func (b *buddy) serves(size int64) bool { return b.find(order(size)) >= 0 }
