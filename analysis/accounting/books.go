package accounting

import (
	"cmp"
	"slices"
	"strconv"
)

// Books hold what the events of a run explain against what a GPU had in use:
//
//	used = requested + internal + pending + reserve + external   (R, the allocator)
//	     + other libraries                                       (external_alloc events)
//	     + driver overhead, idle pools of the driver             (overhead events)
//	     + unexplained
//
// Every part but the last is measured by itself. A part is a number from 0 to used, or it is
// unknown: driver overhead that other processes may have disturbed ([OverheadParts]), used
// where no reading was taken while the state lasted, and unexplained unless the reading is
// of the process alone and no other part is unknown.
type Books struct {
	Scope Scope
	// Processes are those whose memory the terms are the sum of: one, unless the books are
	// of a device that several use.
	Processes []string
	GPU       int // in run.json's list; -1 if not known
	// Baseline is what the card had in use before the job began. It is taken off nothing:
	// whoever had it may have returned it, or taken more, since.
	Baseline int64
	UsedPeak int64  // the greatest reading; -1 without a reading
	Missing  string // why there is no reading, "" if there is
	Peak     Book
	End      Book
}

// Scope says whose use of a GPU was read.
type Scope string

const (
	// ScopeProcess: the driver told the use of this process.
	ScopeProcess Scope = "process"
	// ScopeDevice: it reported that of the whole card only, as in most containers: the use of all
	// who are on it.
	ScopeDevice Scope = "device"
	// ScopeCard: the process itself asked the driver (cuMemGetInfo), for want of any other
	// source. That is the use of all who are on the card, with what the driver keeps for
	// itself. Nothing was read before the job, so there is no baseline.
	ScopeCard Scope = "card"
)

// Book is one closing of the books.
type Book struct {
	Holding
	Read Reading
	// UsedUnknown says why the memory in use at the instant is not known, "" if it is: then
	// it is Read.Used, and the known parts and Rest add up to it.
	UsedUnknown string
	// Rest is what was used beyond all known parts: what is unexplained, and what the unknown
	// parts have; 0 if used is not known.
	Rest int64
	// Unexplained is the Rest, if UnexplainedUnknown is "", which otherwise says why it is
	// not known; 0 then.
	Unexplained        int64
	UnexplainedUnknown string
	// ContextRefuted is what a context was measured as that Context does not have: it is
	// more than was read while the context was there. 0 where nothing speaks against it.
	ContextRefuted int64
}

// Reading is the one that a Book is held against.
type Reading struct {
	Valid bool
	Used  int64
	// After is how far it was taken from the instant, in nanoseconds; negative before it.
	After int64
	// Steady says that nothing the events tell of changed between the two. If it is false
	// no reading was taken while the state of the instant lasted.
	Steady bool
}

// Member is a device of a process, for [CloseBooks].
type Member struct {
	Process  string // its name in the run
	Duration int64  // time of its last event
	Device   int32
	MaxR     int64 // greatest reserved bytes
	External External
	Holdings *Holdings // unknown parts are decided there
	UUID     string    // the driver's name for the device; "" where it has none

	PID   int
	GPU   int   // in run.json's list; -1 if not known
	Alive int64 // when the process was last seen, perhaps after its last event; 0 if not known
	// Private says that nobody else can have memory on the device, as where it is simulated.
	Private bool

	Books *Books // what CloseBooks found
}

// uses says whether a process has ever had anything on the device.
func (m *Member) uses() bool {
	h := m.Holdings
	return m.MaxR > 0 || m.External.Calls > 0 || h.Peak.Sum() != 0 || h.Final.Sum() != 0 || h.Peak.Unknown|h.Final.Unknown != 0
}

// CloseBooks fills in the Books of all devices of a run. Readings are nil, and missing says
// why, where there are none: then what a process read itself stands for them, on a device
// that no other uses. Otherwise their [Readings.Moments] were in the Options of each Result.
func CloseBooks(members []Member, readings *Readings, missing string) {
	groups := map[int][]*Member{}
	for i := range members {
		m := &members[i]
		m.countOverhead(readings.of(m.GPU))
		m.Books = unread(m, missing)
		switch {
		case !m.uses():
			m.Books.Missing = cmp.Or(missing, "the process had no memory on the device")
		case readings == nil:
			m.closeByOwn(members)
		case m.GPU < 0 || m.GPU >= len(readings.GPUs) || len(readings.GPUs[m.GPU].All) == 0:
			m.Books.Missing = "the device's used memory was not read"
		default:
			groups[m.GPU] = append(groups[m.GPU], m)
		}
	}
	for gpu, group := range groups {
		closeGPU(group, &readings.GPUs[gpu])
	}
}

// unread are the books without a reading.
func unread(m *Member, missing string) *Books {
	h := m.Holdings
	return &Books{
		Scope: ScopeProcess, Processes: []string{m.Process}, GPU: m.GPU, UsedPeak: -1, Missing: missing,
		Peak: unreadBook(h.Peak), End: unreadBook(h.Final),
	}
}

