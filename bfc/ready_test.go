package bfc

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestReady has a free chunk of 4 pages whose frames serve another block, and one of 6 pages that are still mapped. A
// request of 4 pages fits the first best, and gets the second: nothing moves. When the other block is gone the first
// has its frames again, and the best fit stays. A chunk that would not be split is not taken.
func TestReady(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		second  bool // the request gets the second chunk
	}{
		{"split always", Options{Split: SplitAlways}, true},
		{"split classic", Options{Split: SplitClassic}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Limit, test.options.Growth = gib, Pages
			a := mustNew(t, test.options, NewDevice(DeviceOptions{VMM: true, Granularity: mib}))
			alloc := func(pages uint64) uint64 { return mustAlloc(t, a, pages*mib).Addr }
			free := func(addr uint64) {
				t.Helper()
				mustFree(t, a, addr)
				checkPages(t, a)
			}
			first := alloc(4)
			alloc(1)
			second := alloc(6)
			alloc(1)
			free(first)
			other := alloc(5) // behind the others, on the first chunk's frames
			free(second)
			want, moved := first, uint64(4)
			if test.second {
				want, moved = second, 0
			}
			a.pager.moved = 0
			got := alloc(4)
			assert.That(t, got == want && a.pager.moved == moved, "the block is at %#x, want %#x; %d pages moved, want %d", got, want, a.pager.moved, moved)
			free(got)
			free(other)
			assert.Equal(t, alloc(4), first, "with its frames free the first chunk is not taken: the block is at")
		})
	}
}
