package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
)

// sameCall is how far apart the starts of two transitions of one call can be said to be, ns.
const sameCall = 10_000

// Columns for the result of a transition, and how many texts that are longer are below the table.
const resultWidth, failuresShown = 40, 4

// sleepSections are about what was paused and resumed, and what could be.
func sleepSections(d *analysis.DeviceResult) []section {
	sections := transitionSections(d)
	if d.Sleep == nil {
		return sections
	}
	sections = append(sections, stageSections(d.Sleep)...)
	sections = append(sections, planSections(d)...)
	return append(sections, outsideSections(d.Sleep)...)
}

// transitionSections list the transitions: a line for each tag of a call.
func transitionSections(d *analysis.DeviceResult) []section {
	if len(d.Transitions) == 0 {
		return nil
	}
	s := section{
		title:   "Sleep and wake",
		columns: []column{numbers("time"), words("what"), words("tag"), numbers("memory"), numbers("peak"), numbers("copied"), numbers("took"), numbers("copied/s"), words("result")},
	}
	var failures []cell
	said := ""
	for _, t := range byCall(d.Transitions) {
		s.rows = append(s.rows, transitionRow(t))
		// The tags of one call fail with one text.
		if t.Failed != said && displayWidth(t.Failed) > resultWidth && len(failures) < failuresShown {
			failures = append(failures, cell{"at " + FormatDuration(t.Time) + ": " + shorten(t.Failed, 400), failed})
		}
		said = t.Failed
	}
	s.elide(16, 8)
	if d.Peak.Paused > 0 || d.Final.Paused > 0 {
		s.before = note(fmt.Sprintf("asleep at the peak: %s; at the end: %s", FormatSize(d.Peak.Paused), FormatSize(d.Final.Paused)))
	}
	s.after = row(
		"memory: physical bytes given back or taken; peak: reserved before a pause, after a resume",
		"copied: content kept on the host; paused memory is in no other number",
	)
	s.after = append(s.after, failures...)
	return []section{s}
}

// byCall sums up what one call did to the arenas of a tag.
func byCall(transitions []analysis.Transition) []analysis.Transition {
	var calls []analysis.Transition
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

func transitionRow(t analysis.Transition) []cell {
	what, result, rate, peak := "pause", "done", "–", t.Reserved+t.Bytes
	if t.Resume {
		what, peak = "resume", t.Reserved
	}
	if t.Copied > 0 && t.Duration > 0 && t.Failed == "" {
		rate = FormatSize(int64(float64(t.Copied) / float64(t.Duration) * 1e9))
	}
	if t.Failed != "" {
		result = shorten(t.Failed, resultWidth)
	}
	line := row(FormatDuration(t.Time), what, shorten(t.Tag, 24), FormatSize(t.Bytes), FormatSize(peak), FormatSize(t.Copied), FormatDuration(t.Duration), rate, result)
	if t.Failed != "" {
		line[len(line)-1].tone = failed
	}
	return line
}
