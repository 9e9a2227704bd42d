package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/plain"
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
