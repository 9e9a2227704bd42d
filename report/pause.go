package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
)

// resultWidth is the most columns of a result. failuresShown longer results are listed below the table.
const resultWidth, failuresShown = 40, 4

// pauseSections list the pauses and resumes: a row for each tag of a call.
func pauseSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Transitions) == 0 {
		return nil
	}
	s := layout.Section{
		Title:   "Pauses and resumes",
		Columns: []layout.Column{layout.Numbers("time"), layout.Words("call"), layout.Words("tag"), layout.Numbers("memory"), layout.Numbers("reserved"), layout.Numbers("copied"), layout.Numbers("took"), layout.Numbers("copied/s"), layout.Words("result")},
	}
	var failures []layout.Cell
	last := ""
	for _, t := range byCall(d.Transitions) {
		s.Rows = append(s.Rows, transitionRow(t))
		// All tags of one call fail with the same text: show it once.
		if t.Failed != last && plain.Width(t.Failed) > resultWidth && len(failures) < failuresShown {
			failures = append(failures, layout.Cell{Text: "at " + plain.FormatDuration(t.Time) + ": " + plain.Shorten(t.Failed, 400), Tone: layout.Failed})
		}
		last = t.Failed
	}
	s.Elide(16, 8)
	if d.Peak.Paused > 0 || d.Final.Paused > 0 {
		s.Before = layout.Note(fmt.Sprintf("paused at the peak: %s; at the end: %s", plain.FormatSize(d.Peak.Paused), plain.FormatSize(d.Final.Paused)))
	}
	s.After = layout.Row(
		"memory: bytes that the call unmapped or mapped; reserved: before a pause, after a resume;",
		"copied: bytes kept in host memory; paused memory is in no other number of this report",
	)
	s.After = append(s.After, failures...)
	return []layout.Section{s}
}

func transitionRow(t pause.Transition) []layout.Cell {
	what, result, rate, peak := "pause", "done", "–", t.Reserved+t.Bytes
	if t.Resume {
		what, peak = "resume", t.Reserved
	}
	if t.Copied > 0 && t.Duration > 0 && t.Failed == "" {
		rate = plain.FormatSize(int64(float64(t.Copied) / float64(t.Duration) * 1e9))
	}
	if t.Failed != "" {
		result = plain.Shorten(t.Failed, resultWidth)
	}
	line := layout.Row(plain.FormatDuration(t.Time), what, plain.Shorten(t.Tag, 24), plain.FormatSize(t.Bytes), plain.FormatSize(peak), plain.FormatSize(t.Copied), plain.FormatDuration(t.Duration), rate, result)
	if t.Failed != "" {
		line[len(line)-1].Tone = layout.Failed
	}
	return line
}

// tagColors are the colours of the first tags. Untagged memory is grey; further tags are greys, each
// darker than the one before.
var tagColors = []color.NRGBA{
	figure.RequestedColor, figure.InternalColor, {0x00, 0x9e, 0x73, 0xff}, figure.ExternalColor, figure.PendingColor, {0x56, 0xb4, 0xe9, 0xff}, {0xf0, 0xe4, 0x42, 0xff},
}

func tagColor(tag int) color.NRGBA {
	if tag < len(tagColors) {
		return tagColors[tag]
	}
	level := uint8(0xa0 - 0x10*((tag-len(tagColors))%6))
	return color.NRGBA{level, level, level, 0xff}
}

// pauseFigures stack the mapped memory of each tag over time.
func pauseFigures(_ *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	if d.Pauses == nil {
		return nil
	}
	return []figure.Figure{pauseFigure(d)}
}

func pauseFigure(d *analysis.DeviceResult) figure.Figure {
	f := figure.Figure{Name: "pause", Title: "mapped memory by tag"}
	pauses := d.Pauses
	if len(pauses.Series) == 0 || d.MaxR == 0 {
		f.Subtitle = "no memory was mapped on this device"
		f.Body = figure.Message("nothing to draw: no memory was mapped on this device")
		return f
	}
	f.Subtitle = "maximum of each tag:"
	bands := resident{points: pauses.Series, tags: len(pauses.Cycle.Tags)}
	f.Legend = append(f.Legend, figure.Swatch(figure.ReserveColor, "untagged"))
	for i, t := range pauses.Cycle.Tags {
		f.Subtitle += fmt.Sprintf(" %s %s,", t.Name, plain.FormatSize(t.Bytes))
		f.Legend = append(f.Legend, figure.Swatch(tagColor(i), plain.Shorten(t.Name, 32)))
	}
	f.Subtitle = f.Subtitle[:len(f.Subtitle)-1]
	f.Legend = append(f.Legend, figure.Stroke(draw.LineStyle{Color: figure.ReservedColor, Width: 2.25}, "reserved"))
	var plans []planLine
	if len(pauses.Stages) > 0 && pauses.OnUse.Peak < pauses.Recorded.Peak {
		plans = append(plans, planLine{pauses.OnUse.Peak})
		f.Legend = append(f.Legend, figure.Stroke(planStyle(), "peak if resumed on use"))
	}
	marks := figure.NewTimeMarks(d)
	f.Legend = append(f.Legend, marks.Legend()...)
	f.Body = func(c draw.Canvas) {
		p := figure.NewAxes()
		figure.TimeAxis(&p.X, pauses.Series[0].Start, max(pauses.Series[len(pauses.Series)-1].End, figure.CourseEnd(d.Series.Points)))
		figure.ByteAxis(&p.Y, d.MaxR, 1.16*float64(d.MaxR))
		p.Add(figure.Grid{}, bands, marks)
		for _, line := range plans {
			p.Add(line)
		}
		figure.DrawTimePlot(c, p)
	}
	return f
}

