package analysis

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// Outside is what lived outside every region when a pause was done: memory that the job can
// not send to sleep. Of all pauses it is the one with the most.
type Outside struct {
	Seq, Time int64
	Bytes     int64 // requested
	Blocks    int64
	Groups    []OutsideGroup // the greatest first, at most Top
	Rest      int64          // bytes of further groups
}

// OutsideGroup is blocks of one requester, category and phase.
type OutsideGroup struct {
	Phase    string
	Category string // by what was known at the pause
	Owner    string // module, label or text; "" for none
	Frames   []string
	Blocks   int64
	Bytes    int64
	// Mixed says that the same phase allocated inside regions too, so that a region is
	// likely to be missing around these.
	Mixed bool
}

// Stray is memory that is labelled like most of a tag, yet lies in no region.
type Stray struct {
	Category string
	Tag      string // which has most of the category's bytes
	Inside   int64  // bytes of the category in it
	Blocks   int64
	Bytes    int64
	Owners   []string // the greatest holders, at most three
}

// outsideKey is what an OutsideGroup has in common.
type outsideKey struct {
	phase          uint8
	context, label int32
}

// lookOutside is told of a pause that came about.
func (a *analyzer) lookOutside(d *device, e *trace.Event) {
	s := d.sleep
	var live int64
	segments := len(a.arenas)
	for _, ar := range a.arenas {
		if ar.device == d && !ar.released {
			segments += ar.segments
		}
		if ar.device == d && !ar.released && ar.tag == noTag {
			live += ar.t
		}
	}
	if live <= s.outside.Bytes || !a.walk(segments) {
		return
	}
	groups, labelled := attribution.NewGrouping[outsideKey](), attribution.NewGrouping[labelPlace]()
	for _, ar := range a.arenas {
		if ar.device == d && !ar.released {
			a.lookInto(ar, groups, labelled)
		}
	}
	s.outside = Outside{Seq: e.Seq, Time: e.Time, Bytes: live}
	for key, sums := range groups.Sums() {
		s.outside.Blocks += sums.Blocks
		s.outside.Groups = append(s.outside.Groups, a.outsideGroup(s, key, sums))
	}
	slices.SortStableFunc(s.outside.Groups, func(x, y OutsideGroup) int { return cmp.Compare(y.Bytes, x.Bytes) })
	if len(s.outside.Groups) > a.opt.Top {
		for _, g := range s.outside.Groups[a.opt.Top:] {
			s.outside.Rest += g.Bytes
		}
		s.outside.Groups = slices.Clip(s.outside.Groups[:a.opt.Top])
	}
	s.strays = a.straysOf(s, labelled)
}

// labelPlace is where blocks with a label lie.
type labelPlace struct {
	category       Category
	tag            int
	context, label int32
}

// lookInto sums up an arena's live blocks; those of one that is paused live, too.
func (a *analyzer) lookInto(ar *arena, groups *attribution.Grouping[outsideKey], labelled *attribution.Grouping[labelPlace]) {
	for i := ar.head; i != none; i = a.ledger.segments[i].next {
		segment := &a.ledger.segments[i]
		if segment.kind != segmentLive {
			continue
		}
		b := blockOf(segment)
		if ar.tag == noTag {
			groups.Add(outsideKey{b.Phase, b.Context, b.Label}, &b)
		}
		if b.Label == 0 {
			continue
		}
		if category := a.attribution.LabelCategory(b.Label); category != attribution.NoCategory {
			labelled.Add(labelPlace{category, ar.tag, b.Context, b.Label}, &b)
		}
	}
}

func (a *analyzer) outsideGroup(s *sleeper, key outsideKey, sums *Group) OutsideGroup {
	g := OutsideGroup{
		Phase: a.attribution.Phases.Name(key.phase), Owner: a.attribution.OriginOf(key.context, key.label).Name,
		Blocks: sums.Blocks, Bytes: sums.Requested, Mixed: key.phase != attribution.OtherPhase && s.inPhase[key.phase],
	}
	if key.label != 0 {
		g.Category = a.attribution.LabelCategory(key.label).String()
	}
	g.Frames = a.attribution.Frames(a.attribution.StackOf(key.context))
	return g
}

// straysOf are the categories of which one tag has more than half, and no tag some.
func (a *analyzer) straysOf(s *sleeper, labelled *attribution.Grouping[labelPlace]) []Stray {
	var strays []Stray
	for category := Weights; category <= KVCache; category++ {
		if stray, ok := a.strayOf(s, labelled, category); ok {
			strays = append(strays, stray)
		}
	}
	slices.SortStableFunc(strays, func(x, y Stray) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return strays
}

func (a *analyzer) strayOf(s *sleeper, labelled *attribution.Grouping[labelPlace], category Category) (Stray, bool) {
	inside := make([]int64, len(s.tags))
	owners := attribution.NewGrouping[string]()
	stray, all := Stray{Category: category.String()}, int64(0)
	for place, sums := range labelled.Sums() {
		if place.category != category {
			continue
		}
		all += sums.Requested
		if place.tag != noTag {
			inside[place.tag] += sums.Requested
			continue
		}
		stray.Blocks += sums.Blocks
		stray.Bytes += sums.Requested
		owners.Merge(a.attribution.OriginOf(place.context, place.label).Name, sums)
	}
	for t, bytes := range inside {
		if 2*bytes > all {
			stray.Tag, stray.Inside = s.tags[t].Name, bytes
		}
	}
	for _, g := range owners.Breakdown(3, attribution.Named).Groups {
		if g.Name != "" {
			stray.Owners = append(stray.Owners, g.Name)
		}
	}
	return stray, stray.Tag != "" && stray.Bytes > 0
}
