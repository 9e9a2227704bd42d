package pause

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Untagged is the untagged live memory at a pause: memory that the job cannot pause. Of all pauses it
// is the one with the most.
type Untagged struct {
	Seq, Time int64
	Bytes     int64 // requested
	Blocks    int64
	Groups    []UntaggedGroup // the greatest first, at most Options.Top
	Rest      int64           // bytes of further groups
}

// UntaggedGroup is blocks of one origin, category and phase.
type UntaggedGroup struct {
	Bytes    int64    `json:"bytes"`
	Blocks   int64    `json:"blocks"`
	Category string   `json:"category,omitempty"` // by the labels so far, "" without one
	Phase    string   `json:"phase"`
	Origin   string   `json:"origin,omitempty"` // module, label or text; "" for none
	Frames   []string `json:"frames,omitempty"`
	// Mixed: the same phase allocates inside tags too, so a memprof.region() is likely to be missing
	// around these allocations.
	Mixed bool `json:"mixed"`
}

// groupKey is what an UntaggedGroup has in common.
type groupKey struct {
	phase          uint8
	context, label int32
}

// Look is a look at all live blocks of a device, right after a pause.
type Look struct {
	tracker *Tracker
	groups  *attribution.Grouping[groupKey]
}

// Look begins a look, or returns nil: nothing is greater than at a pause before. live is the requested
// bytes of untagged live blocks.
func (t *Tracker) Look(live int64) *Look {
	if live <= t.untagged.Bytes {
		return nil
	}
	return &Look{t, attribution.NewGrouping[groupKey]()}
}

// Add adds a live block of an arena, paused or not.
func (l *Look) Add(a *Arena, b *ledger.Block) {
	if a.tag == noTag {
		l.groups.Add(groupKey{b.Phase, b.Context, b.Label}, b)
	}
}

// Done ends a look that had all blocks, at the event seq.
func (l *Look) Done(seq, time, live int64) {
	t := l.tracker
	out := Untagged{Seq: seq, Time: time, Bytes: live}
	for key, sums := range l.groups.Sums() {
		out.Blocks += sums.Blocks
		out.Groups = append(out.Groups, t.group(key, sums))
	}
	slices.SortStableFunc(out.Groups, func(x, y UntaggedGroup) int { return cmp.Compare(y.Bytes, x.Bytes) })
	if len(out.Groups) > t.opt.Top {
		for _, g := range out.Groups[t.opt.Top:] {
			out.Rest += g.Bytes
		}
		out.Groups = slices.Clip(out.Groups[:t.opt.Top])
	}
	t.untagged = out
}

func (t *Tracker) group(key groupKey, sums *attribution.Group) UntaggedGroup {
	who := t.attribution
	g := UntaggedGroup{
		Phase: who.Phases.Name(key.phase), Origin: who.OriginOf(key.context, key.label).Name,
		Blocks: sums.Blocks, Bytes: sums.Requested, Mixed: key.phase != attribution.OtherPhase && t.inPhase[key.phase],
		Frames: who.Frames(who.StackOf(key.context)),
	}
	if key.label != 0 {
		g.Category = who.LabelCategory(key.label).String()
	}
	return g
}
