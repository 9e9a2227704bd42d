package screen

import (
	"bytes"
	"testing"

	"github.com/memprof/memprof/trace"
)

func TestLiveText(t *testing.T) {
	totals := trace.Totals{Events: 12345, Requested: 3 << 30, Provided: 3<<30 + 512, Reserved: 4 << 30, PeakReserved: 5 << 30}
	const want = "memprof: 12,345 events · requested 3 GiB · provided 3.00 GiB · reserved 4 GiB · peak 5 GiB"
	if got := liveText(totals); got != want {
		t.Errorf("liveText() = %q, want %q", got, want)
	}
	if got := Cut(want, 20); got != "memprof: 12,345 even" {
		t.Errorf("cut to 20 columns: %q", got)
	}
	if got := Cut("größer", 4); got != "größ" {
		t.Errorf("cut counts bytes: %q", got)
	}
}

// TestLiveLineOffTerminal: what goes to a file or a pipe has no line that is drawn over.
func TestLiveLineOffTerminal(t *testing.T) {
	var out bytes.Buffer
	line := NewLiveLine(&out, false)
	line.Draw(trace.Totals{Events: 1})
	line.Clear()
	if out.Len() > 0 {
		t.Errorf("drawn off a terminal: %q", out.String())
	}
}
