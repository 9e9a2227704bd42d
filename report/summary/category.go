package summary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Category is the requested bytes of a category at the peak, with the module and the line of code that most of them come from.
type Category struct {
	Category string  `json:"category"`
	Bytes    int64   `json:"bytes"`
	Module   *string `json:"module"`
	Line     *string `json:"line"`

	most  int64  // of Bytes, those of the module, or of the line where there is no module
	phase string // in which most of Bytes were allocated
}

// categoriesOf are the categories that have bytes, the greatest first. Their sum is what was requested.
func categoriesOf(held *attribution.Result) []Category {
	out := []Category{}
	for _, u := range held.Uses {
		c := Category{Category: u.Category.String(), Bytes: u.Requested, Module: plain.NotEmpty(u.Module), Line: plain.NotEmpty(u.Line), most: u.ModuleBytes, phase: u.Phase}
		if u.Module == "" {
			c.most = u.LineBytes
		}
		out = append(out, c)
	}
	return out
}

// Beside is memory of the device beside what was requested.
type Beside struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`

	of string // what it consists of
}

// besideOf are the parts of the device's used memory at the peak that no request of the process asked for. Those that are not
// known are not there.
func besideOf(d *analysis.DeviceResult) []Beside {
	h := &d.Holdings.Peak
	b := balance(d)
	if b != nil {
		h = &b.Holding
	}
	if accounting.Unseen(h.Unknown) { // nothing tells apart what is in use beside torch's memory
		if b == nil || b.UsedUnknown != "" {
			return []Beside{}
		}
		return []Beside{{"all else in use", b.Rest, "driver, other libraries, other processes"}}
	}
	out := []Beside{}
	if overhead := h.Overhead(); overhead > 0 || h.Unknown == 0 {
		of := ""
		if overhead > 0 {
			of = fmt.Sprintf("context %s, code %s", plain.FormatSize(h.Context), plain.FormatSize(h.Modules+h.Loads))
		}
		if h.Graphs > 0 {
			of += ", graphs " + plain.FormatSize(h.Graphs)
		}
		out = append(out, Beside{"context and code", overhead, of})
	}
	var names []string
	for _, l := range h.Libraries {
		if len(names) == 3 {
			names = append(names, "…")
			break
		}
		names = append(names, plain.Shorten(l.Name, 30))
	}
	out = append(out, Beside{"other libraries", h.Other() + h.Pools, strings.Join(slices.DeleteFunc(names, func(n string) bool { return n == "" }), ", ")})
	if d.Account != nil && d.Account.Missing == "" {
		out = append(out, Beside{"other processes", d.Account.UsedBeforeJob, "in use before the job began"})
	}
	if b != nil && b.UsedUnknown == "" && b.UnexplainedUnknown == "" {
		out = append(out, Beside{"unexplained", b.Unexplained, "in use, in no term"})
	}
	return out
}

// Now says where requested bytes are in a process that goes on, for a terminal of so many columns.
func Now(held *attribution.Result, width int) layout.Section {
	categories, requested := categoriesOf(held), int64(0)
	for i := range categories {
		requested += categories[i].Bytes
	}
	return categorySection("Where the memory is now", categories, nil, requested, nil, width)
}

// peakSection says where the memory went at the peak.
func (s *Screen) peakSection(width int) layout.Section {
	at := plain.FormatDuration(s.device.Peak.Time)
	if number, ok := s.device.IterationNumber(s.device.Peak.Iteration); ok {
		at = fmt.Sprintf("iteration %s, %s", plain.FormatCount(number), at)
	}
	return categorySection(fmt.Sprintf("Where the memory went at the peak (%s)", at), s.Categories, s.Beside, s.Requested, s.Band, width)
}

func categorySection(title string, categories []Category, beside []Beside, requested int64, band *plain.Band, width int) layout.Section {
	out := layout.Section{
		Title: title, Open: true,
		Columns: []layout.Column{layout.Words("category"), layout.Numbers("bytes"), layout.Numbers("share"), layout.Words("most of it in")},
	}
	room := max(width, 80) - len("+ context and code") - len("9.99 GiB") - len("100.0%") - 3*2
	if width == 0 {
		room = placeColumns
	}
	for i := range categories {
		c := &categories[i]
		row := layout.Row(c.Category, plain.FormatSize(c.Bytes), plain.FormatPercent(plain.Ratio(c.Bytes, requested)), c.where(room))
		row[0].Link = "allocations/" + c.Category
		out.Rows = append(out.Rows, row)
	}
	out.Rows = append(out.Rows, layout.Toned(layout.Strong, layout.Row("requested", size(requested, band), plain.FormatPercent(plain.Ratio(requested, requested)), "")))
	for _, b := range beside {
		out.Rows = append(out.Rows, layout.Toned(layout.Faint, layout.Row("+ "+b.What, plain.FormatSize(b.Bytes), "", plain.Shorten(b.of, room))))
	}
	return out
}

// where names the module or line with most of the bytes, in at most so many columns, or else the phase.
func (c *Category) where(columns int) string {
	bytes := " " + plain.FormatSize(c.most)
	if c.most >= c.Bytes {
		bytes = ""
	}
	at := place(known(c.Module), known(c.Line), columns-len(bytes))
	switch {
	case at == "" && c.phase == "other":
		return ""
	case at == "":
		return "in " + plain.Shorten(c.phase, placeColumns)
	}
	return at + bytes
}

// placeColumns is the most columns of a module or a line.
const placeColumns = 44

func known(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
