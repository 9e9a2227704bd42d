package fit

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
)

// Saving is a change of the job's code, and what the recorded allocator needs less with it. Sizes are bytes.
type Saving struct {
	ID, Text            string
	Variable            string // of the environment, with its value, that makes the change; "" for one of the code
	Bytes               int64  // requested at the peak, that the change is about and no other one
	Reserved, LeastCard int64  // less
}

// mostSavings is how many changes are replayed.
const mostSavings = 6

// leastSaved is the smallest share of the greatest requested bytes that a change must save.
const leastSaved = 0.01

// candidate is a change that lowers the greatest sum of requested bytes.
type candidate struct {
	change
	edit  *edit
	saves int64 // requested
	costs bool  // time
	bytes int64 // at the peak, of [Saving]
}

// Job is a job whose events are those of the history, so that each replay need not read the recording again.
func (h *History) Job(of *Job) *Job { return h.edit().job(of) }

// Find returns the changes that need a smaller card, the greatest saving first. base is the need of the job as it was recorded.
//
// All that a change is not about stays where it was recorded, the driver's loads of code too, as in a recording of the edited job.
func (h *History) Find(ctx context.Context, j *Job, base Need) ([]Saving, error) {
	candidates := h.candidates()
	found, failed := make([]Saving, len(candidates)), make([]error, len(candidates))
	var wait sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range candidates {
		wait.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			found[i], failed[i] = candidates[i].replay(ctx, j, base)
		})
	}
	wait.Wait()
	if err := cmp.Or(failed...); err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s Saving) bool { return s.LeastCard <= 0 })
	slices.SortStableFunc(found, func(x, y Saving) int { return cmp.Compare(y.LeastCard, x.LeastCard) })
	return found, nil
}

// replay finds what the recorded allocator needs with the change.
func (c *candidate) replay(ctx context.Context, j *Job, base Need) (s Saving, err error) {
	edited := c.edit.job(j)
	survey, err := Look(edited)
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.id, err)
	}
	needs, err := Least(ctx, edited, survey, Options{Allocators: []Allocator{base.Allocator}, Quick: true})
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.id, err)
	}
	need := needs[0]
	return Saving{ID: c.id, Text: c.text, Variable: c.variable, Bytes: c.bytes, Reserved: base.Reserved - need.Reserved, LeastCard: base.Bytes - need.Bytes}, nil
}

// candidates are changes that lower the greatest sum of requested bytes, each of them for the most part about bytes of its own.
func (h *History) candidates() []candidate {
	var all []candidate
	try := func(c change, e *edit, costs bool) {
		if e == nil || e.empty() {
			return
		}
		if saves := h.most - e.requested(); float64(saves) > leastSaved*float64(h.most) {
			c.text += e.hint
			all = append(all, candidate{change: c, edit: e, saves: saves, costs: costs})
		}
	}
	for _, c := range swift {
		try(c, c.make(h), false)
	}
	try(smallWorkspace, smallWorkspace.make(h), true)
	if best := h.bestCheckpoint(); best != nil {
		all = append(all, *best)
	} else {
		batch, e := change{id: "batch", text: fmt.Sprintf("a batch of %d/%d", batchParts, batchOf)}, smallerBatch(h)
		if len(h.passes) == 0 && 2*e.bytesAtPeakOf(attribution.KVCache) > e.bytesAtPeak() { // an engine's cache, whose size no batch decides
			batch = change{id: "kv-cache", text: fmt.Sprintf("a KV cache of %d/%d; fit --engine says how large it may be", batchParts, batchOf)}
		}
		try(batch, e, true)
	}
	slices.SortStableFunc(all, func(x, y candidate) int {
		if x.costs != y.costs {
			return map[bool]int{false: -1, true: 1}[x.costs]
		}
		return cmp.Compare(y.saves, x.saves)
	})
	claimed := map[int32]bool{}
	var chosen []candidate
	for _, c := range all {
		for i := range c.edit.claims {
			if b := &h.blocks[i]; h.atPeak(b) && !claimed[i] {
				c.bytes += b.bytes
			}
		}
		if len(chosen) < mostSavings && 2*c.bytes >= c.edit.bytesAtPeak() {
			chosen = append(chosen, c)
			for i := range c.edit.claims {
				claimed[i] = true
			}
		}
	}
	return chosen
}

// bestCheckpoint is the kind of module whose checkpoint lowers the greatest sum of requested bytes most; of those within 2 % the one
// that is tried first, which saves most for backward. It is nil if none lowers it.
func (h *History) bestCheckpoint() (best *candidate) {
	for _, k := range h.kinds() {
		e := h.checkpoint(k)
		if e.empty() {
			continue
		}
		saves := h.most - e.requested()
		if float64(saves) <= leastSaved*float64(h.most) || best != nil && float64(saves) < float64(best.saves)*1.02 {
			continue
		}
		text := fmt.Sprintf("checkpoint %s: %s of saved tensors", k.words(), plain.FormatSize(e.bytesAtPeak()))
		best = &candidate{change: change{id: "checkpoint", text: text}, edit: e, saves: saves, costs: true}
	}
	return best
}
