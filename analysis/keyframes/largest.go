package keyframes

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Stripe is an allocation over its life, one of the largest by bytes times time.
type Stripe struct {
	Seq, Freed  int64 // of its alloc event, and of its free; -1 if it was never freed
	Birth, Gone int64 // times; of long recordings to within a few events
	Requested   int64
	Origin      int32 // index into Origins
}

// MaxStripes is the most allocations that are kept as stripes.
const MaxStripes = 2048

// stripe is a Stripe before its origin is looked up.
type stripe struct {
	lifetime
	birth, gone int64
	freed       int64
	score       float64 // bytes times ns
}

// stripes are the largest so far, a heap with the least first.
type stripes []stripe

func (s stripes) Len() int           { return len(s) }
func (s stripes) Less(i, j int) bool { return s[i].before(&s[j]) }
func (s stripes) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *stripes) Push(x any)        { *s = append(*s, x.(stripe)) }
func (s *stripes) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// before orders by score; of equal ones the later is the lesser.
func (s *stripe) before(o *stripe) bool {
	return s.score < o.score || s.score == o.score && s.Seq > o.Seq
}

// stripe takes the live part of a block's life, which ends at a time.
func (r *Recorder) stripe(l *lifetime, freed, until int64) {
	if l.Requested == 0 {
		return
	}
	birth := r.history.clock.at(l.from)
	s := stripe{*l, birth, until, freed, float64(l.Requested) * float64(max(1, until-birth))}
	switch {
	case len(r.largest) < MaxStripes:
		heap.Push(&r.largest, s)
	case r.largest[0].before(&s):
		r.largest[0] = s
		heap.Fix(&r.largest, 0)
	}
}

// mayBeLarge says whether a block that goes now could be one of the largest, without its birth's time.
func (r *Recorder) mayBeLarge(requested int64) bool {
	if len(r.largest) < MaxStripes {
		return true
	}
	return float64(requested)*float64(r.history.clock.last-r.history.clock.first) > r.largest[0].score
}

// stripeGone takes a block that becomes free. A pending one was freed before, at a time that the clock knows.
func (r *Recorder) stripeGone(s *ledger.Segment) {
	if !r.mayBeLarge(s.Requested) {
		return
	}
	freed, until := r.history.Now, r.history.clock.last
	if s.Kind == ledger.PendingSegment {
		freed, until = s.Freed, r.history.clock.at(s.Freed)
	}
	r.stripe(&lifetime{Block: s.Block(), from: s.Seq}, freed, until)
}

// liveStripe takes the blocks that the trace ends with.
func (r *Recorder) liveStripe(now int64) func(s *ledger.Segment) {
	return func(s *ledger.Segment) {
		l := lifetime{Block: s.Block(), from: s.Seq}
		switch s.Kind {
		case ledger.LiveSegment:
			r.stripe(&l, -1, now)
		case ledger.PendingSegment:
			r.stripe(&l, s.Freed, r.history.clock.at(s.Freed))
		}
	}
}

// stripesOf are the largest, in order of birth, those that live on among them.
func (r *Recorder) stripesOf(b *builder, end *End) []Stripe {
	for _, ar := range end.Ledger.Arenas {
		if ar.Device != r.device || ar.Over {
			continue
		}
		end.Ledger.Each(ar, r.liveStripe(end.Time))
	}
	var out []Stripe
	for i := range r.largest {
		s := &r.largest[i]
		out = append(out, Stripe{
			Seq: s.Seq, Freed: s.freed, Birth: s.birth, Gone: s.gone, Requested: s.Requested, Origin: b.origin(&s.Block),
		})
	}
	slices.SortFunc(out, func(x, y Stripe) int { return cmp.Compare(x.Seq, y.Seq) })
	return out
}
