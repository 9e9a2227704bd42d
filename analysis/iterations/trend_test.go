package iterations

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// points are values that are one apart.
func points(values ...int64) []trendPoint {
	out := make([]trendPoint, len(values))
	for i, v := range values {
		out[i] = trendPoint{float64(i), v}
	}
	return out
}

func TestTheilSen(t *testing.T) {
	for _, test := range []struct {
		values []int64
		want   float64
	}{
		{nil, 0},
		{[]int64{5}, 0},
		{[]int64{1, 3}, 2},
		{[]int64{0, 10, 20, 1000, 40}, 10}, // an outlier
		{[]int64{7, 7, 7, 7}, 0},
		{[]int64{30, 20, 10}, -10},
		{[]int64{0, 1, 4}, 2}, // slopes 1, 2, 3
	} {
		if got := theilSen(points(test.values...)); got != test.want {
			t.Errorf("theilSen(%v) = %v, want %v", test.values, got, test.want)
		}
	}
	long := make([]int64, 50_000)
	for i := range long {
		long[i] = 3 * int64(i)
	}
	if got := trendOf(points(long...)); got != (Trend{Valid: true, Points: 50_000, Slope: 3, Rising: true}) {
		t.Errorf("%+v of 50,000 ends that rise by 3", got)
	}
}

// By hand: S of five rising values is 10, its variance 5*4*15/18.
func TestMannKendall(t *testing.T) {
	for _, test := range []struct {
		values []int64
		want   float64
	}{
		{[]int64{1, 2, 3, 4, 5}, 9 / math.Sqrt(300./18)},
		{[]int64{5, 4, 3, 2, 1}, -9 / math.Sqrt(300./18)},
		{[]int64{1, 2, 3, 4}, 5 / math.Sqrt(4*3*13./18)},
		{[]int64{0, 0, 1, 1, 2, 2}, 11 / math.Sqrt((6*5*17.-3*2*1*9)/18)}, // three ties of two
		{[]int64{3, 3, 3, 3, 3}, 0},
		{[]int64{1, 2, 1, 2, 1}, 0},
		{nil, 0},
	} {
		if got := mannKendall(points(test.values...)); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("mannKendall(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestTrend(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		values []int64
		want   Trend
	}{
		"four":             {[]int64{1, 2, 3, 4}, Trend{Points: 4}},
		"five":             {[]int64{10, 20, 30, 40, 50}, Trend{true, 5, 10, true}},
		"flat":             {[]int64{7, 7, 7, 7, 7, 7}, Trend{true, 6, 0, false}},
		"falls":            {[]int64{50, 40, 30, 20, 10}, Trend{true, 5, -10, false}},
		"in turns":         {[]int64{0, 3 * gib, 0, 3 * gib, 0, 3 * gib}, Trend{true, 6, 0, false}},
		"one step":         {[]int64{0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9}, Trend{true, 11, 1, false}},
		"fills up":         {[]int64{1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 6, 6}, Trend{true, 12, 0.41428571428571426, false}},
		"an outlier":       {[]int64{10, 20, 9000, 40, 50, 60, 70, 80}, Trend{true, 8, 10, true}},
		"by two":           {[]int64{0, 0, 10, 10, 20, 20, 30, 30}, Trend{true, 8, 5, true}},
		"too few for this": {[]int64{10, 30, 20, 40, 50}, Trend{true, 5, 10, false}},
	} {
		if got := trendOf(points(test.values...)); math.Abs(got.Slope-test.want.Slope) > 1e-9 || got.Rising != test.want.Rising || got.Points != test.want.Points || got.Valid != test.want.Valid {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// Windows are those of a naive count, whatever the widths before the last one.
func TestLowsAreTheLeastOfTheirWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type event struct{ time, held int64 }
		var events []event
		time := rapid.Int64Range(-5, 1e6).Draw(t, "start")
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			time += rapid.Int64Range(0, 1<<rapid.IntRange(0, 22).Draw(t, "bits")).Draw(t, "pause")
			events = append(events, event{time, rapid.Int64Range(0, 1000).Draw(t, "held")})
		}
		var l lows
		for i, e := range events {
			l.observe(int64(i), e.time, e.held, 0)
		}
		if n := len(l.windows); n < 1 || n > LowWindows || l.shift > narrowestWindow && n <= LowWindows/2 {
			t.Fatalf("%d windows of 1<<%d", n, l.shift)
		}
		for i, w := range l.windows {
			from := l.start + int64(i)<<l.shift
			want, before := int64(math.MaxInt64), int64(-1)
			for _, e := range events {
				switch {
				case e.time < from:
					before = e.held
				case e.time < from+1<<l.shift:
					want = min(want, e.held)
				}
			}
			if before >= 0 { // held when the window began
				want = min(want, before)
			}
			if w.low != want {
				t.Fatalf("window %d: %d, want %d", i, w.low, want)
			}
		}
	})
}

// However many requests there are, the points stay bounded, and each is the least of its requests.
func TestRequestPointsAreBounded(t *testing.T) {
	k := requestKind{stride: 1}
	const requests = 100_000
	for i := range int64(requests) {
		k.add(7*i+1000*(i%2), i)
	}
	got := k.trend()
	if len(k.points) > 2*trendSamples || k.stride != 64 || !got.Rising || got.Slope != 7 {
		t.Errorf("%d points of %d requests: %+v", len(k.points), k.stride, got)
	}
}
