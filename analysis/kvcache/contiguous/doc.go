// Package contiguous is the memory of the policies max, pow2 and oracle: each request reserves one contiguous
// piece of slots, and an allocator places it.
//
// # Reservations
//
// Each request reserves one piece: a row for each
// of its sequences, of as many slots as the policy says,
//
//	          c tokens so far    F in the end          R reserved
//	┌────────────────────────┬──────────────────────┬─────────────────────┐
//	│         token          │       reserve        │      internal       │
//	│         token          │       reserve        │      internal       │
//	└────────────────────────┴──────────────────────┴─────────────────────┘
//
// and an allocator returns a piece that may be larger: the difference is rounding. Each sequence has
// its own copy of a common prompt.
//
// Max reserves a fixed length, Pow2 the prompt plus the output rounded up to a power of two, Oracle the
// length that will be needed; none reserves more than the model's limit. A request that outgrows its
// reservation moves to a new one of twice the size, and the old one is freed after that. Until
// then its reserve ends at the end of the reservation.
//
// # Allocators
//
// A buddy allocator (buddy.go) rounds pieces up to powers of two. First fit (firstfit.go) takes exactly the slots
// from the first gap that is large enough. Best fit (bestfit.go) is the allocator of package bfc, in which a slot is a
// granule; it may hand out a larger chunk whole. Free slots are fragmented while no free piece serves the first
// waiting request, else idle.
package contiguous
