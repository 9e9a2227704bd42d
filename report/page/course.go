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

// levelData is the series of a device at one level of detail. A point has the minimum, the maximum and the
// last value in [start, end]; the last value holds until the next point begins.
type levelData struct {
	Start packed `json:"start"`
	End   packed `json:"end"`
	Seq   packed `json:"seq"` // of the last event
	MinT  packed `json:"minT"`
	MaxT  packed `json:"maxT"`
	T     packed `json:"t"`
	MinC  packed `json:"minC"` // -1 if C is not known
	MaxC  packed `json:"maxC"`
	C     packed `json:"c"`
	MinR  packed `json:"minR"`
	MaxR  packed `json:"maxR"`
	R     packed `json:"r"`
	// Freed, and another stream may still use it: after the last event, if chunks are known.
	Pending packed `json:"pending"`
}

func newLevels(p *pack, points []analysis.Point) []levelData {
	levels := []levelData{}
	for {
		levels = append(levels, newLevel(p, points))
		if len(points) <= coarsestLevel {
			return levels
		}
		points = coarser(points)
	}
}

func newLevel(p *pack, points []analysis.Point) levelData {
	of := func(value func(*analysis.Point) int64) packed { return columnOf(p, points, value) }
	return levelData{
		of(func(o *analysis.Point) int64 { return o.Start }), of(func(o *analysis.Point) int64 { return o.End }),
		of(func(o *analysis.Point) int64 { return o.Last.Seq }),
		of(func(o *analysis.Point) int64 { return o.T.Min }), of(func(o *analysis.Point) int64 { return o.T.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.T }),
		of(func(o *analysis.Point) int64 { return o.C.Min }), of(func(o *analysis.Point) int64 { return o.C.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.C }),
		of(func(o *analysis.Point) int64 { return o.R.Min }), of(func(o *analysis.Point) int64 { return o.R.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.R }),
		of(func(o *analysis.Point) int64 { return o.Last.Pending }),
	}
}

// coarser joins each levelJoin points to one. The value between two points is in the range of the first.
func coarser(points []analysis.Point) []analysis.Point {
	joined := make([]analysis.Point, 0, (len(points)+levelJoin-1)/levelJoin)
	for len(points) > 0 {
		n := min(levelJoin, len(points))
		sum := points[0]
		for _, p := range points[1:n] {
			sum.End, sum.Last = p.End, p.Last
			sum.T, sum.R = widest(sum.T, p.T), widest(sum.R, p.R)
			switch {
			case sum.C.Max < 0:
				sum.C = p.C
			case p.C.Max >= 0:
				sum.C = widest(sum.C, p.C)
			}
		}
		joined = append(joined, sum)
		points = points[n:]
	}
	return joined
}

