package page

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// pageCode is parts of the page's script, for an expression that uses them.
func pageCode(t *testing.T, expression string, parts ...string) string {
	t.Helper()
	code := ""
	for _, name := range parts {
		text, err := content.ReadFile("html/" + name + ".js")
		assert.NoError(t, err)
		code += string(text)
	}
	return "(() => {" + code + "return " + expression + ";})()"
}

// The page writes sizes as the reports in the terminal do, those between two roundings among them.
func TestPageSizes(t *testing.T) {
	b := reporttest.NewBrowser(t)
	sizes := []int64{
		0, 1, 1023, 1024, 1536, mib - 1, 1023*kib + 200, gib + gib/4,
		220*mib + mib/2, 221*mib + mib/2, 1023*mib + mib/2, gib + gib/8, gib + 3*gib/8, 10*gib + gib/4, 10*gib + 3*gib/4, 99*gib + 972*mib + 819*kib,
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		sizes = append(sizes, random.Int64N(1<<(10+random.IntN(40))), 1<<20*random.Int64N(1<<22)/8)
	}
	text, err := json.Marshal(sizes)
	assert.NoError(t, err)
	got, _ := b.Eval(pageCode(t, string(text)+".map((size) => formatSize(size))", "format")).([]any)
	assert.Must(t, len(got) == len(sizes), "%d texts of %d sizes", len(got), len(sizes))
	for i, size := range sizes {
		want := plain.FormatSize(size)
		assert.That(t, got[i] == want, "%d bytes are %q on the page, %q in the terminal", size, got[i], want)
	}
}

// courseInts are the columns of a level as the page has them when it has read them.
func courseInts(points []analysis.Point) map[string][]int64 {
	out := map[string][]int64{}
	for _, p := range points {
		for name, value := range map[string]int64{
			"start": p.Start, "end": p.End, "minT": p.T.Min, "maxT": p.T.Max, "t": p.Last.T, "minC": p.C.Min, "maxC": p.C.Max, "c": p.Last.C,
			"minR": p.R.Min, "maxR": p.R.Max, "r": p.Last.R, "pending": p.Last.Pending,
		} {
			out[name] = append(out[name], value)
		}
	}
	return out
}

// unevenCourse has bursts of points and long times with few.
func unevenCourse(random *rand.Rand, n int) []analysis.Point {
	var points []analysis.Point
	time := int64(1000)
	for range n {
		value := func(below int64) int64 { return 1 + random.Int64N(below) }
		last := ledger.Instant{T: value(1000), Pending: value(50), Reserve: value(500)}
		last.C = last.T + value(100)
		last.R = last.C + last.Pending + last.Reserve + value(1000)
		p := analysis.Point{Start: time, End: time + random.Int64N(20), Last: last}
		around := func(v int64) analysis.Range {
			return analysis.Range{Min: v - random.Int64N(v), Max: v + random.Int64N(300)}
		}
		p.T, p.C, p.R = around(last.T), around(last.C), around(last.R)
		points = append(points, p)
		time = p.End + 1 + random.Int64N(10)
		if random.IntN(40) == 0 {
			time += random.Int64N(100_000)
		}
	}
	return points
}

// However few points a level has, what is drawn at a time was so within two columns of it, and no extreme of
// requested, provided and reserved is left out.
func TestPageCourse(t *testing.T) {
	const columns = 300
	b := reporttest.NewBrowser(t)
	random := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 5, 40, 5000, 20000} {
		finest := unevenCourse(random, n)
		levels := []map[string][]int64{courseInts(finest)}
		for points := finest; len(points) > coarsestLevel; {
			points = coarser(points)
			levels = append(levels, courseInts(points))
		}
		text, err := json.Marshal(levels)
		assert.NoError(t, err)
		end := finest[len(finest)-1].End + 1
		for _, view := range [][2]int64{{finest[0].Start, end}, {end / 3, end / 2}, {end/2 + 1, end/2 + 5000}} {
			from, to := view[0], max(view[1], view[0]+1)
			course := fmt.Sprintf(`((course) => { course.measure(%d, %d); return ['t', 'c', 'r', 'busy'].flatMap((name) =>
				[course[name].least, course[name].most].map((values) => Array.from(values, (v) => Number.isFinite(v) ? v : -1))); })(new Course({levels: %s}, %d))`,
				from, to, text, columns)
			got, _ := b.Eval(pageCode(t, course, "data", "levels")).([]any)
			assert.Must(t, len(got) == 8, "%d points, [%d, %d]: %v", n, from, to, got)
			for k, of := range exactCourse(finest, from, to, columns) {
				least, most := floats(got[2*k]), floats(got[2*k+1])
				for i := range columns {
					if math.IsInf(of[i][1], -1) { // before the first point
						assert.Must(t, most[i] == -1, "%d points, [%d, %d], curve %d: column %d has %v, want nothing", n, from, to, k, i, most[i])
						continue
					}
					lowest, highest := math.Inf(1), math.Inf(-1)
					for _, near := range of[max(0, i-2):min(columns, i+3)] {
						lowest, highest = min(lowest, near[0]), max(highest, near[1])
					}
					dropped := k < 3 && (least[i] > of[i][0] || most[i] < of[i][1]) // of the others only the last value counts
					if dropped || least[i] < lowest || most[i] > highest {
						t.Fatalf("%d points, [%d, %d], curve %d: column %d is %v to %v, it was %v, and from %v to %v beside it", n, from, to, k, i, least[i], most[i], of[i], lowest, highest)
					}
				}
			}
		}
	}
}

func floats(values any) []float64 {
	list, _ := values.([]any)
	out := make([]float64, len(list))
	for i := range list {
		out[i], _ = list[i].(float64)
	}
	return out
}

// exactCourse are the least and the greatest of requested, provided and reserved, and of what the last events of the
// points left provided or pending, by columns of a stretch of time.
func exactCourse(points []analysis.Point, from, to int64, columns int) [4][][2]float64 {
	var out [4][][2]float64
	for k := range out {
		for range columns {
			out[k] = append(out[k], [2]float64{math.Inf(1), math.Inf(-1)})
		}
	}
	column := func(time int64) int {
		return max(0, min(columns-1, int(math.Floor(float64(time-from)*(float64(columns)/float64(to-from))))))
	}
	for i := range points {
		p := &points[i]
		until := columns - 1
		if i+1 < len(points) {
			until = column(points[i+1].Start)
		}
		if p.Start > to || i+1 < len(points) && points[i+1].Start < from {
			continue
		}
		put := func(k, first, last int, r analysis.Range) {
			for at := first; at <= last; at++ {
				out[k][at] = [2]float64{min(out[k][at][0], float64(r.Min)), max(out[k][at][1], float64(r.Max))}
			}
		}
		first, last := column(p.Start), column(p.End)
		if p.End < from {
			first = last
		}
		l := &p.Last
		for k, r := range []analysis.Range{p.T, p.C, p.R} {
			value := []int64{l.T, l.C, l.R}[k]
			if p.End >= from {
				put(k, first, last, r)
			}
			put(k, last, until, analysis.Range{Min: value, Max: value})
		}
		put(3, first, until, analysis.Range{Min: l.C + l.Pending, Max: l.C + l.Pending})
	}
	return out
}