// resident draws each span of time at its greatest sum, and up to the next one the values at its end.
type resident struct {
	points []pause.Residency
	tags   int
}

// Plot draws each sum down to zero, the greatest first: overlapping areas leave no seam.
func (a resident) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for n := a.tags; n >= 0; n-- {
		sum := func(m pause.Mapped) vg.Length {
			bytes := m.Base
			for _, b := range m.Tags[:min(n, len(m.Tags))] {
				bytes += b
			}
			return y(float64(bytes))
		}
		var edge []vg.Point
		for i, r := range a.points {
			from := x(float64(r.Start))
			to, next := max(x(float64(r.End)), from+figure.Pixel), c.Max.X
			if i+1 < len(a.points) {
				next = x(float64(a.points[i+1].Start))
			}
			to = min(to, next)
			edge = figure.AppendStep(edge, from, to, sum(r.At))
			edge = figure.AppendStep(edge, to, next, sum(r.Last))
		}
		clr := figure.ReserveColor
		if n > 0 {
			clr = tagColor(n - 1)
		}
		figure.FillBelow(c, clr, edge)
		if n == a.tags {
			c.StrokeLines(draw.LineStyle{Color: figure.ReservedColor, Width: 2}, edge)
		}
	}
}

// planLine draws the peak of a resume plan, in bytes.
type planLine struct{ bytes int64 }

func planStyle() draw.LineStyle {
	return draw.LineStyle{Color: figure.MarkColor, Width: 1.25, Dashes: []vg.Length{6, 3}}
}

func (l planLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	level := y(float64(l.bytes))
	c.StrokeLine2(planStyle(), c.Min.X, level, c.Max.X, level)
}

// jsonTransition is a pause or a resume of one arena.
type jsonTransition struct {
	Seq        int64  `json:"seq"`
	TimeNS     int64  `json:"time_ns"`
	DurationNS int64  `json:"duration_ns"`
	Arena      int32  `json:"arena"`
	Tag        string `json:"tag"`
	Resume     bool   `json:"resume"`
	Bytes      int64  `json:"bytes"`
	Copied     int64  `json:"copied"`
	Reserved   int64  `json:"reserved"` // on the device, afterwards
	Failed     string `json:"failed"`
}

// jsonPauses are there only if the job paused memory.
type jsonPauses struct {
	Transitions []jsonTransition `json:"transitions,omitempty"`
}

func newJSONPauses(d *analysis.DeviceResult) jsonPauses {
	var j jsonPauses
	for _, t := range d.Transitions {
		j.Transitions = append(j.Transitions, jsonTransition{t.Seq, t.Time, t.Duration, t.Arena, t.Tag, t.Resume, t.Bytes, t.Copied, t.Reserved, t.Failed})
	}
	return j
}

// sameCall is the most by which the starts of two transitions of one call differ, in nanoseconds: each
// is computed from an end and a duration.
const sameCall = 10_000

// byCall joins the transitions that one call of pause or resume made in the arenas of a tag.
func byCall(transitions []pause.Transition) []pause.Transition {
	var calls []pause.Transition
	for _, t := range transitions {
		if n := len(calls); n > 0 {
			last := &calls[n-1]
			apart := (t.Time - t.Duration) - (last.Time - last.Duration)
			if last.Tag == t.Tag && last.Resume == t.Resume && last.Failed == t.Failed && apart < sameCall {
				last.Bytes += t.Bytes
				last.Copied += t.Copied
				last.Time, last.Duration = t.Time, max(last.Duration, t.Duration)
				last.Reserved = t.Reserved
				continue
			}
		}
		calls = append(calls, t)
	}
	return calls
}

// pagePause is a time for which the memory of a tag was unmapped.
type pagePause struct {
	Start int64  `json:"start"`
	End   int64  `json:"end"` // -1 if the recording ends first
	Tag   string `json:"tag"`
	Bytes int64  `json:"bytes"`
}

// pausesShown is the most pauses that the timeline of a page marks.
const pausesShown = 1024

// pagePauses pairs each pause with its resume, for the timeline of a page.
func pagePauses(d *analysis.DeviceResult) any {
	pauses := []pagePause{}
	open := map[string]int{} // by tag: index of the pause without a resume
	for _, t := range byCall(d.Transitions) {
		at, paused := open[t.Tag]
		switch {
		case t.Failed != "" || len(pauses) == pausesShown:
		case !t.Resume && !paused:
			open[t.Tag] = len(pauses)
			pauses = append(pauses, pagePause{t.Time, -1, plain.Shorten(t.Tag, 40), t.Bytes})
		case t.Resume && paused:
			pauses[at].End = t.Time
			delete(open, t.Tag)
		}
	}
	return pauses
}
