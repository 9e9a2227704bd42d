package layered

// Used returns the pages in use.
func (s *Store) Used() int64 { return s.pages - s.free }

// Running returns the groups that have pages.
func (s *Store) Running() int64 { return s.running }

// PagesOf returns the pages of a sequence of so many tokens.
func (s *Store) PagesOf(tokens int64) int64 {
	pages, _, _ := s.of(tokens)
	return pages
}
