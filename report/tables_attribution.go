package report

import (
	"strings"

	"github.com/memprof/memprof/analysis"
)

// How much of a breakdown a table shows; JSON has more.
const (
	modulesShown  = 12
	depthsShown   = 3
	childrenShown = 5 // of a module in the tree
	treeShown     = 30
	stacksShown   = 6
	framesShown   = 6
	phasesShown   = 6 // as columns
)

// nameWidth is the room for a module's path or a frame.
const nameWidth = 50

// otherMeans explains the category.
const otherMeans = "other: told by no label, and by neither phase nor lifetime"

// heldSections say who held the memory at the peak, as far as the recording tells it.
func heldSections(d *analysis.DeviceResult) []section {
	held := &d.Held
	if !held.Known {
		return nil
	}
	t := heldTable{d.Peak.T, "share of T", held.Sampled}
	sections := []section{t.categories(held)}
	if len(d.Phases) > 0 {
		sections = append(sections, t.section("Held at the peak, by phase of the allocation", "phase", &held.Phases, phaseText))
	}
	if len(held.Depths) > 0 {
		sections = append(sections, t.section("Held at the peak, by module", "module", &held.Modules, moduleText))
		if groups(&held.Kinds) < groups(&held.Modules) {
			sections = append(sections, t.section("Held at the peak, by module, repeated layers as one", "module", &held.Kinds, moduleText))
		}
		if len(held.Depths) > 1 {
			sections = append(sections, t.tree(held))
		}
	}
	if told(&held.Stacks) {
		s := t.stacks("Held at the peak, by stack", &held.Stacks)
		s.before = note("innermost frame first")
		sections = append(sections, s)
	}
	return sections
}

func groups(b *analysis.Breakdown) int64 { return int64(len(b.Groups)) + b.RestGroups }

// told says whether any group of stacks has frames.
func told(stacks *analysis.Breakdown) bool {
	return len(stacks.Groups) > 1 || len(stacks.Groups) == 1 && len(stacks.Groups[0].Frames) > 0
}

func phaseText(name string) string { return named(name, "(no name)") }

func moduleText(name string) string { return named(name, "(no module)") }

// named is a name of the job's as a field of a table.
func named(name, none string) string {
	if name == "" {
		return none
	}
	return shorten(name, nameWidth)
}

var categoryTexts = map[string]string{
	"optimizer": "optimizer state", "kv_cache": "KV cache", "cuda_graphs": "CUDA graphs", "workspace": "temporary workspace",
}

func categoryText(name string) string {
	if text, ok := categoryTexts[name]; ok {
		return text
	}
	return name
}

// heldTable makes tables of groups of blocks.
type heldTable struct {
	whole   int64  // bytes that shares are of
	share   string // what they are
	sampled bool   // what was provided is not known
}

func (t heldTable) categories(held *analysis.Attribution) section {
	s := t.section("Held at the peak, by category", "category", &held.Categories, categoryText)
	for i, g := range held.Categories.Groups {
		if g.Name == analysis.Other.String() {
			toned(faint, s.rows[i])
			s.after = note(otherMeans)
		}
	}
	return s
}

// columns are those of a table of groups.
func (t heldTable) columns(what string) []column {
	columns := []column{words(what), numbers("blocks"), numbers("requested"), numbers(t.share)}
	if t.sampled {
		return columns
	}
	return append(columns, numbers("provided"))
}

// row is a group as a line of such a table.
func (t heldTable) row(text string, g *analysis.Group) []cell {
	line := row(text, formatCount(g.Blocks), FormatSize(g.Requested), FormatPercent(ratio(g.Requested, t.whole)))
	if t.sampled {
		return line
	}
	return append(line, cell{text: FormatSize(g.Provided)})
}

// section lists the groups of a breakdown; its lines add up to the whole.
func (t heldTable) section(title, what string, b *analysis.Breakdown, text func(string) string) section {
	s := section{title: title, columns: t.columns(what)}
	rest, more := b.Rest, b.RestGroups
	for i := range b.Groups {
		g := &b.Groups[i]
		if i >= modulesShown {
			rest = plus(rest, g)
			more++
			continue
		}
		s.rows = append(s.rows, t.row(text(g.Name), g))
	}
	if more > 0 {
		s.rows = append(s.rows, toned(faint, t.row("… "+formatCount(more)+" more", &rest)))
	}
	all := b.Sum()
	s.total = toned(strong, t.row("= requested", &all))
	return s
}

