package report

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// splitSections say what each byte that was reserved at the peak was used for.
func splitSections(d *analysis.DeviceResult) []layout.Section {
	s := splitSection(d.AtPeak())
	s.Title, s.Before = "Reserved memory at the peak", layout.Note(terms.Instant(d, d.Peak))
	return layout.ShownAtPins(s)
}

func splitSection(m *analysis.DeviceMoment) layout.Section {
	s := layout.Section{
		Columns: []layout.Column{layout.Words("part"), layout.Numbers("bytes"), layout.Numbers("of reserved"), layout.Words("meaning")},
	}
	for _, p := range splitParts(m) {
		bytes := p.bytes(m.At)
		line := layout.Row(p.name, plain.FormatSize(bytes), plain.FormatPercent(plain.Ratio(bytes, m.At.R)), p.meaning)
		if bytes == 0 {
			layout.Toned(layout.Faint, line)
		} else if p.tone != layout.Plain {
			line[2].Tone = p.tone
		}
		s.Rows = append(s.Rows, line)
	}
	s.Total = layout.Toned(layout.Strong, layout.Row("= reserved", plain.FormatSize(m.At.R), plain.FormatPercent(plain.Ratio(m.At.R, m.At.R)), "physical memory mapped by the arenas"))
	return s
}

// part is one term of R = T + rounding + slack + pending + stranded + reserve + reusable + external.
type part struct {
	name    string // "internal: slack"
	meaning string
	bytes   func(ledger.Instant) int64
	tone    layout.Tone
}

// parts are all terms, in the order of the sum.
var parts = []part{
	{"requested", "bytes that live allocations asked for", func(i ledger.Instant) int64 { return i.T }, layout.Plain},
	{"internal: rounding", "requests rounded up to 256 B", func(i ledger.Instant) int64 { return i.Rounding }, layout.Plain},
	{"internal: slack", "chunks larger than the rounded request", func(i ledger.Instant) int64 { return i.Slack }, layout.Plain},
	{"pending", "freed; another stream may still use it", func(i ledger.Instant) int64 { return i.Pending }, layout.Plain},
	{"stranded", "free, in arenas the request cannot use", func(i ledger.Instant) int64 { return i.Stranded }, layout.Warned},
	{"reserve", "free, not handed out since it was mapped", func(i ledger.Instant) int64 { return i.Reserve }, layout.Plain},
	{"reusable", "free again, in the largest free chunk", func(i ledger.Instant) int64 { return i.Reusable }, layout.Plain},
	{"external", "free again, in chunks smaller than the largest", func(i ledger.Instant) int64 { return i.External }, layout.Warned},
}

// splitParts are the terms whose sum is R. Without chunks fewer are known.
func splitParts(m *analysis.DeviceMoment) []part {
	switch {
	case m.Chunks != nil:
		return parts
	case m.At.C < 0:
		return []part{parts[0], parts[3], {"not requested", "in chunks beyond the requests, or free: not known", unrequested, layout.Warned}}
	}
	return []part{
		parts[0],
		{"internal", "rounding and slack", ledger.Instant.Internal, layout.Plain},
		parts[3],
		{"free", "in chunks that are not known", ledger.Instant.Free, layout.Warned},
	}
}

// unrequested is what is reserved and neither requested nor pending.
func unrequested(i ledger.Instant) int64 { return i.R - i.T - i.Pending }
