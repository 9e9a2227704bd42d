package torchalloc

import (
	"math/bits"
)

// scatter is a device that places segments without any order. Torch takes the lowest of equal free blocks, so
// a replay over several scatters shows how much of its result is left to the driver.
type scatter struct {
	*Driver
	seed, count uint64
	room        uint64
}

// slots are the places of a scatter: 1<<slotBits of them, 1<<slotShift bytes apart.
const (
	slotBits  = 16
	slotShift = 46
)

func newScatter(total, seed uint64) *scatter {
	return &scatter{Driver: NewDriver(total), seed: seed, room: total}
}

// Alloc places the nth segment in a slot that no other of the same 65,536 has: multiplying by an odd number and
// reversing the bits permutes them. Later ones lie behind those, in the same slots.
func (s *scatter) Alloc(size uint64) (addr uint64, ok bool) {
	if size > s.room {
		return 0, false
	}
	s.room -= size
	slot := bits.Reverse64((s.count*(2*s.seed+1)+s.seed)<<(64-slotBits))*(2*s.seed+3)%(1<<slotBits) + 1
	round := s.count >> slotBits
	s.count++
	return slot<<slotShift + round<<40, true
}

func (s *scatter) adopt(_, size uint64) bool {
	ok := size <= s.room
	if ok {
		s.room -= size
	}
	return ok
}

// Free gives the memory back. Addresses are not used again.
func (s *scatter) Free(_, size uint64) { s.room += size }
