package page

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/terms"
)

// levelJoin is how many points of a level are one of the next, which levels.js counts on; coarsestLevel
// how few points need no coarser one.
const (
	levelJoin     = 4
	coarsestLevel = 512
	mostUsed      = 4096 // points of the device's used memory
	mostRows      = 4096 // of the table of iterations
)

// pageLevel is the course of a device at one level of detail. A point has the least and the
// greatest value in [start, end], and the last; until the next one begins the last one holds.
type pageLevel struct {
	Start packed `json:"start"`
	End   packed `json:"end"`
	Seq   packed `json:"seq"` // of the last event
	MinT  packed `json:"minT"`
	MaxT  packed `json:"maxT"`
	T     packed `json:"t"`
	MinC  packed `json:"minC"` // -1 where C is not known
	MaxC  packed `json:"maxC"`
	C     packed `json:"c"`
	MinR  packed `json:"minR"`
	MaxR  packed `json:"maxR"`
	R     packed `json:"r"`
	// Of R and beside C, where chunks are known; as the last event left them.
	Pending  packed `json:"pending"`
	External packed `json:"external"`
	Stranded packed `json:"stranded"`
	Reserve  packed `json:"reserve"`
}

func newPageLevels(p *pack, points []analysis.Point) []pageLevel {
	levels := []pageLevel{}
	for {
		levels = append(levels, newPageLevel(p, points))
		if len(points) <= coarsestLevel {
			return levels
		}
		points = coarser(points)
	}
}

func newPageLevel(p *pack, points []analysis.Point) pageLevel {
	of := func(value func(*analysis.Point) int64) packed { return columnOf(p, points, value) }
	return pageLevel{
		of(func(o *analysis.Point) int64 { return o.Start }), of(func(o *analysis.Point) int64 { return o.End }),
		of(func(o *analysis.Point) int64 { return o.Last.Seq }),
		of(func(o *analysis.Point) int64 { return o.T.Min }), of(func(o *analysis.Point) int64 { return o.T.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.T }),
		of(func(o *analysis.Point) int64 { return o.C.Min }), of(func(o *analysis.Point) int64 { return o.C.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.C }),
		of(func(o *analysis.Point) int64 { return o.R.Min }), of(func(o *analysis.Point) int64 { return o.R.Max }),
		of(func(o *analysis.Point) int64 { return o.Last.R }),
		of(func(o *analysis.Point) int64 { return o.Last.Pending }), of(func(o *analysis.Point) int64 { return o.Last.External }),
		of(func(o *analysis.Point) int64 { return o.Last.Stranded }), of(func(o *analysis.Point) int64 { return o.Last.Reserve }),
	}
}

// coarser joins each few points to one. What held between two of them was in the first one's range.
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

// pageUsed is what was read of the device: between Start and End from Min to Max bytes.
type pageUsed struct {
	Start packed `json:"start"`
	End   packed `json:"end"`
	Min   packed `json:"min"`
	Max   packed `json:"max"`
}

func newPageUsed(p *pack, course analysis.Course) *pageUsed {
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
	return &pageUsed{p.column(starts), p.column(ends), p.column(least), p.column(most)}
}

// pageBands are the phases over time; a name of "" is of several that took turns.
type pageBands struct {
	Names []string `json:"names"`
	Start packed   `json:"start"`
	End   packed   `json:"end"`
	Name  packed   `json:"name"`
}

func newPageBands(p *pack, bands []analysis.Band) pageBands {
	var names texts
	return pageBands{
		Start: columnOf(p, bands, func(b *analysis.Band) int64 { return b.Start }),
		End:   columnOf(p, bands, func(b *analysis.Band) int64 { return b.End }),
		Name:  columnOf(p, bands, func(b *analysis.Band) int64 { return names.of(plain.Shorten(b.Phase, 40)) }),
		Names: names.strings(),
	}
}

// pageIterations are rows of one iteration or, where there are many, of as many neighbours
// that are no outliers: then a peak is the greatest of them, all else their sum, T at the end the last one's.
type pageIterations struct {
	Total    int    `json:"total"`
	Count    packed `json:"count"`
	Number   packed `json:"number"` // of the first
	Last     packed `json:"last"`   // number of the last
	Start    packed `json:"start"`
	End      packed `json:"end"`
	StartSeq packed `json:"startSeq"`
	EndSeq   packed `json:"endSeq"`
	PeakT    packed `json:"peakT"`
	PeakC    packed `json:"peakC"` // -1 where it is not known
	PeakR    packed `json:"peakR"`
	EndT     packed `json:"endT"`
	Allocs   packed `json:"allocs"`
	Bytes    packed `json:"bytes"`
	Marks    packed `json:"marks"` // bits: duration, peakT, peakC, peakR, endT, allocs, bytes stand apart
}

// iterationRow is a line of the table of iterations.
type iterationRow struct {
	analysis.Iteration
	last, count, marks int64
}

// iterationNumbers are what outliers are looked for in, in the order of the bits of Marks.
var iterationNumbers = []func(*analysis.Iteration) int64{
	func(it *analysis.Iteration) int64 { return it.End - it.Start },
	func(it *analysis.Iteration) int64 { return it.PeakT },
	func(it *analysis.Iteration) int64 { return it.PeakC },
	func(it *analysis.Iteration) int64 { return it.PeakR },
	func(it *analysis.Iteration) int64 { return it.EndT },
	func(it *analysis.Iteration) int64 { return it.Allocs },
	func(it *analysis.Iteration) int64 { return it.AllocBytes },
}

// iterationMarks say of each iteration in what it stands apart.
func iterationMarks(iterations []analysis.Iteration) []int64 {
	marks := make([]int64, len(iterations))
	values := make([]int64, len(iterations))
	for bit, of := range iterationNumbers {
		for i := range iterations {
			values[i] = of(&iterations[i])
		}
		for i, apart := range analysis.Outliers(values) {
			if apart {
				marks[i] |= 1 << bit
			}
		}
	}
	return marks
}

// iterationRows are at most about twice mostRows lines.
func iterationRows(iterations []analysis.Iteration, most int) []iterationRow {
	marks := iterationMarks(iterations)
	each := int64((len(iterations) + most - 1) / most)
	apart := 0
	for _, m := range marks {
		if m&^1 != 0 { // how long it took varies
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

func (r *iterationRow) join(it *analysis.Iteration, marks int64) {
	r.last, r.count, r.marks = it.Number+it.More, r.count+1+it.More, r.marks|marks
	r.End, r.EndSeq, r.EndT, r.EndC = it.End, it.EndSeq, it.EndT, it.EndC
	r.PeakT, r.PeakC, r.PeakR = max(r.PeakT, it.PeakT), max(r.PeakC, it.PeakC), max(r.PeakR, it.PeakR)
	r.Allocs += it.Allocs
	r.AllocBytes += it.AllocBytes
}

func newPageIterations(p *pack, d *analysis.DeviceResult) pageIterations {
	rows := iterationRows(d.Iterations, mostRows)
	of := func(value func(*iterationRow) int64) packed { return columnOf(p, rows, value) }
	return pageIterations{
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

// pageGrowths are the growths; numbers are -1 where they are not known.
type pageGrowths struct {
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

func newPageGrowths(p *pack, d *analysis.DeviceResult) pageGrowths {
	of := func(value func(*analysis.Growth) int64) packed { return columnOf(p, d.Growths, value) }
	var verdicts texts
	return pageGrowths{
		Total: d.GrowthCount,
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
