// Package iterations keeps the iterations of a device, in bounded memory, from marks or from the period of its
// requests ([Finder]), and finds leaks: a lasting rise of the bytes that a device holds at the ends of iterations,
// at the ends of requests and over time ([LeakTracker]). Held are the requested bytes of live allocations, T, and
// those of paused tags: a pause is no release and a resume no rise.
//
// It takes the numbers of a device after an event, and says from which event until which the blocks that leak were
// allocated.
package iterations

import "strconv"

// Iteration is the stretch of events that ends with an iteration mark. Events after the last mark
// form no iteration. Sizes are bytes.
type Iteration struct {
	Number              int64
	StartSeq, EndSeq    int64
	Start, End          int64 // times
	PeakT, PeakC, PeakR int64
	EndT, EndC          int64 // live at the mark
	EndPaused           int64 // requested by allocations of tags that are paused at the mark; not in EndT
	Allocs, AllocBytes  int64
	// More is how many of the iterations that follow this one it stands for too: 0 unless the job had
	// more than [Most]. Then the peaks are the greatest of all and the sums are of all.
	More int64
}

// join adds the iteration, or run, that follows.
func (it *Iteration) join(next *Iteration) {
	it.More += 1 + next.More
	it.EndSeq, it.End = next.EndSeq, next.End
	it.PeakT, it.PeakR = max(it.PeakT, next.PeakT), max(it.PeakR, next.PeakR)
	if it.PeakC >= 0 && next.PeakC >= 0 {
		it.PeakC = max(it.PeakC, next.PeakC)
	} else {
		it.PeakC = -1
	}
	it.EndT, it.EndC, it.EndPaused = next.EndT, next.EndC, next.EndPaused
	it.Allocs += next.Allocs
	it.AllocBytes += next.AllocBytes
}

// Name is the number of an iteration, or the first and the last where it stands for several.
func (it *Iteration) Name() string {
	name := strconv.FormatInt(it.Number, 10)
	if it.More > 0 {
		name += "–" + strconv.FormatInt(it.Number+it.More, 10)
	}
	return name
}

// Count is how many iterations a list stands for.
func Count(list []Iteration) int64 {
	count := int64(len(list))
	for i := range list {
		count += list[i].More
	}
	return count
}

// Number is the number of the iteration with an index among all that a list stands for; not ok
// behind the last.
func Number(list []Iteration, index int) (number int64, ok bool) {
	if index <= 0 || len(list) < 2 {
		if index != 0 || len(list) == 0 {
			return 0, false
		}
		return list[0].Number, true
	}
	each := int(list[1].More) + 1
	at, within := 1+(index-1)/each, int64((index-1)%each)
	if at >= len(list) || within > list[at].More {
		return 0, false
	}
	return list[at].Number + within, true
}
