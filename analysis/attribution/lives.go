package attribution

import (
	"cmp"
	"slices"
)

// Lives are the categories of all allocations of a device, by their events.
type Lives struct {
	all    []life
	sorted bool
}

type life struct {
	seq      int64
	category Category
}

// Add adds an allocation whose life has ended, so that its category is known.
func (l *Lives) Add(seq int64, c Category) {
	l.all, l.sorted = append(l.all, life{seq, c}), false
}

// Of is the category of what an event allocated; NoCategory where that is not known.
func (l *Lives) Of(seq int64) Category {
	if l == nil {
		return NoCategory
	}
	if !l.sorted {
		slices.SortFunc(l.all, func(x, y life) int { return cmp.Compare(x.seq, y.seq) })
		l.sorted = true
	}
	if at, found := slices.BinarySearchFunc(l.all, seq, func(x life, seq int64) int { return cmp.Compare(x.seq, seq) }); found {
		return l.all[at].category
	}
	return NoCategory
}
