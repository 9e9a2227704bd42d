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
	Phase    string
	Category string // by the labels so far, "" without one
	Origin   string // module, label or text; "" for none
	Frames   []string
	Blocks   int64
	Bytes    int64
	// Mixed: the same phase allocates inside tags too, so a memprof.region() is likely to be missing
	// around these allocations.
	Mixed bool
}

// UntaggedCategory is untagged memory of a category of which a tag has more than half.
type UntaggedCategory struct {
	Category string
	Tag      string   // which has most of the category's bytes
	Inside   int64    // bytes of the category in the tag
	Blocks   int64    // untagged
	Bytes    int64    // untagged
	Origins  []string // origins with the most of these, at most three
}

// groupKey is what an UntaggedGroup has in common.
type groupKey struct {
	phase          uint8
	context, label int32
}

// labelPlace is where blocks with a label lie.
type labelPlace struct {
	category       attribution.Category
	tag            int
	context, label int32
}

// Look is a look at all live blocks of a device, right after a pause.
type Look struct {
	tracker  *Tracker
	groups   *attribution.Grouping[groupKey]
	labelled *attribution.Grouping[labelPlace]
}

// Look begins a look, or returns nil: nothing is greater than at a pause before. live is the requested
// bytes of untagged live blocks.
func (t *Tracker) Look(live int64) *Look {
	if live <= t.untagged.Bytes {
		return nil
	}
	return &Look{t, attribution.NewGrouping[groupKey](), attribution.NewGrouping[labelPlace]()}
}

// Add adds a live block of an arena, paused or not.
func (l *Look) Add(a *Arena, b *ledger.Block) {
	if a.tag == noTag {
		l.groups.Add(groupKey{b.Phase, b.Context, b.Label}, b)
	}
	if b.Label == 0 {
		return
	}
	if category := l.tracker.attribution.LabelCategory(b.Label); category != attribution.NoCategory {
		l.labelled.Add(labelPlace{category, a.tag, b.Context, b.Label}, b)
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
	t.untagged, t.categories = out, l.categories()
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

// categories are those with untagged bytes of which one tag has more than half.
func (l *Look) categories() []UntaggedCategory {
	var out []UntaggedCategory
	for category := attribution.Weights; category <= attribution.KVCache; category++ {
		if of, ok := l.category(category); ok {
			out = append(out, of)
		}
	}
	slices.SortStableFunc(out, func(x, y UntaggedCategory) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out
}

func (l *Look) category(category attribution.Category) (UntaggedCategory, bool) {
	t := l.tracker
	inside := make([]int64, len(t.tags))
	origins := attribution.NewGrouping[string]()
	out, all := UntaggedCategory{Category: category.String()}, int64(0)
	for place, sums := range l.labelled.Sums() {
		if place.category != category {
			continue
		}
		all += sums.Requested
		if place.tag != noTag {
			inside[place.tag] += sums.Requested
			continue
		}
		out.Blocks += sums.Blocks
		out.Bytes += sums.Requested
		origins.Merge(t.attribution.OriginOf(place.context, place.label).Name, sums)
	}
	for i, bytes := range inside {
		if 2*bytes > all {
			out.Tag, out.Inside = t.tags[i].Name, bytes
		}
	}
	for _, g := range origins.Breakdown(3, attribution.Named).Groups {
		if g.Name != "" {
			out.Origins = append(out.Origins, g.Name)
		}
	}
	return out, out.Tag != "" && out.Bytes > 0
}
