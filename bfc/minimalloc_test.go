package bfc

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// change is the begin or the end of a buffer's life.
type change struct {
	time   int64
	begins bool
	buffer int
}

// readInstance reads an instance of minimalloc: the changes in order, ends first, and the sizes in bytes, of
// which a unit is 8 KiB.
func readInstance(t *testing.T, name string) (changes []change, sizes []uint64) {
	file, err := os.Open(name)
	assert.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	assert.NoError(t, err)
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		assert.NoError(t, err)
		return n
	}
	for i, row := range rows[1:] {
		changes = append(changes, change{number(row[1]), true, i}, change{number(row[2]), false, i})
		sizes = append(sizes, uint64(number(row[3]))*8<<10)
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		switch {
		case a.time != b.time:
			return int(a.time - b.time)
		case a.begins == b.begins:
			return 0
		case a.begins:
			return 1
		}
		return -1
	})
	return changes, sizes
}

// TestMinimalloc serves the public instances of minimalloc as iterations: in every one, the first included, no
// more than 1.05 times the load is mapped.
func TestMinimalloc(t *testing.T) {
	names, err := filepath.Glob("testdata/minimalloc/*.csv")
	assert.Must(t, err == nil && len(names) == 11, "%d instances, %v", len(names), err)
	for _, name := range names {
		changes, sizes := readInstance(t, name)
		a := mustNew(t, Options{Limit: NoLimit, Growth: Pages, Split: SplitAlways}, NewDevice(DeviceOptions{VMM: true, Granularity: 2 * mib}))
		for iteration := range 6 {
			load, now, mapped := uint64(0), uint64(0), uint64(0)
			addrs := make([]uint64, len(sizes))
			for _, c := range changes {
				if !c.begins {
					now -= sizes[c.buffer]
					mustFree(t, a, addrs[c.buffer])
					continue
				}
				b, ok := a.Alloc(sizes[c.buffer])
				assert.Must(t, ok, "a request failed")
				addrs[c.buffer] = b.Addr
				now += sizes[c.buffer]
				load, mapped = max(load, now), max(mapped, a.stats.Reserved)
			}
			a.EndIteration()
			if ratio := float64(mapped) / float64(load); ratio > 1.05 {
				t.Errorf("%s, iteration %d: %.3f of the load is mapped", filepath.Base(name), iteration, ratio)
			} else {
				t.Logf("%s, iteration %d: %.3f", filepath.Base(name), iteration, ratio)
			}
		}
	}
}
