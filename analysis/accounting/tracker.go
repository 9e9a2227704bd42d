package accounting

import (
	"cmp"
	"math"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// OtherLibraries is the device memory that other libraries allocated through the CUDA API, as the hook saw it.
// Managed and host memory is not included; Calls counts all calls.
type OtherLibraries struct {
	Live  int64 `json:"live"` // bytes, as Peak
	Peak  int64 `json:"peak"`
	Calls int64 `json:"calls"`
}

// Tracker follows the device memory that a process has outside of its arenas. The caller has one [Device] for
// each device.
type Tracker struct {
	text    func(context int32) string
	origins map[int32]*origin    // by context, those parsed so far
	blocks  map[int64]otherBlock // blocks that no arena served, by address
	moments []int64              // the times of Options.Moments that have not passed
}

// New returns a Tracker of a process without events. text returns the text of a context; moments are the times,
// in ascending order, at which the Tracker keeps the state of all devices.
func New(text func(context int32) string, moments []int64) *Tracker {
	return &Tracker{text: text, origins: map[int32]*origin{}, blocks: map[int64]otherBlock{}, moments: moments}
}

// Next returns the first of the moments that has not passed, or math.MaxInt64.
func (t *Tracker) Next() int64 {
	if len(t.moments) > 0 {
		return t.moments[0]
	}
	return math.MaxInt64
}

// Pass keeps the state of devices, after the event seq, for each moment before time. devices calls its argument
// for each device.
func (t *Tracker) Pass(seq, time int64, devices func(func(*Device))) {
	for ; len(t.moments) > 0 && t.moments[0] < time; t.moments = t.moments[1:] {
		moment := t.moments[0]
		devices(func(d *Device) { d.moments = append(d.moments, d.holding(d.of.Instant(seq, moment), -1)) })
	}
}

// originOf parses each distinct context once.
func (t *Tracker) originOf(context int32) *origin {
	o := t.origins[context]
	if o == nil {
		o = parseOrigin(trace.ParseContext(trace.KindExternalAlloc, t.text(context)))
		t.origins[context] = o
	}
	return o
}

// OtherLibrary takes an external_alloc or external_free event of a device. Memory that was allocated before the
// hook was loaded is freed without an alloc. A free may come from a thread on another device.
func (t *Tracker) OtherLibrary(d *Device, e *trace.Event) {
	if old, ok := t.blocks[e.Addr]; ok {
		old.device.add(old.origin, -old.bytes, e)
		delete(t.blocks, e.Addr)
	}
	d.OtherLibraries.Calls++
	if e.Kind == trace.KindExternalFree {
		return
	}
	o := t.originOf(e.Context)
	t.blocks[e.Addr] = otherBlock{d, e.Provided, o}
	d.add(o, e.Provided, e)
}

// Device follows the memory of the process on one device outside of its arenas.
type Device struct {
	OtherLibraries OtherLibraries

	of      *ledger.Device
	now     OtherMemory // Libraries in order of first use, including those with 0 bytes now
	changed int64       // when R or now last changed

	libraryBytes []int64 // what LibraryBytes returned

	// peak is the state at the peak numbered peakOf, if it has changed since.
	peak   Holding
	peakOf int64

	// greatest is the state with the greatest Sum while no arena has mapped memory: the peak of a device
	// without arenas.
	greatest Holding

	moments []Holding
	open    int // moments[open:] are those since which nothing changed

	read     Course // at most MostOwnReadings
	readPeak int64

	seen      int64 // the last reading of any kind; -1 before the first
	seenAt    int64
	seenKnown int64 // reserved and of other libraries then
}

// NewDevice returns a Device for a device of the ledger.
func NewDevice(of *ledger.Device) *Device {
	return &Device{of: of, seen: -1, greatest: Holding{At: ledger.Instant{Seq: -1, Time: -1}}}
}

// LibraryBytes is what each other library has on the device now, in order of first use; valid until the next call.
func (d *Device) LibraryBytes() []int64 {
	d.libraryBytes = d.libraryBytes[:0]
	for i := range d.now.Libraries {
		d.libraryBytes = append(d.libraryBytes, d.now.Libraries[i].Bytes)
	}
	return d.libraryBytes
}

// LibraryName is the name of the library with an index in LibraryBytes.
func (d *Device) LibraryName(i int) string { return d.now.Libraries[i].Name }

// seenFor is how long a reading says what the device has in use, but for what the process itself changes.
const seenFor = 200_000_000 // ns

// Saw takes a reading of the device's used memory that a request depended on, or any other.
func (d *Device) Saw(time, used int64) {
	d.seen, d.seenAt, d.seenKnown = used, time, d.of.R+d.OtherLibraries.Live
}

// UsedAt is what the device has in use by the last reading and by what the process has changed since; -1 if there
// is none, or it is too old.
func (d *Device) UsedAt(time int64) int64 {
	if d.seen < 0 || time-d.seenAt > seenFor {
		return -1
	}
	return max(0, d.seen+d.of.R+d.OtherLibraries.Live-d.seenKnown)
}

// Changing must be called before R or the memory outside of arenas changes.
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

// changedBy must be called after memory outside of arenas changed.
func (d *Device) changedBy(e *trace.Event) {
	if d.of.MaxR > 0 {
		return
	}
	h := d.holding(d.of.Instant(e.Seq, e.Time), -1)
	if c := cmp.Compare(h.Sum(), d.greatest.Sum()); c > 0 || c == 0 && h.OnCard.Overhead() > d.greatest.OnCard.Overhead() {
		d.greatest = h
	}
}

// holding returns the present state for an instant since which it has not changed.
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

// add adds bytes, negative for a free, to the memory of an origin.
func (d *Device) add(o *origin, bytes int64, e *trace.Event) {
	if o.kind != onDevice {
		d.now.add(o, bytes)
		return
	}
	d.Changing(e.Time)
	d.now.add(o, bytes)
	d.changedBy(e)
	d.OtherLibraries.Live += bytes
	d.OtherLibraries.Peak = max(d.OtherLibraries.Peak, d.OtherLibraries.Live)
}

// Finish returns the holdings of the device. peak and final are its peak and its last one.
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
