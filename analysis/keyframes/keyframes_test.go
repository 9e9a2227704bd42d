package keyframes

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestBands(t *testing.T) {
	b := Bands{limit: 8}
	b.Enter("data", 0)
	b.Enter("forward", 100_000)
	for i := range int64(20) { // short turns
		b.Enter("backward", 200_000+100*i)
		b.Enter("optimizer", 200_050+100*i)
	}
	b.Enter("data", 500_000)
	want := []Band{{0, 100_000, "data"}, {100_000, 200_000, "forward"}}
	got := b.Finish(600_000)
	if diff := gocmp.Diff(want, got[:2]); diff != "" {
		t.Error(diff)
	}
	assert.Equal(t, got[len(got)-1], Band{500_000, 600_000, "data"}, "the last")
	several := false
	for i, band := range got[1:] {
		assert.That(t, band.Start == got[i].End, "a gap before %+v", band)
		several = several || band.Phase == ""
	}
	assert.That(t, len(got) < 8 && several, "%d bands, %+v", len(got), got)
}

func TestWindowsKeepExtremes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type state struct{ seq, t int64 }
		var states []state // of each unit one or two
		var units []int    // the first state of each
		w := windows{size: 1, limit: rapid.IntRange(2, MaxWindows).Draw(t, "limit")}
		for range rapid.IntRange(1, 4*w.limit).Draw(t, "units") {
			units = append(units, len(states))
			for range 1 + len(states)%2 {
				s := state{int64(len(states)), rapid.Int64Range(0, 1000).Draw(t, "T")}
				states = append(states, s)
				w.observe(&ledger.Device{Split: ledger.Split{T: s.t}}, s.seq, 0)
			}
			w.end()
			if rapid.IntRange(0, 300).Draw(t, "thin") == 0 && len(w.all) > 1 {
				w.halve()
			}
		}
		assert.Must(t, len(w.all) <= w.limit, "%d windows, want at most %d", len(w.all), w.limit)
		for i := range w.all {
			from, to := units[int64(i)*w.size], len(states)
			if next := int64(i+1) * w.size; next < int64(len(units)) {
				to = units[next]
			}
			high, low := states[from], states[from]
			for _, s := range states[from:to] {
				if s.t > high.t {
					high = s
				}
				if s.t < low.t {
					low = s
				}
			}
			got := w.all[i]
			if (state{got.peak.Seq, got.peak.T}) != high || (state{got.trough.Seq, got.trough.T}) != low {
				t.Fatalf("window %d of %d units each: from %+v to %+v, want %+v to %+v", i, w.size, got.trough, got.peak, low, high)
			}
		}
	})
}
