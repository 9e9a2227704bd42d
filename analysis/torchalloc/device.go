package torchalloc

// Device provides an Allocator with memory and addresses. All sizes are in bytes and
// multiples of 512, those of Map and Unmap of the page.
type Device interface {
	// Alloc returns the address of a new segment, as cudaMalloc does, or refuses.
	Alloc(bytes uint64) (addr uint64, ok bool)

	// Free releases a segment.
	Free(addr, bytes uint64)

	// Reserve reserves addresses for an expandable segment, or refuses.
	Reserve(bytes uint64) (addr uint64, ok bool)

	// Unreserve releases a reservation without mapped memory.
	Unreserve(addr, bytes uint64)

	// Map maps a part of a reservation, all of it or nothing.
	Map(addr, bytes uint64) bool

	// Unmap unmaps a mapped part.
	Unmap(addr, bytes uint64)
}
