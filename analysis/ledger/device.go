package ledger

// Device sums up the arenas of one GPU that are not paused, and keeps what a look at its peak needs.
type Device struct {
	Split
	ID        int32
	Paused    int64 // bytes that paused arenas would have mapped
	PausedT   int64 // requested by live allocations in paused arenas
	Iteration int   // marks so far

	MaxT, MaxR int64   // greatest of T and R, each at its own moment
	Peak       Instant // the peak: of greatest T among those of greatest R
	Keeper     Keeper  // nil unless somebody keeps what goes
	// Opening is the first event of a history that begins in the middle of the job. What was reserved before it counts for the peak as if it
	// stayed: an earlier part of the job needed it.
	Opening int64

	before int64 // reserved then
	ranked byReserved
	peaks  int64 // numbers the peaks
	kept   int64 // the Keeper wants nothing that began after this event
}

// Keeper keeps what is gone, to know what the device was like after some events.
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
	return &Device{ID: id, Peak: Instant{Seq: -1, Time: -1}, peaks: 1, kept: -1}
}

// Observe notes the state after an event that changed it. It says whether that is the peak
// instant so far.
func (d *Device) Observe(seq, time int64) (peak bool) {
	d.MaxT, d.MaxR = max(d.MaxT, d.T), max(d.MaxR, d.R)
	r, greatest := max(d.R, d.before), max(d.Peak.R, d.before)
	if seq < d.Opening {
		r, greatest, d.before = d.R, d.Peak.R, d.R
	}
	if peak = r > greatest || r == greatest && d.T > d.Peak.T; peak {
		d.Peak = d.Instant(seq, time)
		d.peaks++
	}
	return peak
}

// AtPeak numbers the peaks so far: it differs from an earlier value if there was a new one.
func (d *Device) AtPeak() int64 { return d.peaks }

// KeepUntil has the Keeper be told of what began up to an event, and not of what began later.
func (d *Device) KeepUntil(seq int64) { d.kept = seq }

// touch notes that r of an arena, mapped by the event seq, is not untouched any more.
func (d *Device) touch(arena int32, r Range, seq int64) {
	if seq <= d.kept {
		d.Keeper.Touched(arena, r, seq)
	}
}

// gone notes that a block, live or pending, becomes free. A block of an arena over a graph memory
// was never the device's.
func (ar *Arena) gone(s *Segment) {
	if d := ar.Device; s.Seq <= d.kept && !ar.Over {
		d.Keeper.Gone(s)
	}
}
