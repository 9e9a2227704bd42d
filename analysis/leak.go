package analysis

import (
	"cmp"
	"slices"
)

const (
	leakIterations = 4    // fewer cannot tell a trend
	leakSamples    = 1024 // ends that slopes are taken between; evenly chosen among more
)

// leak is the trend of live bytes at iteration ends, and what holds them.
func (a *analyzer) leak(d *device) Leak {
	if len(d.Iterations) < leakIterations {
		return Leak{}
	}
	ends := make([]int64, len(d.Iterations)-1)
	for i, it := range d.Iterations[1:] {
		ends[i] = it.EndT
	}
	l := Leak{Valid: true, Slope: theilSen(ends)}
	rise := float64(ends[len(ends)-1] - ends[0])
	l.Rising = l.Slope > 0 && rise > 0 && l.Slope*float64(len(ends)-1) >= rise/2
	blocks := a.heldSince(d, d.Iterations[0].EndSeq)
	l.Holders = a.byContext(blocks)
	l.Sizes = a.bySize(blocks)
	l.Stacks = a.byStack(blocks)
	return l
}

// heldSince are the blocks handed out after seq that were live at the last mark, or at the
// end where there is none.
func (a *analyzer) heldSince(d *device, seq int64) []block {
	until := d.markSeq
	if until < 0 {
		until = a.lastSeq
	}
	var blocks []block
	for _, b := range a.occupiedBlocks(d, until) {
		if b.seq > seq && !b.pending {
			blocks = append(blocks, b)
		}
	}
	for _, b := range d.markDied {
		if b.seq > seq {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// theilSen is the median of the slopes between all pairs of values, which are one apart.
func theilSen(values []int64) float64 {
	step := 1.0
	if n := len(values); n > leakSamples {
		step = float64(n-1) / (leakSamples - 1)
	}
	at := func(i int) int { return int(float64(i)*step + 0.5) }
	n := min(len(values), leakSamples)
	slopes := make([]float64, 0, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			slopes = append(slopes, float64(values[at(j)]-values[at(i)])/float64(at(j)-at(i)))
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	middle := len(slopes) / 2
	if len(slopes)%2 == 1 {
		return slopes[middle]
	}
	return (slopes[middle-1] + slopes[middle]) / 2
}

func (a *analyzer) byContext(blocks []block) []Holder {
	return group(blocks, a.opt.Top, func(b *block) string { return a.ownerOf(b.context, b.label).name },
		func(name string) Holder { return Holder{Context: name} })
}

func (a *analyzer) bySize(blocks []block) []Holder {
	return group(blocks, a.opt.Top, func(b *block) int64 { return b.requested },
		func(size int64) Holder { return Holder{Size: size} })
}

// group sums up blocks by a key and returns the top holders by requested bytes.
func group[K comparable](blocks []block, top int, key func(*block) K, holder func(K) Holder) []Holder {
	index := map[K]int{}
	var holders []Holder
	for i := range blocks {
		b := &blocks[i]
		k := key(b)
		at, ok := index[k]
		if !ok {
			at = len(holders)
			index[k] = at
			holders = append(holders, holder(k))
		}
		h := &holders[at]
		h.Blocks++
		h.Requested += b.requested
		h.Provided += b.size
	}
	slices.SortFunc(holders, func(x, y Holder) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
	})
	return holders[:min(top, len(holders))]
}
