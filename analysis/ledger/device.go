package ledger

import (
	"cmp"
	"slices"
)

// Device sums up the arenas of one GPU that are not paused, and keeps what a look at its peak needs.
type Device struct {
	Split
	ID        int32
	Paused    int64 // bytes that paused arenas would have mapped
	PausedT   int64 // requested by live allocations in paused arenas
	Iteration int   // marks so far

	MaxT, MaxC, MaxR int64   // greatest of T, C and R, each at its own moment
	Peak             Instant // the peak: of greatest T among those of greatest R
	Keeper           Keeper  // nil unless somebody keeps more instants than the peak

	ranked byReserved

	// What has changed since the peak, so that the peak can be recovered. Blocks handed out later are not in it,
	// so it is never longer than what was live at the peak.
	peaks     int64 // numbers the peaks
	died      []Block
	untouched []Range // untouched at the peak and not any more
}

// Keeper keeps what is gone: what the device was like at other instants than the peak.
type Keeper interface {
	// Touched: r of an arena, mapped by the event seq and never handed out since, is handed out or
	// unmapped.
	Touched(arena int32, r Range, seq int64)
	// Gone: a block, live or pending, becomes free.
	Gone(s *Segment)
	// Joined: a block lies across addr, where a region of an arena started: it starts none from now on.
	Joined(arena int32, addr int64)
}

// NewDevice is a device without arenas.
func NewDevice(id int32) *Device {
	return &Device{ID: id, Peak: Instant{Seq: -1, Time: -1}, peaks: 1}
}

// HeldBytes are requested by live allocations, those of paused tags too.
func (d *Device) HeldBytes() int64 { return d.T + d.PausedT }

// Observe notes the state after an event that changed it. It says whether that is the peak
// instant so far.
func (d *Device) Observe(seq, time int64) (peak bool) {
	if d.T > d.MaxT {
		d.MaxT = d.T
	}
	if d.C > d.MaxC {
		d.MaxC = d.C
	}
	if d.R > d.MaxR {
		d.MaxR = d.R
	}
	if peak = d.R > d.Peak.R || d.R == d.Peak.R && d.T > d.Peak.T; peak {
		d.Peak = d.Instant(seq, time)
		d.peaks++
		d.died, d.untouched = d.died[:0], d.untouched[:0]
	}
	return peak
}

// AtPeak numbers the peaks so far: it differs from an earlier value if there was a new one.
func (d *Device) AtPeak() int64 { return d.peaks }

// touch notes that r of an arena, mapped by the event seq, is not untouched any more.
func (d *Device) touch(arena int32, r Range, seq int64) {
	if d.Keeper != nil {
		d.Keeper.Touched(arena, r, seq)
	}
	if seq > d.Peak.Seq {
		return
	}
	// Requests often take neighbouring ranges one after the other. Joined, they keep the log short.
	if n := len(d.untouched); n > 0 && d.untouched[n-1].To == r.From {
		d.untouched[n-1].To = r.To
		return
	}
	d.untouched = append(d.untouched, r)
	if len(d.untouched) >= 1024 && len(d.untouched) == cap(d.untouched) {
		d.untouched = joined(d.untouched)
	}
}

// joined sorts disjoint ranges and joins those that touch, in place.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].To == r.From {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// gone notes that a block, live or pending, becomes free. A block of an arena over a graph memory
// was never the device's.
func (ar *Arena) gone(s *Segment) {
	d := ar.Device
	if ar.Over {
		return
	}
	if d.Keeper != nil {
		d.Keeper.Gone(s)
	}
	if s.Seq <= d.Peak.Seq {
		b := s.at(d.Peak.Seq)
		b.Pending = s.Kind == PendingSegment && s.Freed <= d.Peak.Seq
		d.died = append(d.died, b)
	}
}

// beforeMapping keeps what is mapped at the peak, before it changes.
func (ar *Arena) beforeMapping() {
	if ar.peakOf == ar.Device.peaks {
		return
	}
	ar.peakOf = ar.Device.peaks
	ar.peakMapped = ar.mapped.Snapshot()
}

// mappedAtPeak are the ranges that were mapped at the device's peak.
func (ar *Arena) mappedAtPeak() RangeSet {
	if ar.peakOf == ar.Device.peaks {
		return ar.peakMapped.Ranges()
	}
	return ar.mapped.Ranges()
}
