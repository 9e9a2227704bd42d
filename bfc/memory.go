package bfc

const (
	// Granule is the unit of chunks and of rounding, in bytes.
	Granule = 1 << granuleBits

	granuleBits = 8
)

// Memory is where an Allocator's regions come from: a device, a model of one, or the
// script of a recording. The calls mirror struct bfc_memory of hooks/capture/bfc/bfc.h.
type Memory interface {
	// Granularity is the size of a page in bytes, a power of two of at least 256.
	Granularity() uint64

	// Coalesces says whether a grant that begins where a region ends lengthens it.
	Coalesces() bool

	// Grow maps bytes, rounded up to whole pages, at addresses of its choice; or refuses.
	Grow(bytes uint64) (addr, granted uint64, ok bool)

	// Adjoins says whether a growth by bytes, rounded up, would lie right behind the last one. It is called only where grants coalesce.
	Adjoins(bytes uint64) bool

	// Release unmaps a whole region and ends its addresses (garbage collection).
	Release(addr, bytes uint64)

	// Map maps pages that were unmapped, or refuses.
	Map(addr, bytes uint64) bool

	// TryUnmap unmaps pages of free chunks; or refuses, which changes nothing. Where grants do
	// not coalesce only Trim and UnmapFree call it.
	TryUnmap(addr, bytes uint64) bool

	// Unmap undoes a Map of the same request after a later one was refused.
	Unmap(addr, bytes uint64)

	// Free returns how many bytes of the device nobody has. It is called only when the headroom
	// could clip a growth.
	Free() uint64
}
