package page

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/terms"
)

// levelJoin is the number of points of a level that are one point of the next; levels.js has the same
// number. A level of at most coarsestLevel points is the coarsest.
const (
	levelJoin     = 4
	coarsestLevel = 512
	mostUsed      = 4096 // points of the device's used memory
	mostRows      = 4096 // of the table of iterations
)

// newLevels is the series of a device at each level of detail, the finest first.
func newLevels(p *pack, points []analysis.Point) []columns {
	levels := []columns{}
	for {
		levels = append(levels, newLevel(p, points))
		if len(points) <= coarsestLevel {
			return levels
		}
		points = coarser(points)
	}
}

// newLevel has the minimum, the maximum and the last value of each point in [start, end]; the last value holds until the
// next point begins. Pending is freed, and another stream may still use it: after the last event, if chunks are known.
func newLevel(p *pack, points []analysis.Point) columns {
	return columnsOf(p, points, []column[analysis.Point]{
		{"start", func(o *analysis.Point) int64 { return o.Start }},
		{"end", func(o *analysis.Point) int64 { return o.End }},
		{"seq", func(o *analysis.Point) int64 { return o.Last.Seq }}, // of the last event
		{"minT", func(o *analysis.Point) int64 { return o.T.Min }},
		{"maxT", func(o *analysis.Point) int64 { return o.T.Max }},
		{"t", func(o *analysis.Point) int64 { return o.Last.T }},
		{"minC", func(o *analysis.Point) int64 { return o.C.Min }}, // -1 if C is not known
		{"maxC", func(o *analysis.Point) int64 { return o.C.Max }},
		{"c", func(o *analysis.Point) int64 { return o.Last.C }},
		{"minR", func(o *analysis.Point) int64 { return o.R.Min }},
		{"maxR", func(o *analysis.Point) int64 { return o.R.Max }},
		{"r", func(o *analysis.Point) int64 { return o.Last.R }},
		{"pending", func(o *analysis.Point) int64 { return o.Last.Pending }},
	})
}

// coarser joins each levelJoin points to one. The value between two points is in the range of the first.
func coarser(points []analysis.Point) []analysis.Point {
	joined := make([]analysis.Point, 0, (len(points)+levelJoin-1)/levelJoin)
	for len(points) > 0 {
		n := min(levelJoin, len(points))
		sum := points[0]
		for i := range points[1:n] {
			sum.Join(&points[1+i])
		}
		joined = append(joined, sum)
		points = points[n:]
	}
	return joined
}

// usedData are readings of used memory: between Start and End from Min to Max bytes.
type usedData struct {
	Start packed `json:"start"`
	End   packed `json:"end"`
	Min   packed `json:"min"`
	Max   packed `json:"max"`
}

func newUsed(p *pack, course accounting.Course) *usedData {
	if len(course) == 0 {
		return nil
	}
	each := (len(course) + mostUsed - 1) / mostUsed
	var starts, ends, least, most []int64
	for i := range course {
		s := &course[i]
		if i%each == 0 {
			starts, ends, least, most = append(starts, s.First), append(ends, s.Last), append(least, s.Used), append(most, s.Used)
			continue
		}
		n := len(starts) - 1
		ends[n], least[n], most[n] = s.Last, min(least[n], s.Used), max(most[n], s.Used)
	}
	return &usedData{p.column(starts), p.column(ends), p.column(least), p.column(most)}
}

// newBands are the phases over time; the name "" stands for several that alternate.
func newBands(p *pack, bands []keyframes.Band) columns {
	var names texts
	out := columnsOf(p, bands, []column[keyframes.Band]{
		{"start", func(b *keyframes.Band) int64 { return b.Start }},
		{"end", func(b *keyframes.Band) int64 { return b.End }},
		{"name", func(b *keyframes.Band) int64 { return names.of(plain.Shorten(b.Phase, 40)) }},
	})
	out["names"] = names.strings()
	return out
}

// iterationRow is a row of the table of iterations.
type iterationRow struct {
	iterations.Iteration
	last, count, marks int64
}

// iterationNumbers are the values in which outliers are searched, in the order of the bits of "marks".
var iterationNumbers = []func(*iterations.Iteration) int64{
	func(it *iterations.Iteration) int64 { return it.End - it.Start },
	func(it *iterations.Iteration) int64 { return it.PeakT },
	func(it *iterations.Iteration) int64 { return it.PeakC },
	func(it *iterations.Iteration) int64 { return it.PeakR },
	func(it *iterations.Iteration) int64 { return it.EndT },
	func(it *iterations.Iteration) int64 { return it.Allocs },
	func(it *iterations.Iteration) int64 { return it.AllocBytes },
}

