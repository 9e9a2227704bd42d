package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
)

// holdersShown is how many groups of live blocks a table lists.
const holdersShown = 12

// contextWidth is the room for a context in a table of 100 columns.
const contextWidth = 46

// contextText is a context as a field of a table; "" stands for code that told none.
func contextText(context string, width int) string {
	if context == "" {
		return "(no context)"
	}
	return shorten(context, width)
}

// holderSections say who held the memory at the peak: by context, and by size of the request.
func holderSections(d *analysis.DeviceResult) []section {
	var sections []section
	if len(d.TopContexts) > 0 && len(d.Held.Depths) == 0 { // else there is a table by module
		sections = append(sections, holderTable("Holders at the peak, by context", d.TopContexts, d.Peak))
	}
	if len(d.TopSizes) > 0 {
		s := section{
			title:   "Holders at the peak, by size",
			columns: []column{numbers("request"), numbers("blocks"), numbers("requested"), numbers("provided"), numbers("share of R")},
		}
		for _, h := range d.TopSizes {
			s.rows = append(s.rows, row(FormatSize(h.Size), formatCount(h.Blocks), FormatSize(h.Requested), FormatSize(h.Provided), FormatPercent(ratio(h.Provided, d.Peak.R))))
		}
		s.elide(holdersShown, 0)
		sections = append(sections, s)
	}
	return sections
}

// holderTable lists groups by context; at gives what the shares are of.
func holderTable(title string, holders []analysis.Holder, at analysis.Instant) section {
	s := section{
		title:   title,
		columns: []column{words("context"), numbers("blocks"), numbers("requested"), numbers("provided"), numbers("share of R")},
	}
	for _, h := range holders {
		s.rows = append(s.rows, row(contextText(h.Context, contextWidth), formatCount(h.Blocks), FormatSize(h.Requested), FormatSize(h.Provided), FormatPercent(ratio(h.Provided, at.R))))
	}
	s.elide(holdersShown, 0)
	return s
}

// leakSection says whether what lives at iteration ends keeps rising, and who holds it.
func leakSection(d *analysis.DeviceResult) section {
	s := section{title: "Leaks"}
	leak := d.Leak
	if !leak.Valid {
		s.before = toned(faint, note("too few iterations to tell a trend (four are needed)"))
		return s
	}
	slope := formatSlope(leak.Slope)
	if !leak.Rising {
		s.before = note("none: what is live at iteration ends does not keep rising (" + slope + ")")
		return s
	}
	s.before = toned(warned, note("live bytes at iteration ends keep rising: "+slope))
	if len(leak.Holders) == 0 {
		return s
	}
	holders := holderTable("", leak.Holders, d.Final)
	s.columns, s.rows = holders.columns, holders.rows
	s.after = note("blocks made after the first iteration and never freed; shares of the final reserved bytes")
	return s
}

func formatSlope(slope float64) string {
	switch {
	case math.IsNaN(slope) || math.IsInf(slope, 0):
		return absent
	case math.Abs(slope) < 0.5:
		return "0 B an iteration"
	case slope > 0:
		return "+" + FormatSize(int64(math.Round(slope))) + " an iteration"
	}
	return FormatSize(int64(math.Round(slope))) + " an iteration"
}

// externalSection tells of memory other libraries took beside the arenas.
func externalSection(d *analysis.DeviceResult) section {
	s := section{title: "Other libraries"}
	e := d.External
	if e.Calls == 0 && e.Peak == 0 {
		s.before = toned(faint, note("no memory taken through the CUDA API beside the arenas"))
		return s
	}
	s.before = note(fmt.Sprintf("%s at most, %s at the end, through the CUDA API (%s)",
		FormatSize(e.Peak), FormatSize(e.Live), plural(e.Calls, "call")))
	return s
}
