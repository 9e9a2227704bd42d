package ledger

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The peak has the greatest T among those of greatest R. What was reserved before a history counts as if it stayed, though the job
// releases it at once.
func TestPeak(t *testing.T) {
	states := []struct{ r, t int64 }{{100, 10}, {100, 20}, {40, 20}, {50, 45}, {50, 44}, {60, 45}, {120, 5}, {110, 60}}
	for opening, want := range map[int64][]bool{
		0: {true, true, false, false, false, false, true, false},
		2: {true, true, false, true, false, false, true, false},
	} {
		d := NewDevice(0)
		d.Opening = opening
		var peaks []bool
		for seq, s := range states {
			d.R, d.T = s.r, s.t
			peaks = append(peaks, d.Observe(int64(seq), 0))
		}
		assert.Diff(t, want, peaks, "peaks")
		assert.That(t, d.Peak.Seq == 6 && d.Peak.R == 120 && d.MaxR == 120 && d.MaxT == 60, "opening %d: %+v", opening, d.Peak)
	}
}
