package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
)

// part is one term of the identity R = T + internal + pending + reserve + external.
type part struct {
	name    string // "internal: slack"
	meaning string
	bytes   func(analysis.Instant) int64
	tone    tone
}

// parts are the terms in the order of the identity; they add up to R.
var parts = []part{
	{"requested", "asked for by live allocations", func(i analysis.Instant) int64 { return i.T }, plain},
	{"internal: rounding", "requests rounded up to 256 B", func(i analysis.Instant) int64 { return i.Rounding }, plain},
	{"internal: slack", "chunks larger than the rounded request", func(i analysis.Instant) int64 { return i.Slack }, plain},
	{"pending", "freed, waiting for other streams", func(i analysis.Instant) int64 { return i.Pending }, plain},
	{"reserve", "mapped ahead of need, never handed out", func(i analysis.Instant) int64 { return i.Reserve }, plain},
	{"external", "holes: handed out before, free now", func(i analysis.Instant) int64 { return i.External }, warned},
}

// splitSection shows where each byte reserved at the peak instant was.
func splitSection(d *analysis.DeviceResult) section {
	s := section{
		title:   "At the peak instant",
		before:  note(instantLine(d, d.Peak)),
		columns: []column{words("part"), numbers("bytes"), numbers("share"), words("what it is")},
	}
	for _, p := range splitParts(d) {
		bytes := p.bytes(d.Peak)
		line := row(p.name, FormatSize(bytes), FormatPercent(ratio(bytes, d.Peak.R)), p.meaning)
		if bytes == 0 {
			toned(faint, line)
		} else if p.tone != plain {
			line[2].tone = p.tone
		}
		s.rows = append(s.rows, line)
	}
	s.total = toned(strong, row("= reserved", FormatSize(d.Peak.R), FormatPercent(ratio(d.Peak.R, d.Peak.R)), "physical memory mapped"))
	return s
}

// instantLine says when an instant was.
func instantLine(d *analysis.DeviceResult, at analysis.Instant) string {
	line := fmt.Sprintf("event %s, %s after the start, %s live",
		formatCount(at.Seq), FormatDuration(at.Time), plural(at.Live, "allocation"))
	if number, ok := iterationNumber(d, at.Iteration); ok {
		line += fmt.Sprintf(", iteration %d", number)
	}
	return line
}

// iterationNumber is the number of the iteration with an index, if there is one: events after the
// last mark belong to none.
func iterationNumber(d *analysis.DeviceResult, index int) (int64, bool) {
	return d.IterationNumber(index)
}

// iterationText is iterationNumber as a field of a table.
func iterationText(d *analysis.DeviceResult, index int) string {
	if number, ok := iterationNumber(d, index); ok {
		return formatCount(number)
	}
	return absent
}

// peaksSection shows the greatest values, each at its own moment, and the shares the literature
// and the frameworks derive from them.
func peaksSection(d *analysis.DeviceResult) section {
	return section{
		title:   "Peaks",
		columns: []column{words("each at its own moment"), numbers("greatest"), numbers("at the end"), words("waste measure"), numbers("share")},
		rows: [][]cell{
			row("requested (T)", FormatSize(d.MaxT), FormatSize(d.Final.T), "1 − max T / max R", FormatPercent(1-ratio(d.MaxT, d.MaxR))),
			row("provided (C)", formatLimit(d.MaxC), formatLimit(d.Final.C), "1 − max C / max R", FormatPercent(1-knownRatio(d.MaxC, d.MaxR))),
			row("reserved (R)", FormatSize(d.MaxR), FormatSize(d.Final.R), "(F − L) / F at the peak", FormatPercent(peakFragmentation(d))),
		},
		after: note("F: free bytes (reserved, in no chunk that is handed out); L: the largest free chunk"),
	}
}

// peakFragmentation is the frameworks' measure at the peak instant, NaN where it is not known.
func peakFragmentation(d *analysis.DeviceResult) float64 {
	if value, ok := d.Fragmentation(); ok {
		return value
	}
	return math.NaN()
}
