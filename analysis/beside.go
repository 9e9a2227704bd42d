package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/memprof/memprof/trace"
)

// LibraryUse is the device memory that a library has taken through the CUDA API.
type LibraryUse struct {
	Name  string // file name, "libnccl.so.2"; "" where it was not found out
	Bytes int64
}

// Beside is what a process has on a device beside the allocator's arenas, as its own
// events tell. Bytes.
type Beside struct {
	Libraries []LibraryUse // with live device memory, greatest first

	// Context, Modules, Loads and Graphs are driver overhead: by how much the use of the
	// process, or of a card that it has to itself, grew while a context was made, kernels
	// were loaded, libraries were initialised and graphs were made. Those in Unknown are 0.
	Context, Modules, Loads, Graphs int64
	// ContextOfDevice says that a context was measured by the whole card's use.
	ContextOfDevice bool
	// ContextIsAll says that all that the card had in use stood for a context.
	ContextIsAll bool
	ContextSince int64 // when Context last changed; 0 if never

	// Pools are what the driver's memory pools keep beyond what Libraries have of them.
	Pools int64

	// Unknown are the parts of the above of which no number can be given, and UnknownWhy
	// says why. [CloseBooks] decides it: before, what the use of the whole card showed is in
	// OnCard and in no part.
	Unknown    OverheadParts
	UnknownWhy string
	OnCard     CardGrowth

	// Managed and HostPinned are in no sum: managed memory lies where it was last used,
	// pinned memory on the host.
	Managed, HostPinned int64
}

// Other is what all libraries have.
func (b *Beside) Other() (bytes int64) {
	for _, l := range b.Libraries {
		bytes += l.Bytes
	}
	return bytes
}

// Overhead is the driver overhead that is known.
func (b *Beside) Overhead() int64 { return b.Context + b.Modules + b.Loads + b.Graphs }

func (b *Beside) sum() int64 { return b.Other() + b.Overhead() + b.Pools }

// Holding is all that a process has on a device at one instant.
type Holding struct {
	At    Instant // Time is the instant
	Since int64   // when R, or what is beside the arenas, last changed before; the process's start if never
	Until int64   // when it changed next, -1 for never
	Beside
}

// Sum is what the events explain of the device's used memory.
func (h *Holding) Sum() int64 {
	return h.At.R + h.Beside.sum()
}

// Holdings are those of a device that its books are made of.
type Holdings struct {
	Peak, Final Holding
	// Moments are at the times of Options.Moments, those within the recorded life of the process.
	Moments []Holding
	// Read is what the process itself read of the device's use by all, around the peak and the
	// end, and ReadPeak the greatest of all it read; nil and 0 where it was not told to.
	Read     Course
	ReadPeak int64
}

// foreignKind tells where memory lies that was not served from an arena.
type foreignKind uint8

const (
	foreignDevice foreignKind = iota
	foreignManaged
	foreignHost
)

// foreign is a block that was not served from an arena.
type foreign struct {
	device *device
	bytes  int64
	taker  *taker
}

// taker is the context of an external_alloc, parsed.
type taker struct {
	library string
	kind    foreignKind
}

func parseTaker(fields trace.Context) *taker {
	t := &taker{library: fields.Get("library")}
	switch {
	case fields.Is("managed"):
		t.kind = foreignManaged
	case fields.Is("host"):
		t.kind = foreignHost
	}
	return t
}

// takerOf parses each distinct context once.
func (a *analyzer) takerOf(context int32) *taker {
	t := a.takers[context]
	if t == nil {
		if a.takers == nil {
			a.takers = map[int32]*taker{}
		}
		t = parseTaker(trace.ParseContext(trace.KindExternalAlloc, a.opt.Text(context)))
		a.takers[context] = t
	}
	return t
}

// besideState follows a device's Beside through the pass. Before its first event, the peak
// is that of nothing.
type besideState struct {
	now     Beside // Libraries in order of first use, also those that have nothing now
	changed int64  // when R or now last changed

	// peak is the state at the peak instant numbered peakOf, if it has changed since.
	peak   Holding
	peakOf int64

	// greatest is the one of greatest Sum as long as nothing was mapped for an arena: the
	// peak of a device that has none.
	greatest Holding

	moments []Holding
	open    int // of moments, those from here on have seen no change yet

	read     Course // at most maxOwnReadings
	readPeak int64
}

// changing is told, before it happens, that R or what is beside the arenas will change.
func (d *device) changing(time int64) {
	s := &d.beside
	if s.peakOf != d.AtPeak() {
		s.peakOf = d.AtPeak()
		s.peak = d.holding(d.Peak, time)
	}
	for ; s.open < len(s.moments); s.open++ {
		s.moments[s.open].Until = time
	}
	if s.greatest.Until < 0 {
		s.greatest.Until = time
	}
	s.changed = time
}

