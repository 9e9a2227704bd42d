package reporttest

import (
	"fmt"
	"sort"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
)

// simGranule is what chunks of the simulator are rounded to.
const simGranule = 64 * kib

// simulator is a small best-fit allocator with growth by doubling that keeps the terms the way
// package analysis does. Its results have the shape of a recorded training job, which is all that
// tables and plots need.
type simulator struct {
	chunks  []simChunk // in address order, tiling [0, reserved)
	touched []bool     // by granule: handed out before
	next    int64      // bytes of the next growth
	limit   int64      // reserved never exceeds it
	random  uint64

	now, seq  int64
	t, rounds int64
	c, r      int64
	live      int64
	reserve   int64 // never handed out

	width  int64 // ns to a point of the series
	result analysis.DeviceResult
	iter   iterations.Iteration
}

type simChunk struct {
	start, size int64
	request     int64 // 0: free
	context     string
}

func newSimulator(limit, width int64) *simulator {
	return &simulator{next: 2 * mib, limit: limit, width: width, random: 1, iter: iterations.Iteration{Number: 1}, result: Whole(analysis.DeviceResult{})}
}

// rand is a deterministic number below n.
func (s *simulator) rand(n int64) int64 {
	s.random = s.random*6364136223846793005 + 1442695040888963407
	return int64(s.random>>33) % n
}

// alloc returns the address of a new block.
func (s *simulator) alloc(request int64, context string) int64 {
	need := (request + simGranule - 1) / simGranule * simGranule
	best := s.bestFit(need)
	if best < 0 {
		s.grow(need, request)
		best = s.bestFit(need)
	}
	chunk := s.chunks[best]
	if chunk.size >= 2*need || chunk.size-need >= 128*mib {
		rest := simChunk{start: chunk.start + need, size: chunk.size - need}
		s.chunks = append(s.chunks[:best+1], append([]simChunk{rest}, s.chunks[best+1:]...)...)
		chunk.size = need
	}
	chunk.request, chunk.context = request, context
	s.chunks[best] = chunk
	for g := chunk.start / simGranule; g < (chunk.start+chunk.size)/simGranule; g++ {
		if !s.touched[g] {
			s.touched[g] = true
			s.reserve -= simGranule
		}
	}
	s.t += request
	s.c += chunk.size
	s.rounds += (request+255)/256*256 - request
	s.live++
	s.iter.Allocs++
	s.iter.AllocBytes += request
	s.result.Allocs++
	s.event()
	return chunk.start
}

func (s *simulator) bestFit(need int64) int {
	best := -1
	for i, c := range s.chunks {
		if c.request == 0 && c.size >= need && (best < 0 || c.size < s.chunks[best].size) {
			best = i
		}
	}
	return best
}

func (s *simulator) grow(need, request int64) {
	g := analysis.Growth{Seq: s.seq, Time: s.now, Iteration: len(s.result.Iterations), Request: request, Verdict: analysis.Capacity}
	for _, c := range s.chunks {
		if c.request == 0 {
			g.Free += c.size
			g.LargestFree = max(g.LargestFree, c.size)
		}
	}
	g.TooSmall = g.Free
	if g.Free >= request {
		g.Verdict = analysis.Fragmentation
	}
	for s.next < need {
		s.next *= 2
	}
	grown := max(min(s.next, s.limit-s.r), need)
	s.next *= 2
	s.chunks = append(s.chunks, simChunk{start: s.r, size: grown})
	s.r += grown
	s.reserve += grown
	s.touched = append(s.touched, make([]bool, grown/simGranule)...)
	s.merge()
	g.Grown, g.Reserved = grown, s.r
	s.result.Growths = append(s.result.Growths, g)
	s.result.GrowthCount++
	s.event()
}

func (s *simulator) free(start int64) {
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].start >= start })
	c := &s.chunks[i]
	s.t -= c.request
	s.c -= c.size
	s.rounds -= (c.request+255)/256*256 - c.request
	s.live--
	c.request, c.context = 0, ""
	s.merge()
	s.result.Frees++
	s.event()
}

func (s *simulator) merge() {
	out := s.chunks[:0]
	for _, c := range s.chunks {
		if n := len(out); n > 0 && out[n-1].request == 0 && c.request == 0 {
			out[n-1].size += c.size
			continue
		}
		out = append(out, c)
	}
	s.chunks = out
}

func (s *simulator) instant() ledger.Instant {
	i := ledger.Instant{
		Seq: s.seq, Time: s.now, T: s.t, C: s.c, R: s.r, Rounding: s.rounds, Slack: s.c - s.t - s.rounds,
		Live: s.live, Iteration: len(s.result.Iterations),
	}
	i.Reserve, i.Reusable = s.reserve, s.reusable()
	i.External = s.r - s.c - i.Reserve - i.Reusable
	return i
}

