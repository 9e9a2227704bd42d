package attribution

import (
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// CategoryBytes are requested bytes by category, by [Category].
type CategoryBytes [Other + 1]int64

// CategoryPoint is the state after the event of most requested bytes in a window of events.
type CategoryPoint struct {
	Seq, Time int64
	R         int64
	Bytes     CategoryBytes
}

// CoursePoints is how many windows a course has at most: then neighbours are joined, and the greater of their two moments stays.
const CoursePoints = 1024

// courseWindow is a run of events and its moment of most requested bytes.
type courseWindow struct {
	seq, time, t, r int64
	own             CategoryBytes // of blocks freed after the moment, while the window was open
	change          CategoryBytes // what other blocks have here less what they have at the moment before
}

// CategoryCourse follows how many bytes each category of allocations has on one device over time, in one pass and in
// bounded memory.
//
// A category may be known only when a block is freed (a temporary is what its phase frees), so that a block counts
// backwards: at its free it is added to all instants in its life. The instants are the moments of most requested bytes in
// windows of events, so that no peak is lost.
type CategoryCourse struct {
	limit  int
	all    []courseWindow // the last is open if units > 0
	size   int64          // events in a window
	units  int64
	ending CategoryBytes // what to take off in the next window: it was freed since the last moment
}

// NewCategoryCourse is one without events, of at most so many moments, an even number.
func NewCategoryCourse(limit int) *CategoryCourse { return &CategoryCourse{limit: limit, size: 1} }

// Observe takes the state after an event that changed the device.
func (k *CategoryCourse) Observe(d *ledger.Device, seq, time int64) {
	switch {
	case k.units == 0:
		k.begin(d, seq, time)
	case d.T > k.all[len(k.all)-1].t:
		w := &k.all[len(k.all)-1]
		w.seq, w.time, w.t, w.r, w.own = seq, time, d.T, d.R, CategoryBytes{}
	}
	if k.units++; k.units >= k.size {
		k.units = 0
	}
}

// begin opens a window.
func (k *CategoryCourse) begin(d *ledger.Device, seq, time int64) {
	if len(k.all) >= k.limit {
		k.halve()
		if k.units > 0 { // the last window has no neighbour: it goes on
			if w := &k.all[len(k.all)-1]; d.T > w.t {
				w.seq, w.time, w.t, w.r, w.own = seq, time, d.T, d.R, CategoryBytes{}
			}
			return
		}
	}
	w := courseWindow{seq: seq, time: time, t: d.T, r: d.R}
	for i, bytes := range k.ending {
		w.change[i] = -bytes
	}
	k.ending = CategoryBytes{}
	k.all = append(k.all, w)
}

// halve joins neighbours.
func (k *CategoryCourse) halve() {
	n := 0
	carry := CategoryBytes{} // of moments that were given up, for the next
	for i := 0; i < len(k.all); i += 2 {
		w := k.all[i]
		w.change.add(&carry)
		carry = CategoryBytes{}
		if i+1 < len(k.all) {
			if o := k.all[i+1]; o.t > w.t {
				o.change.add(&w.change)
				w = o
			} else {
				carry = o.change
			}
		} else {
			k.units = k.size
		}
		k.all[n] = w
		n++
	}
	k.all = k.all[:n]
	for i, bytes := range carry { // nothing lies behind: the next window takes it
		k.ending[i] -= bytes
	}
	k.size *= 2
}

func (b *CategoryBytes) add(o *CategoryBytes) {
	for i := range b {
		b[i] += o[i]
	}
}

// Counts says whether a block that was allocated by an event, and is freed now, was live at one of the moments: most are
// not, and need not be looked at.
func (k *CategoryCourse) Counts(from int64) bool {
	last := len(k.all) - 1
	return last >= 0 && k.all[last].seq >= from
}

// Live adds a block that was live after the events [from, to), but for the pauses of its arena.
func (k *CategoryCourse) Live(bytes int64, category Category, from, to int64, pauses []ledger.PauseSpan) {
	for _, p := range pauses {
		if p.From < to && from < p.To {
			k.live(bytes, category, from, min(to, p.From))
			from = p.To
		}
	}
	k.live(bytes, category, from, to)
}

func (k *CategoryCourse) live(bytes int64, category Category, from, to int64) {
	if from >= to || !k.Counts(from) {
		return
	}
	last := len(k.all) - 1
	if k.units > 0 {
		// The open window's moment may still move on, behind the end of the block.
		if w := &k.all[last]; w.seq < to {
			w.own[category] += bytes
		}
		last--
	}
	begin, end := k.from(last+1, from), k.from(last+1, to)
	if begin >= end {
		return
	}
	k.all[begin].change[category] += bytes
	if end < len(k.all) {
		k.all[end].change[category] -= bytes
		return
	}
	k.ending[category] += bytes
}

// from is the first of so many windows whose moment is at an event or behind it. Most that are looked for are near the end.
func (k *CategoryCourse) from(windows int, seq int64) int {
	low := windows
	for step := 1; low > 0 && k.all[low-1].seq >= seq; step *= 2 {
		low = max(0, low-step)
	}
	for high := windows; low < high; {
		middle := (low + high) / 2
		if k.all[middle].seq < seq {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// Finish returns the moments in order, after all blocks that live on were added too.
func (k *CategoryCourse) Finish() []CategoryPoint {
	points := make([]CategoryPoint, len(k.all))
	var now CategoryBytes
	for i := range k.all {
		w := &k.all[i]
		now.add(&w.change)
		points[i] = CategoryPoint{Seq: w.seq, Time: w.time, R: w.r, Bytes: now}
		points[i].Bytes.add(&w.own)
	}
	return points
}

// PresentCategories are the categories that have bytes at some moment, in the order in which charts stack them: what lives longest
// first.
func PresentCategories(points []CategoryPoint) []Category {
	var out []Category
	for _, c := range []Category{
		Weights, Optimizer, Copies, KVCache, CUDAGraphs, Gradients, Activations,
		Inputs, Loss, Temporaries, Communication, Workspace, Other, NoCategory,
	} {
		if slices.ContainsFunc(points, func(p CategoryPoint) bool { return p.Bytes[c] > 0 }) {
			out = append(out, c)
		}
	}
	return out
}
