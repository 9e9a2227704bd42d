package tune

import "testing"

// Two ranges in turns on the same pages: the first gives its pages to the second, which maps the pages at its addresses;
// from then on both find them there.
func TestUnplaced(t *testing.T) {
	const page = 2 << 20
	l := newUnplaced(page)
	check := func(what string, addr, bytes uint64, created, moved, unmapped int64) {
		t.Helper()
		c, m, u := l.use(addr, bytes, l.page)
		if c != created || m != moved || u != unmapped {
			t.Errorf("%s: %d created, %d moved, %d unmapped, want %d, %d, %d", what, c, m, u, created, moved, unmapped)
		}
	}
	const a, b, c = 100 * page, 200 * page, 300 * page
	check("a first", a, 4*page, 4, 0, 0)
	l.unplace(a, 4*page)
	check("b first", b, 6*page, 2, 4, 0)
	for range 3 {
		l.unplace(b, 4*page)
		check("a again", a, 4*page, 0, 0, 0)
		l.unplace(a, 4*page)
		check("b again", b, 4*page, 0, 0, 0)
	}
	l.unplace(b, 2*page)
	check("c", c, 2*page, 0, 2, 0)
	l.unplace(b+2*page, 2*page)
	check("a, two of whose handles c has", a, 4*page, 2, 0, 2)
}
