package accounting

import (
	"cmp"
	"math"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// External is device memory that other libraries took through the CUDA API, seen by the hook; neither
// managed memory nor the host's is in it. Calls are all of theirs.
type External struct {
	Live, Peak int64 // bytes
	Calls      int64
}

// Tracker follows what a process has beside its arenas. Its devices are told apart by the caller.
type Tracker struct {
	text    func(context int32) string
	owners  map[int32]*owner     // by context, those parsed so far
	blocks  map[int64]otherBlock // blocks that no arena served, by address
	moments []int64              // the times of Options.Moments that have not passed
}

// New is a Tracker of a process without events. text gives the text of a context; moments are times, in
// ascending order, at which the holdings of devices are wanted.
func New(text func(context int32) string, moments []int64) *Tracker {
	return &Tracker{text: text, owners: map[int32]*owner{}, blocks: map[int64]otherBlock{}, moments: moments}
}

// Next is the first of the moments that has not passed, or the end of time.
func (t *Tracker) Next() int64 {
	if len(t.moments) > 0 {
		return t.moments[0]
	}
	return math.MaxInt64
}

// Pass notes the state of devices, after the event seq, at the moments before time; none where nothing
// of the process was recorded yet.
func (t *Tracker) Pass(seq, time int64, devices func(func(*Device))) {
	for ; len(t.moments) > 0 && t.moments[0] < time; t.moments = t.moments[1:] {
		moment := t.moments[0]
		devices(func(d *Device) { d.moments = append(d.moments, d.holding(d.of.Instant(seq, moment), -1)) })
	}
}

// ownerOf parses each distinct context once.
func (t *Tracker) ownerOf(context int32) *owner {
	o := t.owners[context]
	if o == nil {
		o = parseOwner(trace.ParseContext(trace.KindExternalAlloc, t.text(context)))
		t.owners[context] = o
	}
	return o
}

// External takes an external_alloc or external_free event, of a device. Memory from before the hook is
// freed without its alloc. A free may come from a thread on another device.
func (t *Tracker) External(d *Device, e *trace.Event) {
	if old, ok := t.blocks[e.Addr]; ok {
		old.device.take(old.owner, -old.bytes, e)
		delete(t.blocks, e.Addr)
	}
	d.External.Calls++
	if e.Kind == trace.KindExternalFree {
		return
	}
	o := t.ownerOf(e.Context)
	t.blocks[e.Addr] = otherBlock{d, e.Provided, o}
	d.take(o, e.Provided, e)
}

// Device follows what the process has on one device beside its arenas. Before the first event, its peak
// is that of nothing.
type Device struct {
	External External

	of      *ledger.Device
	now     OtherMemory // Libraries in order of first use, also those that have nothing now
	changed int64       // when R or now last changed

	// peak is the state at the peak instant numbered peakOf, if it has changed since.
	peak   Holding
	peakOf int64

	// greatest is the one of greatest Sum as long as nothing was mapped for an arena: the
	// peak of a device that has none.
	greatest Holding

	moments []Holding
	open    int // of moments, those from here on have seen no change yet

	read     Course // at most MostOwnReadings
	readPeak int64
}

// NewDevice follows a device of the ledger.
func NewDevice(of *ledger.Device) *Device {
	return &Device{of: of, greatest: Holding{At: ledger.Instant{Seq: -1, Time: -1}}}
}

// Changing takes note, before it happens, that R or what is beside the arenas will change.
func (d *Device) Changing(time int64) {
	if d.peakOf != d.of.AtPeak() {
		d.peakOf = d.of.AtPeak()
		d.peak = d.holding(d.of.Peak, time)
	}
	for ; d.open < len(d.moments); d.open++ {
		d.moments[d.open].Until = time
	}
	if d.greatest.Until < 0 {
		d.greatest.Until = time
	}
	d.changed = time
}

// changedBy takes note of a change beside the arenas, after it.
func (d *Device) changedBy(e *trace.Event) {
	if d.of.MaxR > 0 {
		return
	}
	h := d.holding(d.of.Instant(e.Seq, e.Time), -1)
	if c := cmp.Compare(h.Sum(), d.greatest.Sum()); c > 0 || c == 0 && h.OnCard.sum() > d.greatest.OnCard.sum() {
		d.greatest = h
	}
}

// holding is the state as it is, of an instant since which it has not changed.
func (d *Device) holding(at ledger.Instant, until int64) Holding {
	h := Holding{At: at, Since: d.changed, Until: until, OtherMemory: d.now}
	h.Libraries = nil
	for _, l := range d.now.Libraries {
		if l.Bytes != 0 {
			h.Libraries = append(h.Libraries, l)
		}
	}
	sortLibraries(h.Libraries)
	return h
}

func (d *Device) take(o *owner, bytes int64, e *trace.Event) {
	if o.kind != onDevice {
		d.now.add(o, bytes)
		return
	}
	d.Changing(e.Time)
	d.now.add(o, bytes)
	d.changedBy(e)
	d.External.Live += bytes
	d.External.Peak = max(d.External.Peak, d.External.Live)
}

// Finish returns the holdings of the device. peak and final are its peak instant and its last one, as
// results have them.
func (d *Device) Finish(peak, final ledger.Instant) Holdings {
	h := Holdings{Final: d.holding(final, -1), Moments: d.moments, Read: d.read, ReadPeak: d.readPeak}
	switch {
	case d.of.MaxR == 0:
		h.Peak = d.greatest
		return h
	case d.peakOf == d.of.AtPeak():
		h.Peak = d.peak
	default:
		h.Peak = d.holding(d.of.Peak, -1)
	}
	h.Peak.At = peak // its iteration may have been found since
	return h
}
