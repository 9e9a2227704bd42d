package analysis

import stdheap "container/heap"

// Free memory is divided by who asks for it: a request can use the free memory of its own arena
// only, so what is free in the others is stranded to it. The terms of a device are those that a
// request of one of its arenas sees, its view: of the arena that asked at a growth and a failed
// request, else of the arena with the most reserved, of equal ones the first made. An arena by
// itself is seen by its own requests: nothing of it is stranded.

// freeTerms are the four terms of free memory, in bytes. Their sum is F.
type freeTerms struct{ stranded, reserve, reusable, external int64 }

func (f freeTerms) fill(i *Instant) {
	i.Stranded, i.Reserve, i.Reusable, i.External = f.stranded, f.reserve, f.reusable, f.external
}

// freeTermsOf are the terms of an arena that has s, of which the largest free chunk has so many
// bytes that were handed out before; all is what is free in the device, the arena's included.
func freeTermsOf(s *split, reusable, all int64) freeTerms {
	return freeTerms{
		stranded: all - s.free(), reserve: s.untouched,
		reusable: reusable, external: s.touched - reusable,
	}
}

// fill writes the state of an arena into an Instant, as its own requests see it.
func (ar *arena) fill(i *Instant) {
	ar.split.fill(i)
	ar.ownTerms().fill(i)
	i.View = ar.info.ID
}

// ownTerms are those of an arena by itself.
func (ar *arena) ownTerms() freeTerms { return freeTermsOf(&ar.split, ar.reusable, ar.free()) }

// seenBy are the terms of a device to requests of an arena; nil stands for one that is not there.
// An arena none of whose memory is the device's can use nothing of it.
func (d *device) seenBy(ar *arena) freeTerms {
	if ar == nil || ar.total != &d.split {
		return freeTerms{stranded: d.free()}
	}
	return freeTermsOf(&ar.split, ar.reusable, d.free())
}

// fill writes the state into an Instant, as requests of an arena see it.
func (d *device) fill(i *Instant, ar *arena) {
	d.split.fill(i)
	d.seenBy(ar).fill(i)
	i.View = 0
	if ar != nil {
		i.View = ar.info.ID
	}
}

// reusable are the bytes of an arena's largest free chunk that were handed out before. What is
// free in an arena that was only watched is not known.
func (l *ledger) reusable(ar *arena) int64 {
	if len(ar.chunks) == 0 {
		return 0
	}
	return l.nodes[ar.chunks[0].root].touched
}

// largestFree is L of an arena: mapped bytes.
func (ar *arena) largestFree() int64 {
	if len(ar.chunks) == 0 {
		return 0
	}
	return ar.chunks[0].bytes
}

// largestHolds says whether the largest free chunk is within what is free.
func (ar *arena) largestHolds() bool {
	most := ar.largestFree()
	return ar.reusable <= ar.touched && most-ar.reusable <= ar.untouched && (most > 0) == (ar.free() > 0)
}

// tooSmall are the bytes of an arena's free chunks that have less than size bytes.
func tooSmall(chunks []int64, size int64) (bytes int64) {
	for _, chunk := range chunks {
		if chunk < size {
			bytes += chunk
		}
	}
	return bytes
}

// byReserved are the arenas of a device that have something mapped in it, a heap with the one
// that has most first. An arena knows its index.
type byReserved []*arena

func (h byReserved) Len() int { return len(h) }

func (h byReserved) Less(i, j int) bool {
	return h[i].r > h[j].r || h[i].r == h[j].r && h[i].index < h[j].index
}

func (h byReserved) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rank, h[j].rank = int32(i), int32(j)
}

func (h *byReserved) Push(x any) {
	ar := x.(*arena)
	ar.rank = int32(len(*h))
	*h = append(*h, ar)
}

func (h *byReserved) Pop() any {
	last := len(*h) - 1
	ar := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	ar.rank = none
	return ar
}

// rerank gives an arena its place among those of its device, after what is mapped of it changed.
func (d *device) rerank(ar *arena) {
	there := ar.r > 0 && ar.total == &d.split
	switch {
	case ar.rank == none && there:
		stdheap.Push(&d.ranked, ar)
	case ar.rank != none && there:
		stdheap.Fix(&d.ranked, int(ar.rank))
	case ar.rank != none:
		stdheap.Remove(&d.ranked, int(ar.rank))
	}
}

// view is the arena whose requests the terms of a device are seen by, nil where nothing is reserved.
func (d *device) view() *arena {
	if len(d.ranked) == 0 {
		return nil
	}
	return d.ranked[0]
}
