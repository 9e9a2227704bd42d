package iterations

import (
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Rise is a group of blocks that leaks.
type Rise struct {
	group     int32
	Slope     float64 // bytes per x of the points
	PerSecond float64
}

// Has says whether a block belongs to the group.
func (r *Rise) Has(b *ledger.Block) bool { return r.group == everything || r.group == b.Context }

// Library is the index of the library, by order of first use, whose memory the group is; not ok for other groups.
func (r *Rise) Library() (index int, ok bool) { return int(libraries - r.group), r.group <= libraries }

// thirds are the indices of points between which a rise is measured. The first third is left out, in which a job warms up. end is before
// the last eighth: what is held only then is not known to stay.
type thirds struct{ from, middle, end int }

func (p *Points) thirds() thirds {
	n := len(p.points)
	t := thirds{end: n - max(2, n/8)}
	t.from = t.end / 3
	t.middle = (t.end + t.from) / 2
	return t
}

// Since is the event after which blocks count.
func (p *Points) Since() int64 { return p.points[p.thirds().from].seq }

// Rises are the groups that leak. explained are blocks that are no leak: parameters, gradients and optimizer state that appear once,
// memory of captures. They are left out of the rise of their group.
//
// What a group holds for good at a point is the least that it holds there or at any later point. A group leaks if that grows in the last
// third of the points as in the middle one: at half its speed or more, and in several steps in each. It does not if it stopped growing
// before the end (a cache has reached its bound), or if as many blocks as before hold more because the job's work grows, as longer inputs do.
func (p *Points) Rises(explained []ledger.Block) []Rise {
	if len(p.points) < LeastIterations-1 {
		return nil
	}
	slices.SortFunc(explained, func(x, y ledger.Block) int { return int(x.Seq - y.Seq) })
	var rises []Rise
	for _, h := range p.points[len(p.points)-1].held {
		r := Rise{group: h.group}
		if p.rise(&r, explained) {
			rises = append(rises, r)
		}
	}
	return rises
}

// floor is what a group holds for good at each point, in blocks and bytes, without the blocks that are explained.
func (p *Points) floor(r *Rise, explained []ledger.Block) (blocks, bytes []int64) {
	n := len(p.points)
	blocks, bytes = make([]int64, n), make([]int64, n)
	next, less := 0, holding{}
	for i := range p.points {
		for ; next < len(explained) && explained[next].Seq <= p.points[i].seq; next++ {
			if b := &explained[next]; r.Has(b) {
				less.blocks, less.bytes = less.blocks+1, less.bytes+b.Requested
			}
		}
		h := p.points[i].at(r.group)
		blocks[i], bytes[i] = h.blocks-less.blocks, h.bytes-less.bytes
	}
	for i := n - 2; i >= 0; i-- {
		blocks[i], bytes[i] = min(blocks[i], blocks[i+1]), min(bytes[i], bytes[i+1])
	}
	return blocks, bytes
}

// rise judges a group, and fills in its slope.
func (p *Points) rise(r *Rise, explained []ledger.Block) bool {
	blocks, bytes := p.floor(r, explained)
	t := p.thirds()
	speed := func(from, to int) float64 {
		return float64(bytes[to]-bytes[from]) / (p.points[to].x - p.points[from].x)
	}
	middle, last := speed(t.from, t.middle), speed(t.middle, t.end)
	if middle <= 0 || last < middle/2 || last > 8*middle || steps(bytes[t.from:t.middle+1]) < 2 || steps(bytes[t.middle:t.end+1]) < 2 {
		return false
	}
	if stopped(bytes[t.from:]) {
		return false
	}
	if blocks[t.end] <= blocks[t.from] && p.workGrows(t, bytes) {
		return false
	}
	r.Slope = speed(t.from, t.end)
	if seconds := float64(p.points[t.end].time-p.points[t.from].time) / 1e9; seconds > 0 {
		r.PerSecond = float64(bytes[t.end]-bytes[t.from]) / seconds
	}
	return true
}

// steps is how often values rise.
func steps(values []int64) int {
	n := 0
	for i := range values[1:] {
		if values[i+1] > values[i] {
			n++
		}
	}
	return n
}

// stopped says whether ascending values have not risen for more than twice as long as they ever paused before.
func stopped(values []int64) bool {
	longest, since := 1, 0
	for i := range values[1:] {
		if since++; values[i+1] > values[i] {
			longest, since = max(longest, since), 0
		}
	}
	return since > 2*longest
}

// workGrows says whether what the job requests between points grows with what a group holds: at a quarter of its rate or more. The group's
// blocks are made anew at each point, and do not count as work.
func (p *Points) workGrows(t thirds, bytes []int64) bool {
	mean := func(from, to int) (held, work float64) {
		for _, b := range bytes[from:to] {
			held += float64(b) / float64(to-from)
		}
		return held, float64(p.points[to].work-p.points[from].work)/(p.points[to].x-p.points[from].x) - held
	}
	held, work := mean(t.from, t.middle)
	heldAfter, workAfter := mean(t.middle, t.end)
	return work > 0 && workAfter/work-1 >= (heldAfter/max(held, 1)-1)/4
}
