package report

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// groupsShown is the most groups of live allocations that a table lists.
const groupsShown = 12

// contextWidth is the most columns of a context, in a table of 100 columns.
const contextWidth = 45

// allocationSections list the live allocations at the peak, by context and by size of the request.
func allocationSections(d *analysis.DeviceResult) []layout.Section {
	sections := sizeSections(d.AtPeak())
	if len(d.TopContexts) > 0 && !d.Held.ByModule { // else attributionSections have a table by module
		sections = append([]layout.Section{contextTable("Live allocations at the peak, by context", d.Chunks, d.TopContexts, d.Peak.R)}, sections...)
	}
	return layout.ShownAtPins(layout.Known("provided", sections)...)
}

// sizeSections list the live allocations of a moment by size of the request.
func sizeSections(m *analysis.DeviceMoment) []layout.Section {
	if len(m.TopSizes) == 0 {
		return nil
	}
	s := layout.Section{
		Title:   "Live allocations at the peak, by size",
		Columns: []layout.Column{layout.Numbers("request"), layout.Numbers("allocations"), layout.Numbers("requested"), layout.Numbers("provided"), layout.Numbers("of reserved")},
	}
	for _, h := range m.TopSizes {
		s.Rows = append(s.Rows, layout.Row(plain.FormatSize(h.Size), plain.FormatCount(h.Blocks), plain.FormatSize(h.Requested), plain.FormatKnown(m.Chunks.Known(h.Provided)), plain.FormatPercent(plain.Ratio(h.Provided, m.At.R))))
	}
	s.Elide(groupsShown, 0)
	return layout.Known("provided", []layout.Section{s})
}

// contextTable lists groups by context, with their chunks as shares of whole, in bytes.
func contextTable(title string, chunks *analysis.Chunks, groups []attribution.AllocationGroup, whole int64) layout.Section {
	s := layout.Section{
		Title:   title,
		Columns: []layout.Column{layout.Words("context"), layout.Numbers("allocations"), layout.Numbers("requested"), layout.Numbers("provided"), layout.Numbers("of reserved")},
	}
	for _, g := range groups {
		s.Rows = append(s.Rows, layout.Row(terms.Context(g.Context, contextWidth), plain.FormatCount(g.Blocks), plain.FormatSize(g.Requested), plain.FormatKnown(chunks.Known(g.Provided)), plain.FormatPercent(plain.Ratio(g.Provided, whole))))
	}
	s.Elide(groupsShown, 0)
	return s
}

func newJSONAllocationGroups(chunks *analysis.Chunks, groups []attribution.AllocationGroup) []jsonAllocationGroup {
	out := []jsonAllocationGroup{}
	for _, g := range groups {
		out = append(out, jsonAllocationGroup{g.Context, g.Size, g.Blocks, g.Requested, plain.Known(chunks.Known(g.Provided))})
	}
	return out
}

// jsonAllocationGroup is a group of live allocations, by context or by size.
type jsonAllocationGroup struct {
	Context   string `json:"context,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Blocks    int64  `json:"blocks"`
	Requested int64  `json:"requested"`
	Provided  *int64 `json:"provided"`
}