func plus(sum analysis.Group, g *analysis.Group) analysis.Group {
	sum.Blocks += g.Blocks
	sum.Requested += g.Requested
	sum.Provided += g.Provided
	return sum
}

// tree shows modules with all that is below them.
func (t heldTable) tree(held *analysis.Attribution) section {
	s := section{title: "Held at the peak, by module and all below it", columns: t.columns("module")}
	depths := held.Depths[:min(depthsShown, len(held.Depths))]
	var list func(depth int, parent string)
	list = func(depth int, parent string) {
		if depth == len(depths) {
			return
		}
		indent := strings.Repeat("  ", depth)
		children := inside(&depths[depth], parent, depth)
		for i, g := range children {
			if left := len(children) - i; i >= childrenShown && left > 1 {
				gap := make([]cell, len(s.columns))
				gap[0].text = indent + "… " + formatCount(int64(left)) + " more"
				s.rows = append(s.rows, toned(faint, gap))
				return
			}
			s.rows = append(s.rows, t.row(indent+shorten(g.Name, nameWidth-len(indent)), g))
			list(depth+1, g.Name)
		}
	}
	list(0, "")
	s.elide(treeShown, 0)
	return s
}

// inside are the groups of a depth, from 0, that lie below a module of the depth above.
func inside(b *analysis.Breakdown, parent string, depth int) []*analysis.Group {
	var children []*analysis.Group
	for i := range b.Groups {
		g := &b.Groups[i]
		if g.Name != "" && (depth == 0 || strings.HasPrefix(g.Name, parent+".") && strings.Count(g.Name, ".") == depth) {
			children = append(children, g)
		}
	}
	return children
}

// stacks lists those that allocated most, the innermost frame first.
func (t heldTable) stacks(title string, b *analysis.Breakdown) section {
	s := section{title: title, columns: t.columns("stack")}
	rest, more := b.Rest, b.RestGroups
	for i := range b.Groups {
		g := &b.Groups[i]
		if i >= stacksShown {
			rest = plus(rest, g)
			more++
			continue
		}
		s.rows = append(s.rows, t.row(innermost(g), g))
		s.rows = append(s.rows, callers(g, framesShown, len(s.columns))...)
	}
	if more > 0 {
		s.rows = append(s.rows, toned(faint, t.row("… "+formatCount(more)+" more", &rest)))
	}
	all := b.Sum()
	s.total = toned(strong, t.row("= requested", &all))
	return s
}

// leakStacks say by what code the blocks that leak were made.
func leakStacks(d *analysis.DeviceResult) []section {
	stacks := &d.Leak.Stacks
	if trend, _ := d.Leak.Trend(); !trend.Rising || !told(stacks) {
		return nil
	}
	all := stacks.Sum()
	return []section{heldTable{all.Requested, "share", d.Held.Sampled}.stacks("Leaks, by stack", stacks)}
}

func innermost(g *analysis.Group) string {
	if len(g.Frames) == 0 {
		return "(no stack)"
	}
	return named(g.Frames[0], "(no name)")
}

// callers are lines for the frames that called the innermost one, in the first of so many columns.
func callers(g *analysis.Group, shown, columns int) [][]cell {
	var rows [][]cell
	line := func(text string) {
		cells := make([]cell, columns)
		cells[0].text = "  " + text
		rows = append(rows, toned(faint, cells))
	}
	for i := 1; i < len(g.Frames); i++ {
		if left := len(g.Frames) - i; i >= shown && left > 1 {
			line("… " + plural(int64(left), "more frame"))
			break
		}
		line(shorten(g.Frames[i], nameWidth-2))
	}
	return rows
}

