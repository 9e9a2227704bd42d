package caching

// Device is what an Allocator takes memory and addresses from. All sizes are in bytes and
// multiples of 512, those of Map and Unmap of the page.
type Device interface {
	// Alloc returns the address of a new segment, as cudaMalloc does, or refuses.
	Alloc(bytes uint64) (addr uint64, ok bool)

	// Free gives a segment back.
	Free(addr, bytes uint64)

	// Reserve reserves addresses for an expandable segment, or refuses.
	Reserve(bytes uint64) (addr uint64, ok bool)

	// Unreserve gives a reservation back, of which nothing is mapped.
	Unreserve(addr, bytes uint64)

	// Map backs a part of a reservation with memory, all of it or nothing.
	Map(addr, bytes uint64) bool

	// Unmap takes the memory of a mapped part away.
	Unmap(addr, bytes uint64)
}
