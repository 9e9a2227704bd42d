package accounting

import (
	"fmt"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
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

// A communicator's memory is a part of its library's, and frees are of the communicator that allocated.
func TestCommunicators(t *testing.T) {
	texts := map[int32]string{1: "call=cuMemCreate\tlibrary=libnccl.so.2\tcommunicator=1\tranks=8", 2: "call=cuMemCreate\tlibrary=libnccl.so.2\tcommunicator=2", 3: "call=cuMemCreate\tlibrary=libnccl.so.2", 4: "call=cuMemRelease\tlibrary=libnccl.so.2"}
	tracker := New(func(id int32) string { return texts[id] }, nil)
	device := NewDevice(new(ledger.Device))
	for i, e := range []trace.Event{
		{Kind: trace.KindExternalAlloc, Addr: 100, Provided: 10, Context: 1},
		{Kind: trace.KindExternalAlloc, Addr: 200, Provided: 20, Context: 2},
		{Kind: trace.KindExternalAlloc, Addr: 300, Provided: 30, Context: 1},
		{Kind: trace.KindExternalAlloc, Addr: 400, Provided: 40, Context: 3},
		{Kind: trace.KindExternalFree, Addr: 100, Context: 4},
		{Kind: trace.KindExternalFree, Addr: 200, Context: 4},
	} {
		e.Seq = int64(i)
		tracker.OtherLibrary(device, &e)
	}
	held := device.holding(ledger.Instant{}, -1)
	want := []LibraryUse{{"libnccl.so.2", 70}}
	assert.That(t, slices.Equal(held.Libraries, want), "libraries %v, want %v", held.Libraries, want)
	if want := []CommunicatorUse{{"libnccl.so.2", 1, 8, 30}}; !slices.Equal(held.Communicators, want) {
		t.Errorf("communicators %v, want %v", held.Communicators, want)
	}
}
