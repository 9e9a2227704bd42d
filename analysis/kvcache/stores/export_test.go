package stores

import "github.com/memprof/memprof/analysis/kvcache"

// What tests of this package see that run a whole simulation, which imports it.
type (
	ContiguousStore = contiguousStore
	LayeredStore    = layeredStore
)

var (
	NewContiguous = newContiguous
	NewLayered    = newLayered
)

// Reserved returns what a group has reserved: tokens of each sequence, and the slots of its piece.
func Reserved(g *kvcache.Group) (columns, size int64) {
	v := g.Private.(*reservation)
	return v.columns, v.piece.size
}

// Used returns the pages in use.
func (s *layeredStore) Used() int64 { return s.pages - s.free }

// Running returns the groups that have pages.
func (s *layeredStore) Running() int64 { return s.running }

// PagesOf returns the pages of a sequence of so many tokens.
func (s *layeredStore) PagesOf(tokens int64) int64 {
	pages, _, _ := s.of(tokens)
	return pages
}
