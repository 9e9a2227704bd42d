package stores

// allocator hands out pieces of a row of slots.
type allocator interface {
	// alloc places size slots, at least 1.
	alloc(size int64) (piece, bool)
	// free frees a piece that alloc returned.
	free(p piece)
	// serves says whether alloc would succeed now.
	serves(size int64) bool
	// available returns how many slots are in no piece.
	available() int64
	// most returns the largest size that an empty memory serves.
	most() int64
}

// piece is a range of slots that were handed out.
type piece struct {
	start int64
	size  int64 // at least the requested size
}
