package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/terms"
	"github.com/memprof/memprof/report/units"
)

// oomSections list the requests that failed, and what was live when the first of them did.
func oomSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.OOMs) == 0 {
		return nil
	}
	s := layout.Section{
		Title:  "Out of memory",
		Listed: true,
		Before: layout.Toned(layout.Failed, layout.Note(fmt.Sprintf("%s failed", units.Counted(int64(len(d.OOMs)), "request")))),
		Columns: []layout.Column{
			layout.Numbers("time"), layout.Numbers("request"), layout.Numbers("free"), layout.Numbers("largest free"), layout.Numbers("reserved"), layout.Words("verdict"), layout.Words("context"),
		},
	}
	for _, o := range d.OOMs {
		line := layout.Row(units.FormatDuration(o.Time), units.FormatKnown(o.Request), units.FormatKnown(o.Free), units.FormatKnown(o.LargestFree),
			units.FormatSize(o.At.R), terms.Verdict(o.Verdict), terms.Context(o.Origin, 24))
		line[5].Tone = layout.Failed
		s.Rows = append(s.Rows, line)
	}
	s.Elide(8, 4)
	s.After = verdictNotes(d.OOMs)
	return append([]layout.Section{s}, oomTables(d)...)
}

// verdictNotes explain the verdicts that occur.
func verdictNotes(ooms []analysis.OOM) []layout.Cell {
	has := make(map[analysis.Verdict]bool)
	for _, o := range ooms {
		has[o.Verdict] = true
	}
	var notes []layout.Cell
	if has[analysis.Fragmentation] {
		notes = append(notes, layout.Note(terms.FragmentationMeans)...)
	}
	if has[analysis.Capacity] {
		notes = append(notes, layout.Note("capacity: fewer bytes were free than requested")...)
	}
	return notes
}

// How many failed requests have a table of live allocations, and how many lines it has.
const (
	oomTablesShown  = 3
	oomModulesShown = 6
	oomStacksShown  = 3
	oomFramesShown  = 3
)

// oomNameWidth is the most columns of a name in such a table.
const oomNameWidth = 44

// oomTables list the live allocations when a request failed, for the first of them.
func oomTables(d *analysis.DeviceResult) []layout.Section {
	var sections []layout.Section
	for i := range d.OOMs {
		if o := &d.OOMs[i]; o.Held != nil && o.At.Live > 0 && len(sections) < oomTablesShown {
			sections = append(sections, oomTable(d, o))
		}
	}
	return sections
}

// oomTable is a table of live allocations by category, phase, module and stack: each of these has all.
func oomTable(d *analysis.DeviceResult, o *analysis.OOM) layout.Section {
	s := layout.Section{
		Title:   "Live allocations when the request at event " + units.FormatCount(o.Seq) + " failed",
		Before:  append(layout.Note(units.FormatKnown(o.Request)+" requested by "+terms.Context(o.Origin, oomNameWidth)), layout.Note(terms.Instant(d, o.At))...),
		Columns: []layout.Column{layout.Words("by"), layout.Words("name"), layout.Numbers("allocations"), layout.Numbers("requested"), layout.Numbers("share of T")},
	}
	line := func(by, who string, g *analysis.Group) {
		s.Rows = append(s.Rows, layout.Row(by, who, units.FormatCount(g.Blocks), units.FormatSize(g.Requested), units.FormatPercent(units.Ratio(g.Requested, o.At.T))))
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
			for _, caller := range callers(g, oomFramesShown, 1) {
				s.Rows = append(s.Rows, layout.Toned(layout.Faint, layout.Row("", plain.Shorten(caller[0].Text, oomNameWidth), "", "", "")))
			}
			by = ""
		}
		if more > 0 {
			line("", "… "+units.FormatCount(more)+" more", &rest)
			layout.Toned(layout.Faint, s.Rows[len(s.Rows)-1])
		}
	}
	held := o.Held
	if held.Known {
		list("category", &held.Categories, len(held.Categories.Groups), func(g *analysis.Group) string { return g.Name })
	}
	if len(d.Phases) > 0 {
		list("phase", &held.Phases, phasesShown, func(g *analysis.Group) string { return plain.Shorten(terms.Phase(g.Name), oomNameWidth) })
	}
	if len(held.Kinds.Groups) > 1 || held.Kinds.Groups[0].Name != "" {
		list("module", &held.Kinds, oomModulesShown, func(g *analysis.Group) string { return plain.Shorten(terms.Module(g.Name), oomNameWidth) })
	}
	if hasFrames(&held.Stacks) {
		list("stack", &held.Stacks, oomStacksShown, func(g *analysis.Group) string { return plain.Shorten(innermost(g), oomNameWidth) })
	}
	all := held.Categories.Sum()
	s.Total = layout.Toned(layout.Strong, layout.Row("", "= requested", units.FormatCount(all.Blocks), units.FormatSize(all.Requested), units.FormatPercent(units.Ratio(all.Requested, o.At.T))))
	return s
}

// jsonOOMs are the requests that failed.
type jsonOOMs struct {
	OOMs []jsonOOM `json:"ooms"`
}

// jsonOOM is a failed request: free bytes and chunks of its arena, and what was live.
type jsonOOM struct {
	Seq         int64       `json:"seq"`
	TimeNS      int64       `json:"time_ns"`
	Arena       int32       `json:"arena"`
	Request     int64       `json:"request"`
	Free        *int64      `json:"free"`
	LargestFree *int64      `json:"largest_free"`
	TooSmall    *int64      `json:"too_small"`
	Stranded    *int64      `json:"stranded"`
	Verdict     string      `json:"verdict"`
	Context     string      `json:"context"`
	At          jsonInstant `json:"at"`
	Held        *jsonLive   `json:"held"`
}

func newJSONOOMs(d *analysis.DeviceResult) jsonOOMs {
	j := jsonOOMs{OOMs: []jsonOOM{}}
	for _, o := range d.OOMs {
		j.OOMs = append(j.OOMs, jsonOOM{
			Seq: o.Seq, TimeNS: o.Time, Arena: o.Arena, Request: o.Request, Free: plain.Known(o.Free), LargestFree: plain.Known(o.LargestFree),
			TooSmall: plain.Known(o.TooSmall), Stranded: plain.Known(o.Stranded),
			Verdict: string(o.Verdict), Context: o.Context, At: newJSONInstant(d, o.At), Held: newJSONLive(o.Held),
		})
	}
	return j
}
