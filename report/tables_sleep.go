package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
)

// sameCall is how far apart the starts of two transitions of one call can be said to be, ns.
const sameCall = 10_000

// sleepSections list what was paused and resumed: a line for each tag of a call.
func sleepSections(d *analysis.DeviceResult) []section {
	if len(d.Transitions) == 0 {
		return nil
	}
	s := section{
		title:   "Sleep and wake",
		columns: []column{numbers("time"), words("what"), words("tag"), numbers("memory"), numbers("copied"), numbers("took"), numbers("copied/s"), words("result")},
	}
	for _, t := range byCall(d.Transitions) {
		s.rows = append(s.rows, transitionRow(t))
	}
	s.elide(16, 8)
	if d.Peak.Paused > 0 || d.Final.Paused > 0 {
		s.before = note(fmt.Sprintf("asleep at the peak: %s; at the end: %s", FormatSize(d.Peak.Paused), FormatSize(d.Final.Paused)))
	}
	s.after = note("memory: physical bytes given back or taken; copied: content kept on the host; paused memory is in no other number")
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
				continue
			}
		}
		calls = append(calls, t)
	}
	return calls
}

func transitionRow(t analysis.Transition) []cell {
	what, result, rate := "pause", "done", "–"
	if t.Resume {
		what = "resume"
	}
	if t.Copied > 0 && t.Duration > 0 && t.Failed == "" {
		rate = FormatSize(int64(float64(t.Copied) / float64(t.Duration) * 1e9))
	}
	if t.Failed != "" {
		result = shorten(t.Failed, 40)
	}
	line := row(FormatDuration(t.Time), what, shorten(t.Tag, 24), FormatSize(t.Bytes), FormatSize(t.Copied), FormatDuration(t.Duration), rate, result)
	if t.Failed != "" {
		line[len(line)-1].tone = failed
	}
	return line
}
