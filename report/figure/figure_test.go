package figure

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/plot/vg"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Whatever the course, the reduced one has the same greatest and least values, the same peak
// instant, and covers the same time in order.
func TestReduceKeepsPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []analysis.Point
		now := rapid.Int64Range(0, 1e15).Draw(t, "start")
		value := rapid.Int64Range(0, 1000)
		for range rapid.IntRange(1, 300).Draw(t, "points") {
			least, greatest := value.Draw(t, "least"), value.Draw(t, "more")
			r := analysis.Range{Min: least, Max: least + greatest}
			p := analysis.Point{Start: now, End: now + rapid.Int64Range(0, 50).Draw(t, "length"), T: r, C: r, R: r}
			p.At = ledger.Instant{Time: now, R: value.Draw(t, "R"), T: value.Draw(t, "T")}
			p.Last = ledger.Instant{Seq: int64(len(points))}
			points = append(points, p)
			now = p.End + rapid.Int64Range(0, 1000).Draw(t, "gap")
		}
		n := rapid.IntRange(1, 100).Draw(t, "n")
		reduced := ReducePoints(append([]analysis.Point(nil), points...), n)
		assert.Must(t, len(reduced) <= min(n, len(points)), "%d points became %d, at most %d wanted", len(points), len(reduced), n)
		a, b := bounds(points), bounds(reduced)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatal(diff)
		}
		for i := 1; i < len(reduced); i++ {
			assert.Must(t, reduced[i].Start >= reduced[i-1].End, "point %d begins before the last ends", i)
		}
		slice := (points[len(points)-1].Start-points[0].Start)/int64(n) + 1
		for i := 1; i < len(points); i++ {
			before, after := points[i-1], points[i]
			if after.Start-before.End <= slice {
				continue
			}
			k := slices.IndexFunc(reduced, func(p analysis.Point) bool { return p.Start == after.Start })
			if k < 1 || reduced[k-1].End != before.End || reduced[k-1].Last != before.Last {
				t.Fatalf("the silence from %d to %d is lost", before.End, after.Start)
			}
		}
	})
}

// bounds joins all points into one.
func bounds(points []analysis.Point) analysis.Point {
	hull := func(a, b analysis.Range) analysis.Range {
		return analysis.Range{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}
	}
	all := points[0]
	for _, p := range points[1:] {
		all.End = max(all.End, p.End)
		all.T, all.C, all.R = hull(all.T, p.T), hull(all.C, p.C), hull(all.R, p.R)
		if p.At.R > all.At.R || p.At.R == all.At.R && p.At.T > all.At.T {
			all.At = p.At
		}
		all.Last = p.Last
	}
	return all
}

// A point of one event is a pixel wide, and many beside each other keep their places.
func TestStrips(t *testing.T) {
	var points []analysis.Point
	for i := range int64(1000) {
		points = append(points, analysis.Point{Start: 11 * i, End: 11 * i})
	}
	x := func(t float64) vg.Length { return vg.Length(t) * Pixel / 10 } // 1.1 pixels apart
	places := Strips(points, x, x(12_000))
	for i, s := range places {
		from, next := x(float64(11*i)), x(float64(11*i+11))
		if i == 999 {
			next = x(12_000)
		}
		if s.From != from || s.To != from+Pixel || s.Next != next {
			t.Fatalf("strip %d is [%v, %v] and holds to %v, want [%v, %v] and %v", i, s.From, s.To, s.Next, from, from+Pixel, next)
		}
	}
	points = []analysis.Point{{Start: 108, End: 109}, {Start: 110, End: 125}, {Start: 130, End: 130}}
	var got []float64
	for _, s := range Strips(points, x, x(130)) {
		got = append(got, float64(s.From/Pixel), float64(s.To/Pixel), float64(s.Next/Pixel))
	}
	want := []float64{10.8, 11.8, 11.8, 11.8, 12.8, 13, 13, 14, 14}
	assert.Diff(t, want, got, cmpopts.EquateApprox(0, 1e-9))
}

func TestNiceTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		n         int
		scale     float64
		want      string
	}{
		{0, 10, 5, 1, "0 2 4 6 8 10"}, {0, 11.6 * float64((1 << 30)), 7, float64((1 << 30)), "0 2 4 6 8 10"}, {0.3, 1.3, 10, 1, "0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0 1.1 1.2 1.3"},
		{-1, 1, 2, 1, "-1 0 1"}, {5, 5, 4, 1, "5"}, {0, 0, 4, 1, "0"}, {1e11, 1e11 + 2e6, 5, 1e6, "100000.0 100000.5 100001.0 100001.5 100002.0"},
	} {
		var labels []string
		for _, tick := range NiceTicks(test.low, test.high, test.n, test.scale, Fixed) {
			labels = append(labels, tick.Label)
		}
		assert.Equal(t, strings.Join(labels, " "), test.want, "ticks of [%v, %v]", test.low, test.high)
	}
}

func TestIterationStep(t *testing.T) {
	for _, test := range []struct{ n, most, want int }{
		{0, 10, 1}, {10, 10, 1}, {11, 10, 5}, {54, 10, 5}, {59, 10, 10}, {60, 10, 10}, {110, 10, 20}, {300, 10, 50}, {600, 10, 100}, {2000, 10, 200}, {1_000_000, 60, 20000},
	} {
		assert.Equal(t, IterationStep(test.n, test.most), test.want, "iterationStep(%d, %d)", test.n, test.most)
	}
}

// A plot that could not be drawn to its end leaves no file behind.
var errFull = errors.New("disk full")

func TestWriteFileRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "half.png")
	err := WriteFile(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return errFull
	})
	assert.That(t, errors.Is(err, errFull) && strings.Contains(err.Error(), path), "%v; want %v and the path", err, errFull)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half-written file is there: %v", err)
	}
}

// Where a float64 has no number between two ticks, there are still no more of them than were asked for.
func TestNiceTicksFarFromZero(t *testing.T) {
	for _, low := range []float64{9e15, 9e17, 9e18} {
		ticks := NiceTicks(low, low+2048, 10, 1e3, Fixed)
		assert.That(t, len(ticks) != 0 && len(ticks) <= 11, "%d ticks from %v on: %v", len(ticks), low, ticks)
	}
}
