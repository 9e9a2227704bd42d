package summary

import (
	"cmp"
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Leak says whether live bytes keep rising.
type Leak struct {
	Verdict string `json:"verdict"` // "none", "leak" or "too short"
	// BytesPerIteration is the rise, of a job without iterations by request or second.
	BytesPerIteration *int64  `json:"bytes_per_iteration"`
	Line              *string `json:"line"` // of code, that allocated most of what leaks
	Module            *string `json:"module"`

	per string
}

func leakOf(d *analysis.DeviceResult) Leak {
	l := Leak{Verdict: string(cmp.Or(d.Leak.Verdict, iterations.TooShort)), Line: plain.NotEmpty(d.Leak.Line), Module: plain.NotEmpty(d.Leak.Module), per: d.Leak.Per}
	if d.Leak.Verdict == iterations.Leaks || d.Leak.Verdict == iterations.NoLeak {
		rise := int64(math.Round(d.Leak.Slope))
		l.BytesPerIteration = &rise
	}
	return l
}

// leakLine is the verdict in one line.
func (s *Screen) leakLine() layout.Cell {
	l := s.Leak
	switch l.Verdict {
	case "too short":
		return layout.Cell{Text: "Leak: too short a recording to tell."}
	case "none":
		return layout.Cell{Text: "No leak."}
	}
	text := fmt.Sprintf("Leak: +%s per %s", plain.FormatSize(*l.BytesPerIteration), l.per)
	if at := place(known(l.Line), known(l.Module), placeColumns); at != "" {
		text += ", most of it from " + at
	}
	return layout.Cell{Text: text + ".", Tone: layout.Warned, Link: "leaks"}
}

// failureLine says which request failed, and what would have served it.
func (s *Screen) failureLine() layout.Cell {
	d := s.device
	if d.OOMCount == 0 {
		return layout.Cell{Text: "No failed request."}
	}
	text := plain.Counted(d.OOMCount, "request") + " failed"
	if len(d.OOMs) > 0 {
		o := &d.OOMs[0]
		if d.OOMCount > 1 {
			text += ", the first"
		}
		text += fmt.Sprintf(" of %s at event %s", plain.FormatSize(o.Request), plain.FormatCount(o.Seq))
		if o.Origin != "" {
			text += ", for " + plain.Shorten(o.Origin, placeColumns)
		}
		text += ": " + Change(d, o)
	}
	return layout.Cell{Text: text + ".", Tone: layout.Failed, Link: "ooms"}
}

// endSection has the verdicts on leaks and failures, and two commands that say more.
func (s *Screen) endSection(width int) layout.Section {
	var out layout.Section
	lines := []layout.Cell{s.leakLine(), s.failureLine()}
	if s.Leak.Verdict == "none" && s.device.OOMCount == 0 {
		lines = layout.Note(lines[0].Text + " " + lines[1].Text)
	}
	for _, line := range lines {
		for _, text := range broken(line.Text, width) {
			out.Before = append(out.Before, layout.Cell{Text: text, Tone: line.Tone, Link: line.Link})
		}
	}
	next, more := "memprof report --html "+pathOf(s.result), "memprof fit "+pathOf(s.result)
	switch {
	case s.device.OOMCount > 0:
		next = "memprof report --section failures " + pathOf(s.result)
	case s.Leak.Verdict == "leak":
		next = "memprof report --section leaks " + pathOf(s.result)
	}
	out.After = layout.Row("Next: "+next, "      "+more)
	return out
}
