package recording

import (
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/trace/dataset"
)

// exactEvents is how many events of a process are kept exactly, where a recording may have so many: all of a recording
// that has no more, else each process has the same share.
func exactEvents(run *dataset.Run, most int64) int64 {
	total := eventsOf(run)
	if total <= most || len(run.Processes) == 0 {
		return most
	}
	return most / int64(len(run.Processes))
}

// eventsOf is how many events a recording has.
func eventsOf(run *dataset.Run) (total int64) {
	for _, p := range run.Processes {
		total += p.Events
	}
	return total
}

// exactSpans are the spans of a process of which a page has so many events at most: all of them, or of each device the
// first and the last iteration, that of the peak, and the worst, which has the most requested bytes. Without iterations
// these are the events around the peak, the first and the last ones.
func exactSpans(result *analysis.Result, first, most int64) []keyframes.Span {
	var spans []keyframes.Span
	switch {
	case len(result.Devices) == 0 || most == 0:
		return nil
	case result.Events <= most:
		return []keyframes.Span{{To: math.MaxInt64}}
	}
	each := most / int64(4*len(result.Devices))
	for i := range result.Devices {
		d := &result.Devices[i]
		around := func(from, to, center int64) {
			if to-from > each {
				from = max(from, min(center-each/2, to-each))
				to = from + each
			}
			spans = append(spans, keyframes.Span{From: from, To: to})
		}
		if len(d.Iterations) == 0 {
			around(first, result.LastSeq+1, first)
			around(first, result.LastSeq+1, d.Peak.Seq)
			around(first, result.LastSeq+1, result.LastSeq)
			continue
		}
		worst := 0
		for j := range d.Iterations {
			it := &d.Iterations[j]
			if it.StartSeq <= d.Peak.Seq && d.Peak.Seq <= it.EndSeq {
				around(it.StartSeq, it.EndSeq+1, d.Peak.Seq)
			}
			if it.PeakT > d.Iterations[worst].PeakT {
				worst = j
			}
		}
		for _, j := range []int{0, worst, len(d.Iterations) - 1} {
			it := &d.Iterations[j]
			around(it.StartSeq, it.EndSeq+1, it.StartSeq)
		}
	}
	return spans
}
