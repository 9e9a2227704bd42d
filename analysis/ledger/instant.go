package ledger

import "container/heap"

// Instant is the state of a device after one event. R = T + Rounding + Slack + Pending +
// Stranded + Reserve + Reusable + External + NotRequested holds at every event; the analyzer checks it.
type Instant struct {
	Seq, Time int64
	T         int64 // requested by live allocations
	C         int64 // chunks of live allocations; -1 where it is not known
	R         int64 // physically mapped
	Rounding  int64 // internal: request rounded up to 256
	Slack     int64 // internal: chunk larger than the rounded request
	Pending   int64 // freed, waiting for other streams
	// Every free byte is in the first that applies of these four.
	Stranded     int64 // in an arena that requests of View cannot use
	Reserve      int64 // never handed out since it was mapped
	Reusable     int64 // handed out before, in the arena's largest free chunk
	External     int64 // handed out before, in a smaller free chunk: fragmented
	NotRequested int64 // internal and free together, where chunks are not known
	Live         int64 // live allocations
	// View is the ID of the arena whose requests the free memory is seen by; 0 where none has memory.
	View      int32
	Paused    int64 // bytes that paused tags unmapped and will map again; in no other term
	Iteration int   // index of the iteration it falls in, among all; see [DeviceResult.IterationNumber]
}

// KnownC is a greatest C, or -1 where it is not known: where it is less than the greatest T, it was not read at the peak.
func KnownC(c, t int64) int64 {
	switch {
	case t == 0:
		return max(c, 0)
	case c < t:
		return -1
	}
	return c
}

// Internal is C - T; -1 where C is not known.
func (i Instant) Internal() int64 {
	if i.C < 0 {
		return -1
	}
	return i.C - i.T
}

// Free is F = R - C - pending; -1 where C is not known.
func (i Instant) Free() int64 {
	if i.C < 0 {
		return -1
	}
	return i.R - i.C - i.Pending
}

// The terms of free memory depend on the arena of a request: it can use free memory of that arena only, and the
// free memory of others is stranded. The terms of a device are those for requests of one of its arenas, the view.
// At a growth and at a failed request that is the arena of the request; else the arena with the most reserved,
// of several with equally much the first made. The terms of an arena by itself are for its own requests, so
// nothing of it is stranded.

// FreeTerms are the four terms of free memory, in bytes. Their sum is F.
type FreeTerms struct{ Stranded, Reserve, Reusable, External int64 }

func (f FreeTerms) Fill(i *Instant) {
	i.Stranded, i.Reserve, i.Reusable, i.External = f.Stranded, f.Reserve, f.Reusable, f.External
}

// FreeTermsOf are the terms of an arena that has s, of which the largest free chunk has so many
// bytes that were handed out before; all is what is free in the device, the arena's included.
func FreeTermsOf(s *Split, reusable, all int64) FreeTerms {
	return FreeTerms{
		Stranded: all - s.Free(), Reserve: s.Untouched,
		Reusable: reusable, External: s.Touched - reusable,
	}
}

// Fill writes the state of an arena into an Instant, as its own requests see it.
func (ar *Arena) Fill(i *Instant) {
	ar.Split.Fill(i)
	ar.OwnTerms().Fill(i)
	i.View = ar.Info.ID
}

// OwnTerms are those of an arena by itself.
func (ar *Arena) OwnTerms() FreeTerms { return FreeTermsOf(&ar.Split, ar.reusable(), ar.Split.Free()) }

// SeenBy are the terms of a device to requests of an arena; nil stands for one that is not there.
// An arena none of whose memory is the device's can use nothing of it.
func (d *Device) SeenBy(ar *Arena) FreeTerms {
	if ar == nil || ar.total != &d.Split {
		return FreeTerms{Stranded: d.Split.Free()}
	}
	return FreeTermsOf(&ar.Split, ar.reusable(), d.Split.Free())
}

// Fill writes the state into an Instant, as requests of an arena see it.
func (d *Device) Fill(i *Instant, ar *Arena) {
	d.Split.Fill(i)
	i.View = 0
	if ar != nil {
		i.View = ar.Info.ID
	}
	if ar != nil && ar.chunks.known && ar.total == &d.Split { // of most events: SeenBy, in place
		reusable := ar.chunks.touched
		i.Stranded, i.Reserve = d.Split.Free()-ar.Split.Free(), ar.Untouched
		i.Reusable, i.External = reusable, ar.Touched-reusable
		return
	}
	d.SeenBy(ar).Fill(i)
}