func widest(a, b analysis.Range) analysis.Range {
	return analysis.Range{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}
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

// bandsData are the phases over time; the name "" stands for several that alternate.
type bandsData struct {
	Names []string `json:"names"`
	Start packed   `json:"start"`
	End   packed   `json:"end"`
	Name  packed   `json:"name"`
}

func newBands(p *pack, bands []keyframes.Band) bandsData {
	var names texts
	return bandsData{
		Start: columnOf(p, bands, func(b *keyframes.Band) int64 { return b.Start }),
		End:   columnOf(p, bands, func(b *keyframes.Band) int64 { return b.End }),
		Name:  columnOf(p, bands, func(b *keyframes.Band) int64 { return names.of(plain.Shorten(b.Phase, 40)) }),
		Names: names.strings(),
	}
}

// iterationsData are rows of one iteration, or of several neighbours without outliers if there are many. Such a
// row has the greatest of the peaks, T at the end of the last iteration, and sums of the rest.
type iterationsData struct {
	Total    int    `json:"total"`
	Count    packed `json:"count"`
	Number   packed `json:"number"` // of the first
	Last     packed `json:"last"`   // number of the last
	Start    packed `json:"start"`
	End      packed `json:"end"`
	StartSeq packed `json:"startSeq"`
	EndSeq   packed `json:"endSeq"`
	PeakT    packed `json:"peakT"`
	PeakC    packed `json:"peakC"` // -1 if it is not known
	PeakR    packed `json:"peakR"`
	EndT     packed `json:"endT"`
	Allocs   packed `json:"allocs"`
	Bytes    packed `json:"bytes"`
	Marks    packed `json:"marks"` // bits: outliers in duration, peakT, peakC, peakR, endT, allocs, bytes
}

// iterationRow is a row of the table of iterations.
type iterationRow struct {
	iterations.Iteration
	last, count, marks int64
}

// iterationNumbers are the values in which outliers are searched, in the order of the bits of Marks.
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

func newIterations(p *pack, d *analysis.DeviceResult) iterationsData {
	rows := iterationRows(d.Iterations, mostRows)
	of := func(value func(*iterationRow) int64) packed { return columnOf(p, rows, value) }
	return iterationsData{
		Total: int(d.IterationCount()),
		Count: of(func(r *iterationRow) int64 { return r.count }), Number: of(func(r *iterationRow) int64 { return r.Number }),
		Last:  of(func(r *iterationRow) int64 { return r.last }),
		Start: of(func(r *iterationRow) int64 { return r.Start }), End: of(func(r *iterationRow) int64 { return r.End }),
		StartSeq: of(func(r *iterationRow) int64 { return r.StartSeq }), EndSeq: of(func(r *iterationRow) int64 { return r.EndSeq }),
		PeakT: of(func(r *iterationRow) int64 { return r.PeakT }), PeakC: of(func(r *iterationRow) int64 { return r.PeakC }),
		PeakR: of(func(r *iterationRow) int64 { return r.PeakR }), EndT: of(func(r *iterationRow) int64 { return r.EndT }),
		Allocs: of(func(r *iterationRow) int64 { return r.Allocs }), Bytes: of(func(r *iterationRow) int64 { return r.AllocBytes }),
		Marks: of(func(r *iterationRow) int64 { return r.marks }),
	}
}

// growthsData are the growths; numbers are -1 if they are not known.
type growthsData struct {
	Total     int64    `json:"total"` // the analysis may have kept fewer
	Seq       packed   `json:"seq"`
	Time      packed   `json:"time"`
	Arena     packed   `json:"arena"` // id
	Iteration packed   `json:"iteration"`
	Request   packed   `json:"request"`
	Grown     packed   `json:"grown"`
	Free      packed   `json:"free"`
	Largest   packed   `json:"largest"`
	TooSmall  packed   `json:"tooSmall"`
	Stranded  packed   `json:"stranded"`
	Verdict   packed   `json:"verdict"`
	Verdicts  []string `json:"verdicts"`
}

func newGrowths(p *pack, d *analysis.DeviceResult) growthsData {
	var growing analysis.Growing // none while the recording is still read
	if d.Growing != nil {
		growing = *d.Growing
	}
	of := func(value func(*analysis.Growth) int64) packed { return columnOf(p, growing.Growths, value) }
	var verdicts texts
	return growthsData{
		Total: growing.GrowthCount,
		Seq:   of(func(g *analysis.Growth) int64 { return g.Seq }), Time: of(func(g *analysis.Growth) int64 { return g.Time }),
		Arena: of(func(g *analysis.Growth) int64 { return int64(g.Arena) }),
		Iteration: of(func(g *analysis.Growth) int64 {
			if number, ok := d.IterationNumber(g.Iteration); ok {
				return number
			}
			return -1
		}),
		Request: of(func(g *analysis.Growth) int64 { return g.Request }), Grown: of(func(g *analysis.Growth) int64 { return g.Grown }),
		Free:    of(func(g *analysis.Growth) int64 { return g.Free }),
		Largest: of(func(g *analysis.Growth) int64 { return g.LargestFree }), TooSmall: of(func(g *analysis.Growth) int64 { return g.TooSmall }),
		Stranded: of(func(g *analysis.Growth) int64 { return g.Stranded }),
		Verdict:  of(func(g *analysis.Growth) int64 { return verdicts.of(plain.Shorten(terms.Verdict(g.Verdict), 40)) }),
		Verdicts: verdicts.strings(),
	}
}
