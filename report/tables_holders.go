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
		sections = append(sections, holderTable("Holders at the peak, by context", d.TopContexts, d.Peak.R))
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

// holderTable lists groups by context, with what they provide as shares of whole.
func holderTable(title string, holders []analysis.Holder, whole int64) section {
	s := section{
		title:   title,
		columns: []column{words("context"), numbers("blocks"), numbers("requested"), numbers("provided"), numbers("share of R")},
	}
	for _, h := range holders {
		s.rows = append(s.rows, row(contextText(h.Context, contextWidth), formatCount(h.Blocks), FormatSize(h.Requested), FormatSize(h.Provided), FormatPercent(ratio(h.Provided, whole))))
	}
	s.elide(holdersShown, 0)
	return s
}

// leakSection says whether held bytes keep rising, and who holds them.
func leakSection(d *analysis.DeviceResult) section {
	s := section{title: "Leaks"}
	leak := &d.Leak
	trend, per := leak.Trend()
	if !trend.Valid {
		s.before = toned(faint, note("too little to tell a trend: six iterations are needed, or six requests, or more time"))
		return s
	}
	at := map[string]string{
		"iteration": "at iteration ends",
		"request":   "at the ends of requests (" + leakRequest(leak) + ")",
		"second":    "over time",
	}[per]
	slope := formatSlope(trend.Slope) + " " + articled(per)
	if per == "request" && leak.Seconds.Valid {
		slope += ", " + formatSlope(leak.Seconds.Slope) + " a second"
	}
	if !trend.Rising {
		s.before = note(fmt.Sprintf("none: held bytes do not keep rising %s (%s)", at, slope))
		return s
	}
	s.before = toned(warned, note(fmt.Sprintf("held bytes keep rising %s: %s", at, slope)))
	if len(leak.Holders) == 0 {
		return s
	}
	holders := holderTable("", leak.Holders, leak.Provided)
	holders.columns[len(holders.columns)-1].name = "share"
	s.columns, s.rows = holders.columns, holders.rows
	after := map[string]string{
		"iteration": "blocks made after the first iteration, and live at the end of the last",
		"request":   "blocks made after the first request, and live at the end of the last",
		"second":    "blocks made after the first quarter of the time, and live at the end",
	}[per]
	s.after = append(note(after), note("shares of what all of these provide, "+FormatSize(leak.Provided))...)
	return s
}

// leakRequest says what a request is.
func leakRequest(l *analysis.Leak) string {
	if l.Request == analysis.KVRequests {
		return "sequences in a KV cache"
	}
	return "phase " + shorten(l.Request, 28)
}

func articled(unit string) string {
	if unit == "iteration" {
		return "an " + unit
	}
	return "a " + unit
}

// formatSlope is a slope without what it is by.
func formatSlope(slope float64) string {
	switch {
	case math.IsNaN(slope) || math.IsInf(slope, 0):
		return absent
	case math.Abs(slope) < 0.5:
		return "0 B"
	case slope > 0:
		return "+" + FormatSize(int64(math.Round(slope)))
	}
	return FormatSize(int64(math.Round(slope)))
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
