package torchalloc

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestDriver gives the driver the requests that cudaMalloc got on an H200 and demands its
// addresses, but for the place of the whole.
func TestDriver(t *testing.T) {
	f, err := os.Open("testdata/addresses.txt.gz")
	assert.NoError(t, err)
	defer f.Close()
	in, err := gzip.NewReader(f)
	assert.NoError(t, err)
	// Two rests of the context's own memory served segments, and lay above all spans.
	const spans, rest24, rest2 = 0x7faab2000000, 0x7faad0800000, 0x7faacbe00000
	d := NewDriver(1 << 40)
	shift := uint64(spans - spansEnd) // of what the driver places
	d.spans = []*span{
		{addr: rest24 - shift, size: 24 * mib, kept: true},
		{addr: rest2 - shift, size: 2 * mib, kept: true},
	}
	placed := 0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var kind string
		var addr, bytes uint64
		if _, err := fmt.Sscan(lines.Text(), &kind, &addr, &bytes); err != nil {
			t.Fatal(err)
		}
		if kind == "f" {
			d.Free(addr-shift, bytes)
			continue
		}
		got, ok := d.Alloc(bytes)
		assert.Must(t, ok && got+shift == addr, "segment %d of %d MiB: %#x, want %#x", placed, bytes/mib, got+shift, addr)
		placed++
	}
	assert.That(t, placed == 3074 && d.room != 1<<40, "%d segments were compared", placed)
}

// However many bytes a device has, addresses do not wrap around, and segments do not overlap.
func TestDriverBounds(t *testing.T) {
	d := NewDriver(1 << 60)
	served := 0
	for range 10 {
		addr, ok := d.Alloc(30 << 40)
		if !ok {
			continue
		}
		if served++; addr > spansEnd-uint64(served)*30<<40 {
			t.Fatalf("segment %d of 30 TiB at %#x", served, addr)
		}
	}
	if want := spansEnd / (30 << 40); served != want || d.room != 1<<60-uint64(want)*30<<40 {
		t.Errorf("%d segments of 30 TiB below %#x, want %d; room %#x", served, uint64(spansEnd), want, d.room)
	}
}