// changed is told, afterwards, what changing announced, where it was no mapping.
func (d *device) changed(e *trace.Event) {
	if d.MaxR > 0 {
		return
	}
	h, greatest := d.holding(d.Instant(e.Seq, e.Time), -1), &d.beside.greatest
	if c := cmp.Compare(h.Sum(), greatest.Sum()); c > 0 || c == 0 && h.OnCard.sum() > greatest.OnCard.sum() {
		*greatest = h
	}
}

// holding is the state as it is, of an instant since which it has not changed.
func (d *device) holding(at Instant, until int64) Holding {
	h := Holding{At: at, Since: d.beside.changed, Until: until, Beside: d.beside.now}
	h.Libraries = nil
	for _, l := range d.beside.now.Libraries {
		if l.Bytes != 0 {
			h.Libraries = append(h.Libraries, l)
		}
	}
	sortLibraries(h.Libraries)
	return h
}

func sortLibraries(libraries []LibraryUse) {
	slices.SortStableFunc(libraries, func(a, b LibraryUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
}

// mostLibraries bounds how many libraries are listed; furtherLibraries stands for all others.
const (
	mostLibraries    = 64
	furtherLibraries = "(further libraries)"
)

// add changes what one taker has.
func (b *Beside) add(t *taker, bytes int64) {
	switch t.kind {
	case foreignHost:
		b.HostPinned += bytes
		return
	case foreignManaged:
		b.Managed += bytes
		return
	}
	for i := range b.Libraries {
		if b.Libraries[i].Name == t.library {
			b.Libraries[i].Bytes += bytes
			return
		}
	}
	if len(b.Libraries) >= mostLibraries-1 && t.library != furtherLibraries {
		b.add(&taker{library: furtherLibraries}, bytes)
		return
	}
	b.Libraries = append(b.Libraries, LibraryUse{t.library, bytes})
}

// external keeps the account of memory that others took. What was there before the hook is
// freed without having been seen. A free may come from a thread on another device.
func (a *analyzer) external(e *trace.Event) {
	if old, ok := a.foreign[e.Addr]; ok {
		old.device.takeForeign(old.taker, -old.bytes, e)
		delete(a.foreign, e.Addr)
	}
	d := a.deviceOf(e.Device)
	d.result.External.Calls++
	if e.Kind == trace.KindExternalFree {
		return
	}
	if a.foreign == nil {
		a.foreign = map[int64]foreign{}
	}
	t := a.takerOf(e.Context)
	a.foreign[e.Addr] = foreign{d, e.Provided, t}
	d.takeForeign(t, e.Provided, e)
}

func (d *device) takeForeign(t *taker, bytes int64, e *trace.Event) {
	if t.kind != foreignDevice {
		d.beside.now.add(t, bytes)
		return
	}
	d.changing(e.Time)
	d.beside.now.add(t, bytes)
	d.changed(e)
	d.result.External.Live += bytes
	d.result.External.Peak = max(d.result.External.Peak, d.result.External.Live)
}

// nextMoment is the first of Options.Moments that has not been passed.
func (a *analyzer) nextMoment() int64 {
	if a.momentsPast < len(a.opt.Moments) {
		return a.opt.Moments[a.momentsPast]
	}
	return math.MaxInt64
}

// passMoments notes the state at the moments before time. Those before the first event
// are nothing of this process.
func (a *analyzer) passMoments(time int64) {
	for ; a.momentsPast < len(a.opt.Moments) && a.opt.Moments[a.momentsPast] < time; a.momentsPast++ {
		if a.events == 0 {
			continue
		}
		for _, d := range a.devices {
			moment := a.opt.Moments[a.momentsPast]
			d.beside.moments = append(d.beside.moments, d.holding(d.Instant(a.lastSeq, moment), -1))
		}
	}
	a.moment = a.nextMoment()
}

// finishBeside closes the holdings of a device.
func (a *analyzer) finishBeside(d *device) {
	s := &d.beside
	d.result.Holdings = Holdings{Final: d.holding(d.result.Final, -1), Moments: s.moments, Read: s.read, ReadPeak: s.readPeak}
	switch {
	case d.MaxR == 0:
		d.result.Holdings.Peak = s.greatest
		return
	case s.peakOf == d.AtPeak():
		d.result.Holdings.Peak = s.peak
	default:
		d.result.Holdings.Peak = d.holding(d.Peak, -1)
	}
	d.result.Holdings.Peak.At = d.result.Peak // its iteration may have been found since
}