// phaseSections say what each phase did in each iteration.
func phaseSections(d *analysis.DeviceResult) []section {
	if len(d.Phases) == 0 {
		return nil
	}
	phases := d.Phases
	var after []cell
	if len(phases) > phasesShown {
		after = toned(faint, note(plural(int64(len(phases)-phasesShown), "more phase")+" not shown"))
		phases = phases[:phasesShown]
	}
	peaks := section{title: "Peak T, by iteration and phase", columns: []column{numbers("iteration")}, after: after}
	bytes := section{title: "Allocated, by iteration and phase", columns: []column{numbers("iteration")}, after: after}
	for _, p := range phases {
		name := numbers(shorten(phaseText(p.Phase), 10))
		peaks.columns = append(peaks.columns, name)
		bytes.columns = append(bytes.columns, name)
	}
	for i := range d.PhaseIterations {
		it := &d.PhaseIterations[i]
		number := iterationText(d, it.Iteration)
		peaks.rows = append(peaks.rows, phaseRow(number, phases, it.Uses, func(u *analysis.PhaseUse) int64 { return u.PeakT }))
		bytes.rows = append(bytes.rows, phaseRow(number, phases, it.Uses, func(u *analysis.PhaseUse) int64 { return u.AllocBytes }))
	}
	peaks.elide(iterationsHead, iterationsTail)
	bytes.elide(iterationsHead, iterationsTail)
	peaks.total = toned(strong, phaseRow("greatest", phases, phases, func(u *analysis.PhaseUse) int64 { return u.PeakT }))
	bytes.total = toned(strong, phaseRow("all", phases, phases, func(u *analysis.PhaseUse) int64 { return u.AllocBytes }))
	return []section{peaks, bytes}
}

// phaseRow is a line with a number of each phase, where the phase was on.
func phaseRow(first string, phases, uses []analysis.PhaseUse, of func(*analysis.PhaseUse) int64) []cell {
	line := row(first)
	for _, p := range phases {
		text := absent
		for i := range uses {
			if uses[i].Phase == p.Phase {
				text = FormatSize(of(&uses[i]))
			}
		}
		line = append(line, cell{text: text})
	}
	return line
}

// How much of a failed request's story is told.
const (
	storiesShown      = 3
	storyModulesShown = 6
	storyStacksShown  = 3
	storyFramesShown  = 3
)

// storyWidth is the room for a name in the story.
const storyWidth = 44

// oomStories say who held what when a request failed, for the first that did.
func oomStories(d *analysis.DeviceResult) []section {
	var sections []section
	for i := range d.OOMs {
		if o := &d.OOMs[i]; o.Held != nil && o.At.Live > 0 && len(sections) < storiesShown {
			sections = append(sections, oomStory(d, o))
		}
	}
	return sections
}

func oomStory(d *analysis.DeviceResult, o *analysis.OOM) section {
	s := section{
		title:   "Who held what when the request at event " + formatCount(o.Seq) + " failed",
		before:  append(note(formatLimit(o.Request)+" asked for by "+contextText(o.Requester, storyWidth)), note(instantLine(d, o.At))...),
		columns: []column{words("by"), words("who"), numbers("blocks"), numbers("requested"), numbers("share of T")},
	}
	line := func(by, who string, g *analysis.Group) {
		s.rows = append(s.rows, row(by, who, formatCount(g.Blocks), FormatSize(g.Requested), FormatPercent(ratio(g.Requested, o.At.T))))
	}
	list := func(by string, b *analysis.Breakdown, shown int, text func(*analysis.Group) string) {
		rest, more := b.Rest, b.RestGroups
		for i := range b.Groups {
			g := &b.Groups[i]
			if i >= shown {
				rest = plus(rest, g)
				more++
				continue
			}
			line(by, text(g), g)
			for _, caller := range callers(g, storyFramesShown, 1) {
				s.rows = append(s.rows, toned(faint, row("", shorten(caller[0].text, storyWidth), "", "", "")))
			}
			by = ""
		}
		if more > 0 {
			line("", "… "+formatCount(more)+" more", &rest)
			toned(faint, s.rows[len(s.rows)-1])
		}
	}
	held := o.Held
	if held.Known {
		list("category", &held.Categories, len(held.Categories.Groups), func(g *analysis.Group) string { return categoryText(g.Name) })
	}
	if len(d.Phases) > 0 {
		list("phase", &held.Phases, phasesShown, func(g *analysis.Group) string { return shorten(phaseText(g.Name), storyWidth) })
	}
	if len(held.Kinds.Groups) > 1 || held.Kinds.Groups[0].Name != "" {
		list("module", &held.Kinds, storyModulesShown, func(g *analysis.Group) string { return shorten(moduleText(g.Name), storyWidth) })
	}
	if told(&held.Stacks) {
		list("stack", &held.Stacks, storyStacksShown, func(g *analysis.Group) string { return shorten(innermost(g), storyWidth) })
	}
	all := held.Categories.Sum()
	s.total = toned(strong, row("", "= requested", formatCount(all.Blocks), FormatSize(all.Requested), FormatPercent(ratio(all.Requested, o.At.T))))
	return s
}
