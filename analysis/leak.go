package analysis

import (
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/trend"
)

// leak is the trend of held bytes, and the blocks that leak.
func (a *analyzer) leak(d *device) Leak {
	l, which, found := d.trend.Finish(d.result.Iterations, len(d.result.Iterations) > 0 && d.result.Period == 0, a.lastTime)
	if !found {
		return l
	}
	blocks := a.leaked(d, which)
	for i := range blocks {
		l.Blocks++
		l.Requested += blocks[i].Requested
		l.Provided += blocks[i].Size
	}
	l.Holders = a.attribution.ByOrigin(blocks)
	l.Sizes = a.attribution.BySize(blocks)
	l.Stacks = a.attribution.ByStack(blocks)
	return l
}

// leaked are the blocks that a trend says leak. What paused arenas hold is among them.
func (a *analyzer) leaked(d *device, which trend.Blocks) []block {
	blocks := which.Freed
	for _, ar := range a.arenas {
		if ar.device != d || ar.Over {
			continue
		}
		a.ledger.Each(ar.Arena, func(s *ledger.Segment) {
			// A pending block was live at the bound if it was freed since: then it is among which.Freed.
			if s.Kind == ledger.LiveSegment && which.Since < s.Seq && s.Seq <= which.Until {
				blocks = append(blocks, s.Block())
			}
		})
	}
	return blocks
}
