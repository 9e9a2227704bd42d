package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// CategoryUse is what blocks of a category have, and where most of it comes from.
type CategoryUse struct {
	Category  Category
	Requested int64 // bytes
	// Module is the innermost module with at least half of the bytes, repeated layers counted as one ("h.*.attn"), or else the
	// outermost one with most of them; "" where no block has one. Line is the line of the job's own code with most of the
	// bytes, "" where more have none: backward runs on threads without Python.
	Module, Line           string
	ModuleBytes, LineBytes int64
	Phase                  string // in which most of the bytes were allocated
}

// useKey is what blocks have in common that count as one in a CategoryUse.
type useKey struct {
	category       Category
	phase          uint8
	context, label int32
}

// categoryUses divides blocks by category, those with the most requested bytes first.
func (t *Tracker) categoryUses(groups *Grouping[useKey]) []CategoryUse {
	var of [Other + 1]struct {
		bytes                  int64
		modules, lines, phases *Grouping[string]
	}
	for k, sums := range groups.Sums() {
		c := &of[k.category]
		if c.modules == nil {
			c.modules, c.lines, c.phases = NewGrouping[string](), NewGrouping[string](), NewGrouping[string]()
		}
		c.bytes += sums.Requested
		c.phases.Merge(t.Phases.Name(k.phase), sums)
		if o := t.OriginOf(k.context, k.label); o.Module {
			c.modules.Merge(o.Kind(), sums)
		}
		c.lines.Merge(UserLine(t.Frames(t.StackOf(k.context))), sums)
	}
	var uses []CategoryUse
	for category := range of {
		c := &of[category]
		if c.bytes == 0 {
			continue
		}
		use := CategoryUse{Category: Category(category), Requested: c.bytes}
		use.Phase = c.phases.Breakdown(1, Named).Groups[0].Name
		use.Module, use.ModuleBytes = innermost(c.modules, c.bytes)
		if most := c.lines.Breakdown(1, Named).Groups[0]; most.Name != "" {
			use.Line, use.LineBytes = most.Name, most.Requested
		}
		uses = append(uses, use)
	}
	slices.SortStableFunc(uses, func(x, y CategoryUse) int { return cmp.Compare(y.Requested, x.Requested) })
	return uses
}

// maxDepth is how deep modules are rolled up.
const maxDepth = 8

// innermost is the module of [CategoryUse]: groups are by kind of module, and all their bytes are of a category of so many.
func innermost(groups *Grouping[string], all int64) (module string, bytes int64) {
	for depth := 1; depth <= maxDepth; depth++ {
		rolled := NewGrouping[string]()
		for name, sums := range groups.Sums() {
			o := Origin{Name: name, Module: true}
			if o.depth() >= depth && (module == "" || strings.HasPrefix(name, module+".")) {
				rolled.Merge(o.prefix(depth), sums)
			}
		}
		most := rolled.Breakdown(1, Named).Groups
		if len(most) == 0 || module != "" && 2*most[0].Requested < all {
			break
		}
		module, bytes = most[0].Name, most[0].Requested
	}
	return module, bytes
}
