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
	// bytes, "" without stacks.
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
		if line := OwnLine(t.Frames(t.StackOf(k.context))); line != "" {
			c.lines.Merge(line, sums)
		}
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
		if lines := c.lines.Breakdown(1, Named).Groups; len(lines) > 0 {
			use.Line, use.LineBytes = lines[0].Name, lines[0].Requested
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

// OwnLine is the innermost frame of the job's own code as "train.py:12", or of what is installed where it has none; "" without such frames.
func OwnLine(frames []string) string {
	own := slices.IndexFunc(frames, func(f string) bool { return classOf(f) == userCode })
	if own < 0 {
		own = slices.IndexFunc(frames, func(f string) bool { return classOf(f) == installed })
	}
	if own < 0 {
		return ""
	}
	frame := frames[own]
	if open := strings.LastIndexByte(frame, '('); open >= 0 && strings.HasSuffix(frame, ")") {
		return frame[open+1 : len(frame)-1]
	}
	return frame
}
