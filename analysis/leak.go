package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
)

// leak is the verdict at like points of a device, and which of the blocks that are live at the last one leak.
func leak(points *iterations.Points, live []ledger.Block, origins *attribution.Tracker, others *accounting.Device) *iterations.Leak {
	l := &iterations.Leak{Verdict: iterations.NoLeak, Per: points.Per, Request: points.Request, Points: int(points.Count)}
	known := explained(live, origins)
	rises := points.Rises(known)
	if len(rises) == 0 {
		return l
	}
	l.Verdict = iterations.Leaks
	for _, r := range rises {
		l.Slope += r.Slope
		l.PerSecond += r.PerSecond
	}
	divideLeak(l, leaking(live, known, rises, points.Since()), origins)
	for _, r := range rises {
		if i, ok := r.Library(); ok && l.Module == "" && l.Line == "" {
			l.Module = others.LibraryName(i)
		}
	}
	return l
}

// leaking are the blocks of groups that rise, without those that are explained, of those that were allocated after an event.
func leaking(live, explained []ledger.Block, rises []iterations.Rise, since int64) []ledger.Block {
	var blocks []ledger.Block
	for i := range live {
		b := &live[i]
		if _, known := slices.BinarySearchFunc(explained, b.Seq, func(e ledger.Block, seq int64) int { return cmp.Compare(e.Seq, seq) }); known {
			continue
		}
		if b.Seq > since && slices.ContainsFunc(rises, func(r iterations.Rise) bool { return r.Has(b) }) {
			blocks = append(blocks, *b)
		}
	}
	return blocks
}

// divideLeak fills in what blocks that leak are.
func divideLeak(l *iterations.Leak, blocks []ledger.Block, origins *attribution.Tracker) {
	for i := range blocks {
		l.Blocks++
		l.Requested += blocks[i].Requested
		l.Provided += blocks[i].Size
	}
	l.Allocations = origins.ByOrigin(blocks)
	l.Stacks = origins.ByStack(blocks)
	if at := slices.IndexFunc(l.Allocations, func(g attribution.AllocationGroup) bool { return g.Context != "" }); at >= 0 {
		l.Module = l.Allocations[at].Context
	}
	l.Line = origins.LineOf(blocks)
}

// What a job may hold of each parameter without leaking: some state of its optimizer (Adam has two, and a copy of higher precision), and
// gradients, some of which a reducer keeps.
const (
	statesPerParameter    = 3
	gradientsPerParameter = 2
	namesPerParameter     = 2 // a label that names more blocks names no parameter
)

// explained are those of live blocks that are no leak however many there are: parameters, each of which has a name of its own; gradients
// and optimizer state, of which each parameter has some; and memory of CUDA graphs. blocks are in the order of their events.
func explained(blocks []ledger.Block, origins *attribution.Tracker) []ledger.Block {
	categories := make([]attribution.Category, len(blocks))
	parameters, named, used := map[int64]int{}, map[int32]int{}, map[[2]int64]int{}
	for i := range blocks {
		b := &blocks[i]
		if categories[i] = origins.Category(b); categories[i] == attribution.Weights && b.Label != 0 {
			if named[b.Label]++; named[b.Label] <= namesPerParameter {
				parameters[b.Requested]++
			}
		}
	}
	most := func(c attribution.Category, b *ledger.Block) int {
		of := parameters[b.Requested] + parameters[b.Requested/2] // of half the precision
		switch c {
		case attribution.Weights:
			return of
		case attribution.Optimizer:
			return statesPerParameter * of
		case attribution.Gradients:
			return gradientsPerParameter * of
		case attribution.CUDAGraphs:
			return math.MaxInt
		}
		return 0
	}
	var explained []ledger.Block
	for i := range blocks {
		c, b := categories[i], &blocks[i]
		key := [2]int64{int64(c), b.Requested}
		if used[key]++; used[key] <= most(c, b) {
			explained = append(explained, *b)
		}
	}
	return explained
}
