package dataset

import (
	"sort"

	"github.com/memprof/memprof/trace"
)

// NewReaderBetween starts at the opening rows of the part that has the event `first`, the first part if none has, and ends behind
// the event `last`. Close the Reader after use.
func (p *Process) NewReaderBetween(first, last int64) (*Reader, *Part, error) {
	at := p.partOf(func(part *Part) bool { return part.FirstSeq > first })
	r, err := p.newReader(at)
	if err == nil && (r.cut == 0 || last < r.cut) {
		r.cut = last + 1
	}
	return r, &p.Parts[at], err
}

// EventAt is the last event at a time or before it; the first one if all come later.
func (p *Process) EventAt(time int64) (int64, error) {
	part := &p.Parts[p.partOf(func(part *Part) bool { return part.FirstTime > time })]
	r, _, err := p.NewReaderBetween(part.FirstSeq, p.Parts[0].FirstSeq+p.Events)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	last := part.FirstSeq
	for e, err := range trace.Events(r) {
		switch {
		case err != nil:
			return 0, err
		case e.Seq >= part.FirstSeq && e.Time > time:
			return last, nil
		}
		last = max(last, e.Seq)
	}
	return last, nil
}

// partOf is the index of the last part before the first one that lies behind what is looked for, 0 if all do.
func (p *Process) partOf(behind func(*Part) bool) int {
	return max(0, sort.Search(len(p.Parts), func(i int) bool { return behind(&p.Parts[i]) })-1)
}