// reusable are the bytes of the largest free chunk, of equal ones the first, that were handed out before.
func (s *simulator) reusable() (bytes int64) {
	var largest simChunk
	for _, c := range s.chunks {
		if c.request == 0 && c.size > largest.size {
			largest = c
		}
	}
	for g := largest.start; g < largest.start+largest.size; g += simGranule {
		if s.touched[g/simGranule] {
			bytes += simGranule
		}
	}
	return bytes
}

// event is called after each change.
func (s *simulator) event() {
	s.seq++
	s.now += 20_000 + s.rand(400_000)
	d := &s.result
	d.MaxT, d.MaxC, d.MaxR = max(d.MaxT, s.t), max(d.MaxC, s.c), max(d.MaxR, s.r)
	s.iter.PeakT, s.iter.PeakC, s.iter.PeakR = max(s.iter.PeakT, s.t), max(s.iter.PeakC, s.c), max(s.iter.PeakR, s.r)
	if s.r > d.Peak.R || s.r == d.Peak.R && s.t > d.Peak.T {
		d.Peak = s.instant()
		d.Map = s.addressMap()
		d.Chunks = &analysis.Chunks{LargestFree: longestFree(d.Map)}
		d.TopContexts, d.TopSizes = s.groups()
	}
	s.point()
}

func (s *simulator) point() {
	points := &s.result.Series.Points
	at := s.instant()
	if n := len(*points); n == 0 || (*points)[n-1].Start/s.width != s.now/s.width {
		*points = append(*points, analysis.Point{
			Start: s.now, Iteration: len(s.result.Iterations),
			T: analysis.Range{Min: s.t, Max: s.t}, C: analysis.Range{Min: s.c, Max: s.c}, R: analysis.Range{Min: s.r, Max: s.r},
			At: at,
		})
	}
	p := &(*points)[len(*points)-1]
	p.End, p.Last = s.now, at
	for _, v := range []struct {
		r *analysis.Range
		n int64
	}{{&p.T, s.t}, {&p.C, s.c}, {&p.R, s.r}} {
		v.r.Min, v.r.Max = min(v.r.Min, v.n), max(v.r.Max, v.n)
	}
	if s.r > p.At.R || s.r == p.At.R && s.t > p.At.T {
		p.At = at
	}
}

func (s *simulator) addressMap() ledger.AddressMap {
	a := ledger.ArenaMap{Base: 0x7f2a_0000_0000, Extent: s.r}
	add := func(start, bytes int64, kind ledger.SpanKind) {
		if bytes == 0 {
			return
		}
		if n := len(a.Spans); n > 0 && a.Spans[n-1].Kind == kind && kind.Free() {
			a.Spans[n-1].Bytes += bytes
			return
		}
		a.Spans = append(a.Spans, ledger.Span{Start: start, Bytes: bytes, Kind: kind})
	}
	for _, c := range s.chunks {
		if c.request != 0 {
			add(c.start, c.request, ledger.SpanLive)
			add(c.start+c.request, c.size-c.request, ledger.SpanSlack)
			continue
		}
		for g := c.start; g < c.start+c.size; g += simGranule {
			kind := ledger.SpanReserve
			if s.touched[g/simGranule] {
				kind = ledger.SpanExternal
			}
			add(g, simGranule, kind)
		}
	}
	markReusable(&a)
	return ledger.AddressMap{At: s.instant(), Arenas: []ledger.ArenaMap{a}}
}

func (s *simulator) groups() (contexts, sizes []attribution.AllocationGroup) {
	byContext, bySize := map[string]*attribution.AllocationGroup{}, map[int64]*attribution.AllocationGroup{}
	for _, c := range s.chunks {
		if c.request == 0 {
			continue
		}
		if byContext[c.context] == nil {
			byContext[c.context] = &attribution.AllocationGroup{Context: c.context}
		}
		if bySize[c.request] == nil {
			bySize[c.request] = &attribution.AllocationGroup{Size: c.request}
		}
		for _, h := range []*attribution.AllocationGroup{byContext[c.context], bySize[c.request]} {
			h.Blocks++
			h.Requested += c.request
			h.Provided += c.size
		}
	}
	for _, h := range byContext {
		contexts = append(contexts, *h)
	}
	for _, h := range bySize {
		sizes = append(sizes, *h)
	}
	for _, list := range [][]attribution.AllocationGroup{contexts, sizes} {
		sort.Slice(list, func(i, j int) bool {
			a, b := list[i], list[j]
			if a.Provided != b.Provided {
				return a.Provided > b.Provided
			}
			return a.Context+fmt.Sprint(a.Size) < b.Context+fmt.Sprint(b.Size)
		})
	}
	return contexts, sizes
}

// mark ends an iteration.
func (s *simulator) mark() {
	s.event()
	s.iter.EndSeq, s.iter.End, s.iter.EndT, s.iter.EndC = s.seq, s.now, s.t, s.c
	s.result.Iterations = append(s.result.Iterations, s.iter)
	s.iter = iterations.Iteration{Number: s.iter.Number + 1, StartSeq: s.seq + 1, Start: s.now}
}

