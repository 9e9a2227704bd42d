package accounting

import (
	"fmt"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Processes with more libraries than are listed, on one device: the bytes of each that is listed
// are its own, and all others have one line.
func TestFurtherLibraries(t *testing.T) {
	var h Holding
	for process := range 3 {
		var o Holding
		for i := range 40 {
			o.Libraries = append(o.Libraries, LibraryUse{fmt.Sprintf("lib%d-%d.so", process, i), int64(1000 - i)})
		}
		h.plus(&o)
		sortLibraries(h.Libraries) // as each process's are
	}
	assert.That(t, len(h.Libraries) == mostLibraries, "%d libraries", len(h.Libraries))
	for _, l := range h.Libraries {
		var process, i int
		_, err := fmt.Sscanf(l.Name, "lib%d-%d.so", &process, &i)
		assert.That(t, err != nil || l.Bytes == int64(1000-i), "%s has %d bytes, want %d", l.Name, l.Bytes, 1000-i)
	}
	want := int64(3 * (40*1000 - 39*40/2))
	assert.That(t, h.Other() == want, "%d bytes in all, want %d", h.Other(), want)
}
