package iterations

import (
	"time"

	"github.com/memprof/memprof/trace"
)

// SteadyFrom is the first steady iteration, counted from 0: by then the optimizer's state is allocated.
const SteadyFrom = 4

// Calls are driver calls of memprof's allocator, by its own count.
type Calls struct {
	Count  int64
	Time   time.Duration // of all
	Waited time.Duration // for work of the GPU, besides
}

func (c Calls) minus(d Calls) Calls {
	return Calls{c.Count - d.Count, c.Time - d.Time, c.Waited - d.Waited}
}

// CallLog follows the totals of a recording. The zero value is ready for use.
type CallLog struct {
	Total                Calls // so far; zero where nothing was counted
	Known                bool  // the recording has totals
	marks                int64
	steady, before, last Calls // at the mark of the last iteration that is not steady, and at the last two marks
}

// Add takes an event of kind totals, whose text is that of its context.
func (l *CallLog) Add(e *trace.Event, text string) {
	if trace.ParseContext(e.Kind, text).Get("of") == "calls" {
		l.Total, l.Known = Calls{e.Addr, time.Duration(e.Requested), time.Duration(e.Provided)}, true
	}
}

// Mark takes the end of an iteration, whose totals come before it.
func (l *CallLog) Mark() {
	l.before, l.last = l.last, l.Total
	if l.marks++; l.marks == SteadyFrom {
		l.steady = l.Total
	}
}

// Steady returns the calls of the steady iterations, and how many these are: the last one where none is steady, and 0 where none was marked.
func (l *CallLog) Steady() (calls Calls, iterations int64) {
	switch {
	case l.marks > SteadyFrom:
		return l.last.minus(l.steady), l.marks - SteadyFrom
	case l.marks > 0:
		return l.last.minus(l.before), 1
	}
	return Calls{}, 0
}
