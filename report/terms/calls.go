package terms

import "github.com/memprof/memprof/analysis"

// sameCall is the most by which the starts of two transitions of one call differ, in nanoseconds: each
// is computed from an end and a duration.
const sameCall = 10_000

// Calls joins the transitions that one call of pause or resume made in the arenas of a tag.
func Calls(transitions []analysis.Transition) []analysis.Transition {
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