// iterationMarks returns the bits of each iteration: the values in which it is an outlier.
func iterationMarks(iterations []iterations.Iteration) []int64 {
	marks := make([]int64, len(iterations))
	values := make([]int64, len(iterations))
	for bit, of := range iterationNumbers {
		for i := range iterations {
			values[i] = of(&iterations[i])
		}
		for i, apart := range compare.Outliers(values) {
			if apart {
				marks[i] |= 1 << bit
			}
		}
	}
	return marks
}

// iterationRows returns at most about twice most rows.
func iterationRows(iterations []iterations.Iteration, most int) []iterationRow {
	marks := iterationMarks(iterations)
	each := int64((len(iterations) + most - 1) / most)
	apart := 0
	for _, m := range marks {
		if m&^1 != 0 { // other than in duration, which varies
			apart++
		}
	}
	var rows []iterationRow
	alone := true
	for i := range iterations {
		it := &iterations[i]
		single := apart <= most && marks[i]&^1 != 0
		if n := len(rows); n > 0 && !alone && !single && rows[n-1].count < each*(1+it.More) {
			rows[n-1].join(it, marks[i])
			continue
		}
		rows = append(rows, iterationRow{*it, it.Number + it.More, 1 + it.More, marks[i]})
		alone = single || each <= 1
	}
	return rows
}

func (r *iterationRow) join(it *iterations.Iteration, marks int64) {
	r.last, r.count, r.marks = it.Number+it.More, r.count+1+it.More, r.marks|marks
	r.End, r.EndSeq, r.EndT, r.EndC = it.End, it.EndSeq, it.EndT, it.EndC
	r.PeakT, r.PeakC, r.PeakR = max(r.PeakT, it.PeakT), max(r.PeakC, it.PeakC), max(r.PeakR, it.PeakR)
	r.Allocs += it.Allocs
	r.AllocBytes += it.AllocBytes
}

// newIterations has rows of one iteration, or of several neighbours without outliers if there are many. Such a
// row has the greatest of the peaks, T at the end of the last iteration, and sums of the rest.
func newIterations(p *pack, d *analysis.DeviceResult) columns {
	out := columnsOf(p, iterationRows(d.Iterations, mostRows), []column[iterationRow]{
		{"count", func(r *iterationRow) int64 { return r.count }},
		{"number", func(r *iterationRow) int64 { return r.Number }}, // of the first
		{"last", func(r *iterationRow) int64 { return r.last }},     // number of the last
		{"start", func(r *iterationRow) int64 { return r.Start }},
		{"end", func(r *iterationRow) int64 { return r.End }},
		{"startSeq", func(r *iterationRow) int64 { return r.StartSeq }},
		{"endSeq", func(r *iterationRow) int64 { return r.EndSeq }},
		{"peakT", func(r *iterationRow) int64 { return r.PeakT }},
		{"peakC", func(r *iterationRow) int64 { return r.PeakC }}, // -1 if it is not known
		{"peakR", func(r *iterationRow) int64 { return r.PeakR }},
		{"endT", func(r *iterationRow) int64 { return r.EndT }},
		{"allocs", func(r *iterationRow) int64 { return r.Allocs }},
		{"bytes", func(r *iterationRow) int64 { return r.AllocBytes }},
		{"marks", func(r *iterationRow) int64 { return r.marks }}, // bits: outliers in iterationNumbers
	})
	out["total"] = d.IterationCount()
	return out
}

// newGrowths are the growths; numbers are -1 if they are not known.
func newGrowths(p *pack, d *analysis.DeviceResult) columns {
	var growing analysis.Growing // none while the recording is still read
	if d.Growing != nil {
		growing = *d.Growing
	}
	var verdicts texts
	out := columnsOf(p, growing.Growths, []column[analysis.Growth]{
		{"seq", func(g *analysis.Growth) int64 { return g.Seq }},
		{"time", func(g *analysis.Growth) int64 { return g.Time }},
		{"arena", func(g *analysis.Growth) int64 { return int64(g.Arena) }}, // id
		{"iteration", func(g *analysis.Growth) int64 {
			if number, ok := d.IterationNumber(g.Iteration); ok {
				return number
			}
			return -1
		}},
		{"request", func(g *analysis.Growth) int64 { return g.Request }},
		{"grown", func(g *analysis.Growth) int64 { return g.Grown }},
		{"free", func(g *analysis.Growth) int64 { return g.Free }},
		{"largest", func(g *analysis.Growth) int64 { return g.LargestFree }},
		{"tooSmall", func(g *analysis.Growth) int64 { return g.TooSmall }},
		{"stranded", func(g *analysis.Growth) int64 { return g.Stranded }},
		{"verdict", func(g *analysis.Growth) int64 { return verdicts.of(plain.Shorten(terms.Verdict(g.Verdict), 40)) }},
	})
	out["total"], out["verdicts"] = growing.GrowthCount, verdicts.strings() // the analysis may have kept fewer
	return out
}