func unreadBook(h Holding) Book {
	return Book{Holding: h, UsedUnknown: WhyUnread, UnexplainedUnknown: WhyUnread}
}

// closeGPU closes the books of the processes on one GPU: each its own where the driver told
// the use of all of them, otherwise those of the device.
func closeGPU(group []*Member, readings *GPUReadings) {
	told := !slices.ContainsFunc(group, func(m *Member) bool { return len(readings.Processes[m.PID]) == 0 })
	for _, m := range group {
		b := m.Books
		switch {
		case told:
			b.closeAlone(m, readings.Processes[m.PID])
		case len(group) == 1:
			b.Scope, b.Baseline = ScopeDevice, readings.baseline()
			b.closeAlone(m, readings.All)
		}
	}
	if !told && len(group) > 1 {
		b := closeTogether(group, readings)
		for _, m := range group {
			if b.Missing != "" { // each still has what its own events tell
				m.Books.Missing = b.Missing
				continue
			}
			shared := *b
			m.Books = &shared
		}
	}
}

// closeAlone closes the books of one process at its own peak and end.
func (b *Books) closeAlone(m *Member, course Course) {
	b.UsedPeak = course.greatest()
	why := ""
	if b.Scope == ScopeDevice || b.Scope == ScopeCard && !m.Private {
		why = WhyNotOurs
	}
	for _, book := range []*Book{&b.Peak, &b.End} {
		if book.At.Seq >= 0 { // else nothing was ever there that is in a sum
			if most, ok := m.mostWithContext(book, course); ok {
				book.doubtContext(most)
			}
			book.hold(m.readingFor(book, course), why)
		}
	}
}

// mostWithContext is the greatest reading taken while the contexts of a book were there.
func (m *Member) mostWithContext(b *Book, course Course) (used int64, ok bool) {
	until := max(m.Duration, m.Alive)
	if final := &m.Holdings.Final; b.ContextSince != final.ContextSince {
		until = b.Until - settling
	}
	return course.greatestWithin(b.ContextSince+settling, until)
}

// tolerance is how far driver overhead may be above what a reading leaves for it and still be
// a number: a card's use and a process's are not counted alike to the byte.
func tolerance(used int64) int64 { return used / 16 }

// doubtContext makes unknown what was measured as a context, if it was more than was used
// with it.
func (b *Book) doubtContext(used int64) {
	if b.Context > used+tolerance(used) {
		b.ContextRefuted = b.Context
		b.forget(ContextPart, WhyRefuted)
	}
}

// Reasons why what is used, or unexplained, is unknown.
const (
	WhyUnread    = "the use of the device was not read"
	WhyUnsteady  = "no reading was taken while the state of this instant lasted"
	WhyTooLittle = "less was read than the events have there"
	WhyNotOurs   = "the whole card was read: the memory of other processes is in it"
	WhyBeyond    = "the parts are more than was read"
	WhyOverhead  = "driver overhead is not known"
)

// hold holds a book against a reading; whole says why that is not of the process alone.
func (b *Book) hold(r Reading, whole string) {
	b.Read, b.UsedUnknown, b.UnexplainedUnknown = r, "", whole
	switch {
	case !r.Valid:
		b.UsedUnknown = WhyUnread
	case !r.Steady:
		b.UsedUnknown = WhyUnsteady
	case b.At.R+b.Other()+b.Pools > r.Used:
		b.UsedUnknown = WhyTooLittle
	}
	if b.UsedUnknown != "" {
		b.UnexplainedUnknown = b.UsedUnknown
		return
	}
	if b.Sum() > r.Used+tolerance(r.Used) || b.Overhead() > r.Used {
		b.forget(AllOverhead, WhyExceeds)
	}
	b.Rest = max(0, r.Used-b.Sum())
	switch {
	case whole != "":
	case b.Sum() > r.Used:
		b.UnexplainedUnknown = WhyBeyond
	case b.Unknown != 0:
		b.UnexplainedUnknown = WhyOverhead
	default:
		b.Unexplained = b.Rest
	}
}

// readingFor chooses the reading for a book. What a process has after its last event it may
// be giving back already, so readings up to that come first; but a process that is idle
// until it ends has no others.
func (m *Member) readingFor(b *Book, course Course) Reading {
	since, last := b.Since+settling, m.Duration
	if b.Until >= 0 {
		return course.at(b.At.Time, since, b.Until-settling, last)
	}
	r := course.at(b.At.Time, since, last, last)
	if r.Steady || m.Alive <= last {
		return r
	}
	return course.at(b.At.Time, since, m.Alive, m.Alive)
}

// closeTogether closes the books of a device that several processes use: at the moment of
// the greatest reading, and at the last one at which all of them were recorded.
func closeTogether(group []*Member, readings *GPUReadings) *Books {
	b := &Books{Scope: ScopeDevice, GPU: group[0].GPU, Baseline: readings.baseline()}
	b.UsedPeak = readings.All.greatest()
	for _, m := range group {
		b.Processes = append(b.Processes, m.Process)
	}
	slices.SortFunc(b.Processes, compareNames)
	var peak, end joint
	for _, moment := range readings.moments() {
		j := joinAt(group, moment)
		if j.processes == 0 {
			continue
		}
		if j.betterPeak(&peak) {
			peak = j
		}
		if j.betterEnd(&end) {
			end = j
		}
	}
	b.Peak, b.End = peak.book(), end.book()
	if end.processes == 0 {
		b.Missing = "no reading was taken while the processes were recorded"
	}
	return b
}

