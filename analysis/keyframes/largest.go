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
	Arena       int32 // index into Result.Arenas
	Addr        int64
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
func (k *Tracker) stripe(l *lifetime, freed, until int64) {
	if l.Requested == 0 {
		return
	}
	birth := k.history.clock.at(l.from)
	s := stripe{*l, birth, until, freed, float64(l.Requested) * float64(max(1, until-birth))}
	switch {
	case len(k.largest) < MaxStripes:
		heap.Push(&k.largest, s)
	case k.largest[0].before(&s):
		k.largest[0] = s
		heap.Fix(&k.largest, 0)
	}
}

// mayBeLarge says whether a block that goes now could be one of the largest, without its birth's time.
func (k *Tracker) mayBeLarge(requested int64) bool {
	if len(k.largest) < MaxStripes {
		return true
	}
	return float64(requested)*float64(k.history.clock.last-k.history.clock.first) > k.largest[0].score
}

// stripeGone takes a block that becomes free. A pending one was freed before, at a time that the clock knows.
func (k *Tracker) stripeGone(s *ledger.Segment) {
	if !k.mayBeLarge(s.Requested) {
		return
	}
	freed, until := k.history.Now, k.history.clock.last
	if s.Kind == ledger.PendingSegment {
		freed, until = s.Freed, k.history.clock.at(s.Freed)
	}
	k.stripe(&lifetime{Block: s.Block(), from: s.Seq, keys: k}, freed, until)
}

// liveStripe takes the blocks that the trace ends with.
func (k *Tracker) liveStripe(now int64) func(s *ledger.Segment) {
	return func(s *ledger.Segment) {
		l := lifetime{Block: s.Block(), from: s.Seq, keys: k}
		switch s.Kind {
		case ledger.LiveSegment:
			k.stripe(&l, -1, now)
		case ledger.PendingSegment:
			k.stripe(&l, s.Freed, k.history.clock.at(s.Freed))
		}
	}
}

// stripesOf are the largest, in order of birth, those that live on among them.
func (k *Tracker) stripesOf(b *builder, end *End) []Stripe {
	for _, ar := range end.Ledger.Arenas {
		if ar.Device != k.device || ar.Over {
			continue
		}
		end.Ledger.Each(ar, k.liveStripe(end.Last.Time))
	}
	var out []Stripe
	for i := range k.largest {
		s := &k.largest[i]
		out = append(out, Stripe{
			Seq: s.Seq, Freed: s.freed, Birth: s.birth, Gone: s.gone, Arena: s.Arena, Addr: s.Addr, Requested: s.Requested, Origin: b.origin(&s.Block),
		})
	}
	slices.SortFunc(out, func(x, y Stripe) int { return cmp.Compare(x.Seq, y.Seq) })
	return out
}
