package accounting

import (
	"fmt"
	"testing"
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
	if len(h.Libraries) != mostLibraries {
		t.Errorf("%d libraries", len(h.Libraries))
	}
	for _, l := range h.Libraries {
		var process, i int
		if _, err := fmt.Sscanf(l.Name, "lib%d-%d.so", &process, &i); err == nil && l.Bytes != int64(1000-i) {
			t.Errorf("%s has %d bytes, want %d", l.Name, l.Bytes, 1000-i)
		}
	}
	if want := int64(3 * (40*1000 - 39*40/2)); h.Other() != want {
		t.Errorf("%d bytes in all, want %d", h.Other(), want)
	}
}
