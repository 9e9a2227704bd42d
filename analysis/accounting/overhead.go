package accounting

import (
	"math"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// Driver overhead is memory that no program requests: the driver allocates it while it creates a
// context or a graph, loads code or initialises a library. An overhead event gives what was measured
// across such a call:
//
//	growth of the process's own use, as the driver lists it     how=process; a context's without how=
//	growth of the whole card's use                              how=device; others without how=
//	all that the card had in use afterwards                     how=total
//
// The first is exact: only the process changes its own use. During the second any other process on the
// card may allocate or free, and no event says whether one does. So it counts only where no other process
// can have: on a simulated card, or where the readings of the run show that the process was alone on the
// card from before the first of these events until after the last. Otherwise that part of the driver
// overhead is unknown, even if the measurement looks plausible. The third counts on a simulated card only.
//
// The readings are no proof: a process that starts and ends between two of them is not seen.

// OverheadParts is a set of parts of the driver overhead.
type OverheadParts uint8

// The parts, each a field of [OtherMemory].
const (
	ContextPart OverheadParts = 1 << iota
	ModulesPart
	LoadsPart
	GraphsPart
	PoolsPart // not driver overhead, but in the same events

	AllOverhead = ContextPart | ModulesPart | LoadsPart | GraphsPart
)

// Has says whether one of some parts is in the set.
func (p OverheadParts) Has(some OverheadParts) bool { return p&some != 0 }

// DriverOverhead is the growth of used memory, in bytes, while the driver created a context, loaded kernels, initialised
// libraries and created graphs.
type DriverOverhead struct{ Context, Modules, Loads, Graphs int64 }

// Overhead returns the known driver overhead.
func (o *DriverOverhead) Overhead() int64 { return o.Context + o.Modules + o.Loads + o.Graphs }

// grow adds what an overhead event measured, and returns the part that this is of.
func (o *DriverOverhead) grow(what string, bytes int64) OverheadParts {
	switch what {
	case "context":
		o.Context += bytes
		return ContextPart
	case "module":
		o.Modules += bytes
		return ModulesPart
	case "graph":
		o.Graphs += bytes
		return GraphsPart
	}
	o.Loads += bytes
	return LoadsPart
}

// smallestContext is less than the CUDA context of any process, and more than a card without one has in use,
// in bytes.
const smallestContext = 32 << 20

// Reasons why a part of the driver overhead is unknown.
const (
	WhyWholeCard = "it was measured as growth of the whole card, where other processes may have allocated or freed memory meanwhile"
	WhyOthers    = "it was measured as growth of the whole card while other processes had memory there"
	WhyTotal     = "it could not be measured by itself: all used memory of the card was taken for it"
	WhyReturned  = "the driver freed more than it was seen to allocate"
	WhyRefuted   = "it measured more than was in use while it existed"
	WhyExceeds   = "it measured more than the reading leaves for it"
)

// CardGrowth is driver overhead that was measured as growth of the whole card, in bytes. It is in no sum
// until [Reconcile] finds that no other process was on the card.
type CardGrowth struct {
	DriverOverhead
	Parts       OverheadParts // that were measured so
	First, Last int64         // times of the events
	Total       bool          // Context is all that was in use
	Others      bool          // the driver listed other processes meanwhile
}

// Overhead takes an overhead event: what a driver call added to the used memory of the process or the card.
func (t *Tracker) Overhead(d *Device, e *trace.Event) {
	d.Changing(e.Time)
	given, b := trace.ParseContext(e.Kind, t.text(e.Context)), &d.now
	switch {
	case contextEnded(e, given):
		*b = OtherMemory{Libraries: b.Libraries, Managed: b.Managed, HostPinned: b.HostPinned, ContextSince: e.Time}
	case given.Get("what") == "pool":
		b.Pools += e.OverheadBytes()
	case ownGrowth(given):
		b.grow(given.Get("what"), e.OverheadBytes())
	default:
		b.growOnCard(given, e)
	}
	if given.Get("what") == "context" {
		b.ContextSince = e.Time
	}
	d.changedBy(e)
}

// contextEnded says whether the device's last context was destroyed. All driver overhead ends with it, however
// it was measured.
func contextEnded(e *trace.Event, given trace.Context) bool {
	return given.Get("what") == "context" && given.Get("name") == "" && given.Get("how") == "" && e.OverheadBytes() < 0
}

// ownGrowth says whether the event measured the process's own use. Events without how= did so for contexts, but
// not for the memory of a context's limits, which have a name=.
func ownGrowth(given trace.Context) bool {
	return given.Get("how") == "process" || given.Get("how") == "" && given.Get("what") == "context" && given.Get("name") == ""
}

func (b *OtherMemory) growOnCard(given trace.Context, e *trace.Event) {
	g := &b.OnCard
	if g.Parts == 0 {
		g.First = e.Time
	}
	g.Last = e.Time
	g.Parts |= g.grow(given.Get("what"), e.OverheadBytes())
	g.Others = g.Others || given.Get("others") != ""
	switch given.Get("how") {
	case "total":
		g.Total, b.ContextIsAll = true, true
	case "device":
		b.ContextOfDevice = b.ContextOfDevice || given.Get("what") == "context"
	}
}

// countOverhead decides which measurements of the whole card count, if the process was alone on the card from
// one time until another; never if until is less than from. why is the reason if they do not.
func (b *OtherMemory) countOverhead(from, until int64, why string) {
	g := b.OnCard
	b.OnCard = CardGrowth{}
	switch {
	case g.Parts == 0:
	case g.Total && until < math.MaxInt64:
		b.markUnknown(g.Parts, WhyTotal)
	case g.Others:
		b.markUnknown(g.Parts, WhyOthers)
	case from <= g.First && g.Last <= until:
		b.Context, b.Modules, b.Loads, b.Graphs = b.Context+g.Context, b.Modules+g.Modules, b.Loads+g.Loads, b.Graphs+g.Graphs
	default:
		b.markUnknown(g.Parts, why)
	}
	for part, bytes := range b.parts() {
		if *bytes < 0 {
			b.markUnknown(part, WhyReturned)
		}
	}
}

// parts returns the parts and their bytes.
func (b *OtherMemory) parts() map[OverheadParts]*int64 {
	return map[OverheadParts]*int64{
		ContextPart: &b.Context, ModulesPart: &b.Modules, LoadsPart: &b.Loads, GraphsPart: &b.Graphs, PoolsPart: &b.Pools,
	}
}

// markUnknown marks parts unknown. UnknownWhy keeps the first reason.
func (b *OtherMemory) markUnknown(parts OverheadParts, why string) {
	for part, bytes := range b.parts() {
		if parts.Has(part) {
			*bytes = 0
		}
	}
	b.Unknown |= parts
	if b.UnknownWhy == "" {
		b.UnknownWhy = why
	}
}

// countOverhead decides it for all instants of the member's device.
func (m *Member) countOverhead(readings *GPUReadings) {
	from, until, why := int64(0), int64(-1), WhyWholeCard
	switch {
	case m.Private:
		until = math.MaxInt64
	case readings != nil:
		from, until = readings.alone(m.PID)
		if until >= 0 {
			why = WhyOthers
		}
	}
	h := m.Holdings
	h.Peak.countOverhead(from, until, why)
	h.Final.countOverhead(from, until, why)
	for i := range h.Moments {
		h.Moments[i].countOverhead(from, until, why)
	}
}

// alone returns the time span in which every reading shows that only the process pid had a context on the
// card; until is -1 if the driver did not report the process's use.
func (g *GPUReadings) alone(pid int) (from, until int64) {
	own := g.Processes[pid]
	if len(own) == 0 || len(g.All) == 0 || g.All[0].Used >= smallestContext {
		return 0, -1
	}
	from, until = g.All[0].First, -1
	for _, s := range g.All {
		for _, at := range []int64{s.First, s.Last} {
			if s.Used-own.inRound(at) >= smallestContext {
				return from, until
			}
			until = at
		}
	}
	return from, until
}

// inRound returns the reading of the round that began at a time: a process's use is read a little after the
// card's. It is 0 before the first.
func (c Course) inRound(time int64) (used int64) {
	for i := range c {
		s := &c[i]
		if s.First > time && s.First-time >= dataset.ReadingInterval.Nanoseconds() {
			break
		}
		used = s.Used
	}
	return used
}
