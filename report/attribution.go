package report

import (
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// Rows and columns of the tables; JSON has more.
const (
	modulesShown = 12
	stacksShown  = 6
	framesShown  = 6
	phasesShown  = 6 // as columns
)

// attributionSections divide the live allocations at the peak by category, phase, module and stack, if the
// recording has these.
func attributionSections(d *analysis.DeviceResult) []layout.Section {
	return layout.ShownAtPins(heldSections(d.AtPeak(), len(d.Phases) > 0)...)
}

// heldSections divide the live allocations of a moment.
func heldSections(m *analysis.DeviceMoment, byPhase bool) []layout.Section {
	held := m.Held
	if !held.Known {
		return nil
	}
	t := groupTable{m.At.T, "of requested", m.Chunks}
	sections := []layout.Section{t.categories(held)}
	if byPhase {
		sections = append(sections, t.section("Live allocations at the peak, by phase", "phase", &held.Phases, terms.Phase))
	}
	if held.ByModule {
		sections = append(sections, t.section("Live allocations at the peak, by module", "module", &held.Modules, terms.Module))
		if groups(&held.Kinds) < groups(&held.Modules) {
			sections = append(sections, t.section("Live allocations at the peak, by module, repeated layers as one", "module", &held.Kinds, terms.Module))
		}
	}
	if hasFrames(&held.Stacks) {
		s := t.stacks("Live allocations at the peak, by stack", &held.Stacks)
		s.Before = layout.Note("innermost frame first")
		sections = append(sections, s)
	}
	return layout.Known("provided", sections)
}

func groups(b *attribution.Breakdown) int64 { return int64(len(b.Groups)) + b.RestGroups }

// hasFrames reports whether any group of stacks has frames.
func hasFrames(stacks *attribution.Breakdown) bool {
	return len(stacks.Groups) > 1 || len(stacks.Groups) == 1 && len(stacks.Groups[0].Frames) > 0
}

// groupTable makes tables of groups of live allocations.
type groupTable struct {
	whole  int64  // bytes that shares are of
	share  string // head of their column
	chunks *analysis.Chunks
}

func (t groupTable) categories(held *attribution.Result) layout.Section {
	s := t.section("Live allocations at the peak, by category", "category", &held.Categories, strings.Clone)
	for i, g := range held.Categories.Groups {
		if g.Name == attribution.Other.String() {
			layout.Toned(layout.Faint, s.Rows[i])
			s.After = layout.Note(terms.OtherMeans)
		}
	}
	return s
}

// columns are the columns of a table of groups.
func (t groupTable) columns(what string) []layout.Column {
	return []layout.Column{layout.Words(what), layout.Numbers("allocations"), layout.Numbers("requested"), layout.Numbers(t.share), layout.Numbers("provided")}
}

// row is a group as a row of such a table.
func (t groupTable) row(text string, g *attribution.Group) []layout.Cell {
	return layout.Row(text, plain.FormatCount(g.Blocks), plain.FormatSize(g.Requested), plain.FormatPercent(plain.Ratio(g.Requested, t.whole)), plain.FormatKnown(t.chunks.Known(g.Provided)))
}

// section lists the groups of a breakdown; its rows add up to its total.
func (t groupTable) section(title, what string, b *attribution.Breakdown, text func(string) string) layout.Section {
	s := layout.Section{Title: title, Columns: t.columns(what)}
	shown, rest, more := firstGroups(b, modulesShown)
	for i := range shown {
		s.Rows = append(s.Rows, t.row(text(shown[i].Name), &shown[i]))
	}
	if more > 0 {
		s.Rows = append(s.Rows, layout.Toned(layout.Faint, t.row("… "+plain.FormatCount(more)+" more", &rest)))
	}
	all := b.Sum()
	s.Total = layout.Toned(layout.Strong, t.row("= requested", &all))
	return s
}

// firstGroups are the first groups of a breakdown, and the sum and number of all others.
func firstGroups(b *attribution.Breakdown, most int) (shown []attribution.Group, rest attribution.Group, more int64) {
	shown, rest, more = b.Groups[:min(most, len(b.Groups))], b.Rest, b.RestGroups
	for _, g := range b.Groups[len(shown):] {
		rest.Blocks, rest.Requested, rest.Provided = rest.Blocks+g.Blocks, rest.Requested+g.Requested, rest.Provided+g.Provided
		more++
	}
	return shown, rest, more
}

// stacks lists the stacks with most requested bytes, innermost frame first.
func (t groupTable) stacks(title string, b *attribution.Breakdown) layout.Section {
	s := layout.Section{Title: title, Columns: t.columns("stack")}
	shown, rest, more := firstGroups(b, stacksShown)
	for i := range shown {
		g := &shown[i]
		s.Rows = append(s.Rows, t.row(innermost(g), g))
		s.Rows = append(s.Rows, callers(g, framesShown, len(s.Columns))...)
	}
	if more > 0 {
		s.Rows = append(s.Rows, layout.Toned(layout.Faint, t.row("… "+plain.FormatCount(more)+" more", &rest)))
	}
	all := b.Sum()
	s.Total = layout.Toned(layout.Strong, t.row("= requested", &all))
	return s
}

func innermost(g *attribution.Group) string {
	if len(g.Frames) == 0 {
		return "(no stack)"
	}
	return terms.Named(g.Frames[0], "(no name)")
}

// callers are rows for the callers of the innermost frame, in the first of the columns.
func callers(g *attribution.Group, shown, columns int) [][]layout.Cell {
	var rows [][]layout.Cell
	line := func(text string) {
		cells := make([]layout.Cell, columns)
		cells[0].Text = "  " + text
		rows = append(rows, layout.Toned(layout.Faint, cells))
	}
	for i := 1; i < len(g.Frames); i++ {
		if left := len(g.Frames) - i; i >= shown && left > 1 {
			line("… " + plain.Counted(int64(left), "more frame"))
			break
		}
		line(plain.Shorten(g.Frames[i], terms.NameWidth-2))
	}
	return rows
}

// jsonLive is live allocations at an instant; null where the recording has nothing of their origins.
type jsonLive struct {
	Categories jsonBreakdown `json:"categories"`
	Phases     jsonBreakdown `json:"phases"`
	Modules    jsonBreakdown `json:"modules"`
	Kinds      jsonBreakdown `json:"module_kinds"`
	Stacks     jsonBreakdown `json:"stacks"`
}

// jsonBreakdown has every block once, in its groups or in the rest.
type jsonBreakdown struct {
	Groups     []jsonGroup `json:"groups"`
	RestGroups int64       `json:"rest_groups"`
	Rest       jsonGroup   `json:"rest"`
}

type jsonGroup struct {
	Name      string   `json:"name,omitempty"`
	Frames    []string `json:"frames,omitempty"`
	Blocks    int64    `json:"blocks"`
	Requested int64    `json:"requested"`
	Provided  *int64   `json:"provided"`
}

func newJSONLive(chunks *analysis.Chunks, held *attribution.Result) *jsonLive {
	if held == nil || !held.Known {
		return nil
	}
	return &jsonLive{
		Categories: newJSONBreakdown(chunks, &held.Categories), Phases: newJSONBreakdown(chunks, &held.Phases),
		Modules: newJSONBreakdown(chunks, &held.Modules), Kinds: newJSONBreakdown(chunks, &held.Kinds), Stacks: newJSONBreakdown(chunks, &held.Stacks),
	}
}

func newJSONBreakdown(chunks *analysis.Chunks, b *attribution.Breakdown) jsonBreakdown {
	j := jsonBreakdown{Groups: []jsonGroup{}, RestGroups: b.RestGroups, Rest: newJSONGroup(chunks, &b.Rest)}
	for i := range b.Groups {
		j.Groups = append(j.Groups, newJSONGroup(chunks, &b.Groups[i]))
	}
	return j
}

func newJSONGroup(chunks *analysis.Chunks, g *attribution.Group) jsonGroup {
	return jsonGroup{g.Name, g.Frames, g.Blocks, g.Requested, plain.Known(chunks.Known(g.Provided))}
}