// reusable returns the bytes of the largest free chunk that were handed out before; 0 where chunks are not known.
func (ar *Arena) reusable() int64 {
	_, touched := ar.ledger.largestOf(ar)
	return touched
}

// LargestFree is L of an arena: mapped bytes.
func (ar *Arena) LargestFree() int64 {
	bytes, _ := ar.ledger.largestOf(ar)
	return bytes
}

// largestHolds says whether the largest free chunk, where it is known, is within what is free.
func (ar *Arena) largestHolds() bool {
	most, reusable := ar.chunks.first.bytes, ar.chunks.touched
	return !ar.chunks.known || reusable <= ar.Touched && most-reusable <= ar.Untouched && (most > 0) == (ar.Split.Free() > 0)
}

// TooSmall are the bytes of an arena's free chunks that have less than size bytes.
func TooSmall(chunks []int64, size int64) (bytes int64) {
	for _, chunk := range chunks {
		if chunk < size {
			bytes += chunk
		}
	}
	return bytes
}

// byReserved are the arenas of a device that have something mapped in it, a heap with the one
// that has most first. An arena knows its index.
type byReserved []*Arena

func (h byReserved) Len() int { return len(h) }

func (h byReserved) Less(i, j int) bool {
	return h[i].R > h[j].R || h[i].R == h[j].R && h[i].Index < h[j].Index
}

func (h byReserved) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rank, h[j].rank = int32(i), int32(j)
}

func (h *byReserved) Push(x any) {
	ar := x.(*Arena)
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
func (d *Device) rerank(ar *Arena) {
	there := ar.R > 0 && ar.total == &d.Split
	switch {
	case ar.rank == none && there:
		heap.Push(&d.ranked, ar)
	case ar.rank != none && there:
		heap.Fix(&d.ranked, int(ar.rank))
	case ar.rank != none:
		heap.Remove(&d.ranked, int(ar.rank))
	}
}

// View is the arena whose requests the terms of a device are seen by, nil where nothing is reserved.
func (d *Device) View() *Arena {
	if len(d.ranked) == 0 {
		return nil
	}
	return d.ranked[0]
}

// Instant is the state after the event of seq.
func (d *Device) Instant(seq, time int64) Instant {
	return d.InstantSeenBy(d.View(), seq, time)
}

// InstantSeenBy is Instant as requests of an arena see it.
func (d *Device) InstantSeenBy(ar *Arena, seq, time int64) Instant {
	i := Instant{Seq: seq, Time: time, Iteration: d.Iteration, Paused: d.Paused}
	d.Fill(&i, ar)
	return i
}

// Sum adds up arenas, each seen by its own requests. Their free memory is as requests of the one
// with the most reserved see it, of equal ones the first.
func (i *Instant) Sum(arenas []*Instant) {
	var view *Instant
	for _, o := range arenas {
		i.Add(o)
		if view == nil || o.R > view.R {
			view = o
		}
	}
	if view != nil {
		i.Stranded = i.Reserve + i.Reusable + i.External - view.Reserve - view.Reusable - view.External
		i.Reserve, i.Reusable, i.External, i.View = view.Reserve, view.Reusable, view.External, view.View
	}
}

// Add adds the terms of another one. C of both is known only if it is of each.
func (i *Instant) Add(o *Instant) {
	i.T, i.R, i.Live = i.T+o.T, i.R+o.R, i.Live+o.Live
	if i.C += o.C; min(i.C-o.C, o.C) < 0 {
		i.C = -1
	}
	i.Rounding, i.Slack, i.Pending, i.NotRequested = i.Rounding+o.Rounding, i.Slack+o.Slack, i.Pending+o.Pending, i.NotRequested+o.NotRequested
	i.Stranded, i.Reserve, i.Reusable, i.External = i.Stranded+o.Stranded, i.Reserve+o.Reserve, i.Reusable+o.Reusable, i.External+o.External
}
