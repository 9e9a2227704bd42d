package bfc

// Memory is where an Allocator's regions come from: a device, a model of one, or the
// script of a recording. The calls mirror struct bfc_memory of hooks/capture/bfc/bfc.h.
type Memory interface {
	// Granularity is the unit of grants in bytes, a power of two of at least 256.
	Granularity() uint64

	// Coalesces says whether a grant that starts where the last one ended joins its region.
	Coalesces() bool

	// Grow grants exactly bytes rounded up to the granularity, or refuses.
	Grow(bytes uint64) (addr, granted uint64, ok bool)

	// Release takes back a whole region (garbage collection).
	Release(addr, bytes uint64)

	// Map backs granules again that Allocator.Unmap gave back.
	Map(addr, bytes uint64) bool

	// Take takes back granules of free chunks, or refuses, which changes nothing. Where
	// grants do not coalesce it is called by Trim and UnmapFree only.
	TryUnmap(addr, bytes uint64) bool

	// Unmap undoes a Map of the same request after a later one failed.
	Unmap(addr, bytes uint64)

	// Free is what nobody has of the device, in bytes. It is asked only when the
	// headroom could clip a growth.
	Free() uint64
}
