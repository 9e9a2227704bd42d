package tune

import (
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestHandles: whole handles of a range are found as by looking at each page.
func TestHandles(t *testing.T) {
	const page, pages = 2 << 20, 200
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		h := handles{page: page, size: page, fine: true}
		handleOf := make([]int, pages+1) // of each page, its handle; unmapped: 0
		for at, n := 0, 1; at < pages; {
			size, bytes := 1<<r.IntN(4), 1+r.IntN(12)
			bytes = min(bytes, pages-at)
			h.add(uint64(at)*page, uint64(bytes)*page, uint64(size)*page)
			for i := range bytes {
				handleOf[at+i] = n + i/size
			}
			at, n = at+bytes, n+bytes
		}
		for range 20 {
			from, wanted := r.IntN(pages), 1+r.IntN(20)
			to := from + r.IntN(pages-from+1)
			first, end := from, to
			for first < end && first > 0 && handleOf[first] == handleOf[first-1] {
				first++
			}
			for end > first && end < pages && handleOf[end] == handleOf[end-1] {
				end--
			}
			low := end
			for low > first && (end-low < wanted || handleOf[low] == handleOf[low-1]) {
				low--
			}
			at, bytes := h.last(uint64(from)*page, uint64(to-from)*page, uint64(wanted)*page)
			if bytes != uint64(end-low)*page || bytes > 0 && at != uint64(low)*page {
				t.Fatalf("of pages [%d, %d), want %d: got %d pages at %d, not %d at %d", from, to, wanted, bytes/page, at/page, end-low, low)
			}
		}
	}
}

// TestHandleSize: a map of 1 GiB has handles of 16 MiB, also where memory is short; others are no larger than a 2,048th of the room.
func TestHandleSize(t *testing.T) {
	const page = 2 << 20
	for _, test := range []struct {
		size, bytes, room uint64
		fine, shortage    bool
		want              uint64
	}{
		{page, 1<<30 - page, 1 << 40, true, false, page},
		{page, 1 << 30, 1 << 40, true, false, 8 * page},
		{page, 70 << 30, 139 << 30, true, false, 16 * page},
		{page, 40 << 30, 139 << 30, true, false, 8 * page},
		{page, 70 << 30, 139 << 30, true, true, 8 * page},
		{page, 70 << 30, 139 << 30, false, false, page},
		{16 * page, 20 << 20, 8 << 30, true, false, 2 * page},
		{16 * page, 70 << 30, 139 << 30, true, false, 16 * page},
		{page, 16 << 30, 16 << 30, true, false, 8 * page},
	} {
		h := handles{page: page, size: test.size, fine: test.fine}
		assert.Equal(t, h.next(test.bytes, test.room, test.shortage), test.want, "%+v", test)
	}
}