// compareNames orders names of processes, numbers in them by value: rank2 before rank10.
func compareNames(a, b string) int {
	number := func(name string) (string, int) {
		end := len(name)
		for end > 0 && name[end-1] >= '0' && name[end-1] <= '9' {
			end--
		}
		n, _ := strconv.Atoi(name[end:])
		return name[:end], n
	}
	textA, numberA := number(a)
	textB, numberB := number(b)
	return cmp.Or(cmp.Compare(textA, textB), cmp.Compare(numberA, numberB))
}

// joint is what several processes have on a device at one moment.
type joint struct {
	Holding
	stretch   stretch
	processes int // that were being recorded
	steady    bool
}

// joinAt sums up the processes at a moment. One that is idle after its last event holds
// what it had until it ends.
func joinAt(group []*Member, moment moment) joint {
	j := joint{stretch: moment.stretch}
	j.Until = -1
	for _, m := range group {
		holdings := m.Holdings
		at, recorded := slices.BinarySearchFunc(holdings.Moments, moment.time, func(h Holding, time int64) int {
			return cmp.Compare(h.At.Time, time)
		})
		switch {
		case recorded:
			j.processes++
			j.Holding.plus(&holdings.Moments[at])
		case moment.time >= m.Duration && moment.time <= m.Alive:
			j.Holding.plus(&holdings.Final)
		}
	}
	until := moment.stretch.Last
	if j.Until >= 0 {
		until = j.Until - settling
	}
	j.steady = j.stretch.readWithin(j.Since+settling, until)
	j.At.Seq, j.At.Time, j.At.Iteration = -1, moment.time, -1
	sortLibraries(j.Libraries)
	return j
}

// plus adds what another process has on the same device.
func (h *Holding) plus(o *Holding) {
	a, b := &h.At, &o.At
	a.T, a.R, a.Unsplit = a.T+b.T, a.R+b.R, a.Unsplit+b.Unsplit
	if a.C < 0 || b.C < 0 { // of a watched allocator, where it was not read
		a.C = -1
	} else {
		a.C += b.C
	}
	a.Rounding, a.Slack, a.Pending = a.Rounding+b.Rounding, a.Slack+b.Slack, a.Pending+b.Pending
	a.Stranded, a.Reserve, a.Reusable, a.External = a.Stranded+b.Stranded, a.Reserve+b.Reserve, a.Reusable+b.Reusable, a.External+b.External
	a.Live += b.Live
	h.Context, h.Modules, h.Loads, h.Graphs = h.Context+o.Context, h.Modules+o.Modules, h.Loads+o.Loads, h.Graphs+o.Graphs
	h.ContextOfDevice, h.ContextIsAll = h.ContextOfDevice || o.ContextOfDevice, h.ContextIsAll || o.ContextIsAll
	h.Pools, h.ContextSince = h.Pools+o.Pools, max(h.ContextSince, o.ContextSince)
	h.Unknown, h.UnknownWhy = h.Unknown|o.Unknown, cmp.Or(h.UnknownWhy, o.UnknownWhy)
	h.Managed, h.HostPinned = h.Managed+o.Managed, h.HostPinned+o.HostPinned
	for _, l := range o.Libraries {
		h.OtherMemory.add(&owner{library: l.Name}, l.Bytes)
	}
	h.Since = max(h.Since, o.Since)
	if o.Until >= 0 && (h.Until < 0 || o.Until < h.Until) {
		h.Until = o.Until
	}
}

// betterPeak prefers greater use, then moments at which nothing changed, then longer stretches.
func (j *joint) betterPeak(than *joint) bool {
	switch {
	case than.processes == 0:
		return true
	case j.stretch.Used != than.stretch.Used:
		return j.stretch.Used > than.stretch.Used
	case j.steady != than.steady:
		return j.steady
	}
	return j.stretch.length() > than.stretch.length()
}

// betterEnd prefers moments with more processes, then those at which nothing changed, then
// later ones.
func (j *joint) betterEnd(than *joint) bool {
	switch {
	case j.processes != than.processes:
		return j.processes > than.processes
	case j.steady != than.steady:
		return j.steady
	}
	return j.At.Time > than.At.Time
}

func (j *joint) book() Book {
	b := Book{Holding: j.Holding, UsedUnknown: WhyUnread, UnexplainedUnknown: WhyUnread}
	b.forget(b.Unknown, b.UnknownWhy) // what one process knows of such a part is not all of it
	if j.processes > 0 {
		if j.steady {
			b.doubtContext(j.stretch.Used)
		}
		b.hold(Reading{Valid: true, Used: j.stretch.Used, Steady: j.steady}, WhyNotOurs)
	}
	return b
}