func (s *simulator) finish(process string) *analysis.Result {
	d := &s.result
	d.Final = s.instant()
	if n := len(d.Iterations); n > 1 {
		share := func(b int64) float64 { return float64(b) / float64(d.MaxR) }
		paper := &iterations.Paper{Of: d.MaxR, T1: share(d.Iterations[0].PeakT), C1: share(d.Iterations[0].PeakC)}
		for _, it := range d.Iterations[1:] {
			paper.T2 += share(it.PeakT) / float64(n-1)
			paper.C2 += share(it.PeakC) / float64(n-1)
		}
		paper.FirstExcess, paper.SteadyIdle = paper.C1/paper.C2-1, 1-paper.C2
		d.Paper = paper
	}
	d.Leak = &iterations.Leak{Verdict: iterations.TooShort}
	if len(d.Iterations) >= iterations.LeastIterations {
		d.Leak = &iterations.Leak{Verdict: iterations.NoLeak, Per: "iteration", Points: len(d.Iterations)}
	}
	d.OtherLibraries = &accounting.OtherLibraries{Live: 384 * mib, Peak: 640*mib + 4096, Calls: 17}
	return &analysis.Result{
		Process: process, Events: s.seq, Duration: s.now, Devices: []analysis.DeviceResult{*d},
		Arenas: []ledger.Info{{Base: 0x7f2a_0000_0000, Reservation: 140 * gib, Limit: -1, Options: map[string]string{"growth": "double", "pool": "0", "tag": ""}}},
	}
}

// Training is a job of some layers and iterations: activations rise in the forward pass and fall
// in the backward pass while gradients come; the first optimizer step makes the optimizer's state;
// the first iteration tries convolution algorithms with large workspaces. About so many
// events share a point of the series.
func Training(layers, iterations int, events int64) *analysis.Result {
	s := newSimulator(10*gib, 220_000*events)
	size := func(layer, scale int) int64 { return int64(scale)*mib + int64(layer%5)*int64(scale)*mib/7 + 1000 }
	name := func(layer int, part string) string { return fmt.Sprintf("resnet.layer%d.%s", layer/6+1, part) }
	for l := range layers {
		s.alloc(size(l, 36), name(l, "weight"))
	}
	var grads []int64
	for iteration := range iterations {
		for _, g := range grads {
			s.free(g)
		}
		grads = nil
		input := s.alloc(146*mib+512, "input")
		var activations [][2]int64
		var trials []int64
		for l := range layers {
			w := s.alloc(24*mib, name(l, "conv.workspace"))
			if iteration == 0 && l%3 == 0 {
				trials = append(trials, s.alloc((120+s.rand(300))*mib, name(l, "conv.trial")))
			}
			if l%3 == 2 && len(trials) > 2 {
				s.free(trials[0])
				trials = trials[1:]
			}
			a := [2]int64{s.alloc(size(l, 94), name(l, "conv.output")), s.alloc(size(l, 48)+s.rand(3)*mib, name(l, "bn.output"))}
			s.free(w)
			activations = append(activations, a)
		}
		for _, w := range trials {
			s.free(w)
		}
		for l := layers - 1; l >= 0; l-- {
			w := s.alloc(int64(32*mib+s.rand(64)*mib), name(l, "conv.workspace"))
			grads = append(grads, s.alloc(size(l, 36), name(l, "grad")))
			s.free(w)
			s.free(activations[l][0])
			s.free(activations[l][1])
		}
		s.free(input)
		for l := range layers {
			if iteration == 0 {
				s.alloc(size(l, 36), name(l, "momentum"))
				continue
			}
			tmp := s.alloc(size(l, 36), "optimizer.step")
			s.free(tmp)
		}
		s.mark()
	}
	return s.finish("rank0")
}

// markReusable has what was handed out before of the largest free chunk of an arena be reusable.
func markReusable(a *ledger.ArenaMap) {
	var largest, run int64
	first, from, to := 0, 0, 0
	for i, span := range a.Spans {
		if !span.Kind.Free() {
			run, first = 0, i+1
			continue
		}
		if run += span.Bytes; run > largest {
			largest, from, to = run, first, i+1
		}
	}
	for i := from; i < to; i++ {
		if a.Spans[i].Kind == ledger.SpanExternal {
			a.Spans[i].Kind = ledger.SpanReusable
		}
	}
}

// longestFree is L of a map: the longest run of mapped free bytes without a gap. The map tells kinds of
// free bytes apart inside one free chunk, so neighbours are joined.
func longestFree(m ledger.AddressMap) int64 {
	var largest int64
	for _, arena := range m.Arenas {
		var run, end int64
		for _, span := range arena.Spans {
			free := span.Kind.Free()
			if !free || span.Start != end {
				run = 0
			}
			end = span.Start + span.Bytes
			if free {
				run += span.Bytes
				largest = max(largest, run)
			}
		}
	}
	return largest
}

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)
