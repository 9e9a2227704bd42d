package screen

import (
	"bytes"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestLiveText(t *testing.T) {
	totals := trace.Totals{Events: 12345, Requested: 3 << 30, Provided: 3<<30 + 512, Reserved: 4 << 30, PeakReserved: 5 << 30}
	const want = "memprof: 12,345 events · requested 3 GiB · provided 3.00 GiB · reserved 4 GiB · peak 5 GiB"
	assert.Equal(t, liveText(totals), want, "liveText()")
	assert.Equal(t, Cut(want, 20), "memprof: 12,345 even", "cut to 20 columns")
	assert.Equal(t, Cut("größer", 4), "größ", "cut counts bytes")
}

// TestLiveLineOffTerminal: what goes to a file or a pipe has no line that is drawn over.
func TestLiveLineOffTerminal(t *testing.T) {
	var out bytes.Buffer
	line := NewLiveLine(&out, false)
	line.Draw(trace.Totals{Events: 1})
	line.Clear()
	assert.That(t, out.Len() <= 0, "drawn off a terminal: %q", out.String())
}
