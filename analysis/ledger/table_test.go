package ledger

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The table holds what a map holds, also when it is crowded and entries move.
func TestAddressTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, want := newAddressTable(), map[int64]int32{}
		unit := rapid.SampledFrom([]int64{1, 256, 1 << 21}).Draw(t, "unit")
		next := rapid.Int64Range(0, 1<<40).Draw(t, "first")
		for i := range rapid.IntRange(1, 3000).Draw(t, "inserts") {
			next = (next*6364136223846793005 + 1442695040888963407) & (1<<46 - 1)
			addr := next / unit * unit
			if _, there := want[addr]; !there {
				table.insert(addr, int32(i))
				want[addr] = int32(i)
			}
		}
		for i, addr := range slices.Sorted(maps.Keys(want)) {
			if i%3 > 0 {
				table.remove(addr)
				delete(want, addr)
				assert.Must(t, table.find(addr) == none, "%#x was removed and is there", addr)
			}
		}
		for addr, value := range want {
			got := table.find(addr)
			assert.Must(t, got == value, "%#x is %d, want %d", addr, got, value)
		}
		assert.Must(t, table.used == len(want), "%d used, want %d", table.used, len(want))
	})
}
