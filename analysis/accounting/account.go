package accounting

import (
	"cmp"
	"slices"
	"strconv"
)

// Account is the device accounting: it compares the terms that the events of a run give with the bytes
// that a GPU had in use.
//
//	used = requested + internal + pending + reserve + external   (R, the allocator)
//	     + other libraries                                       (external_alloc events)
//	     + driver overhead, idle pools of the driver             (overhead events)
//	     + unexplained
//
// Every term but the last is measured by itself. A term is a number from 0 to used, or unknown:
//   - driver overhead is unknown where other processes may have changed the measurement ([OverheadParts]);
//   - used is unknown where no reading was taken while the memory of the process stayed as it was;
//   - unexplained is unknown where the reading includes other processes, or another term is unknown.
type Account struct {
	Scope Scope
	// Processes are the processes that the terms are summed over: one, or all of a shared device.
	Processes []string
	GPU       int // in run.json's list; -1 if not known
	// UsedBeforeJob is what the card had in use before the job began, in bytes. It is not subtracted
	// from used: the processes that had it may since have freed it, or allocated more.
	UsedBeforeJob int64
	// Beside is what the card had in use beside this process while its own use was steady, at most, in bytes. It is 0 but in ScopeProcess.
	Beside   int64
	UsedPeak int64  // the greatest reading, in bytes; -1 without a reading
	Missing  string // why there is no reading, "" if there is
	Course   Course // the readings, of one process
	Peak     Balance
	End      Balance
}

// Scope says whose use of a GPU was read.
type Scope string

const (
	// ScopeProcess: the driver reported the use of this process.
	ScopeProcess Scope = "process"
	// ScopeDevice: the driver reported the use of the whole card only, all processes included, as in most
	// containers.
	ScopeDevice Scope = "device"
	// ScopeCard: the process itself asked the driver (cuMemGetInfo), because there was no other
	// source. That is the use of the whole card, all processes and the driver's own memory included.
	// Nothing was read before the job: UsedBeforeJob is 0.
	ScopeCard Scope = "card"
)

// Balance compares the terms with a reading at one instant.
type Balance struct {
	Holding
	Read Reading
	// UsedUnknown says why used is unknown at the instant. If it is "", used is Read.Used, and the
	// known terms and Rest add up to it.
	UsedUnknown string
	// Rest is used minus the known terms, in bytes: the unknown terms and what is unexplained. It is 0 if
	// used is unknown.
	Rest int64
	// Unexplained is Rest if UnexplainedUnknown is "". Otherwise it is 0, and UnexplainedUnknown says
	// why it is unknown.
	Unexplained        int64
	UnexplainedUnknown string
	// ContextRefuted is the measured size of a CUDA context that is left out of Context because it is more
	// than any reading while the context existed. It is 0 if the measurement was accepted.
	ContextRefuted int64
}

// Reading is the reading that a Balance is compared with.
type Reading struct {
	Valid bool
	Used  int64
	// After is when it was taken, in nanoseconds after the instant; negative if before.
	After int64
	// Steady says that no event between the instant and the reading changed the process's memory. If it is
	// false, no reading was taken while the memory stayed as it was at the instant.
	Steady bool
}

// Member is one device as one process used it, for [Reconcile].
type Member struct {
	Process        string // its name in the run
	Duration       int64  // time of its last event
	Device         int32
	MaxR           int64 // greatest reserved bytes
	OtherLibraries OtherLibraries
	Holdings       *Holdings // Reconcile marks its unknown terms
	UUID           string    // the driver's name for the device; "" where it has none

	PID   int
	GPU   int   // in run.json's list; -1 if not known
	Alive int64 // when the process was last seen, perhaps after its last event; 0 if not known
	// Private says that no other process can have memory on the device: it is simulated.
	Private bool
	// Unseen is why the recording has no calls of CUDA: driver overhead and the memory of other libraries are unknown. "" if it has them.
	Unseen string

	Account *Account // set by Reconcile
}

// uses says whether the process ever had memory on the device.
func (m *Member) uses() bool {
	h := m.Holdings
	return m.MaxR > 0 || m.OtherLibraries.Calls > 0 || h.Peak.Sum() != 0 || h.Final.Sum() != 0 || h.Peak.Unknown|h.Final.Unknown != 0
}

// Reconcile sets the Account of all members: the devices of a run's processes.
//
// If readings is nil, missing says why there are none, and the readings that a process took itself are used
// instead where no other process of the run uses the device. Otherwise Options.Moments of each analysis
// must have been [Readings.Moments].
func Reconcile(members []Member, readings *Readings, missing string) {
	groups := map[int][]*Member{}
	for i := range members {
		m := &members[i]
		m.countOverhead(readings.of(m.GPU))
		m.markUnseen()
		m.Account = withoutReading(m, missing)
		switch {
		case !m.uses():
			m.Account.Missing = cmp.Or(missing, "the process had no memory on the device")
		case readings == nil:
			m.reconcileOwnReadings(members)
		case m.GPU < 0 || m.GPU >= len(readings.GPUs) || len(readings.GPUs[m.GPU].All) == 0:
			m.Account.Missing = "the device's used memory was not read"
		default:
			groups[m.GPU] = append(groups[m.GPU], m)
		}
	}
	for gpu, group := range groups {
		reconcileGPU(group, &readings.GPUs[gpu])
	}
}

// Unseen says whether the parts that are not known are all that calls of CUDA would say: the recording has none.
func Unseen(parts OverheadParts) bool { return parts == AllOverhead|PoolsPart }

// markUnseen marks what calls of CUDA would say unknown, if the recording has none.
func (m *Member) markUnseen() {
	if m.Unseen == "" {
		return
	}
	h := m.Holdings
	h.Peak.markUnknown(AllOverhead|PoolsPart, m.Unseen)
	h.Final.markUnknown(AllOverhead|PoolsPart, m.Unseen)
	for i := range h.Moments {
		h.Moments[i].markUnknown(AllOverhead|PoolsPart, m.Unseen)
	}
}

// withoutReading returns the account of a member without a reading.
func withoutReading(m *Member, missing string) *Account {
	h := m.Holdings
	return &Account{
		Scope: ScopeProcess, Processes: []string{m.Process}, GPU: m.GPU, UsedPeak: -1, Missing: missing,
		Peak: unreadBalance(h.Peak), End: unreadBalance(h.Final),
	}
}

func unreadBalance(h Holding) Balance {
	return Balance{Holding: h, UsedUnknown: WhyUnread, UnexplainedUnknown: WhyUnread}
}

// reconcileGPU sets the accounts of the processes on one GPU: one for each process if the driver reported
// the use of each, otherwise one for the device.
func reconcileGPU(group []*Member, readings *GPUReadings) {
	eachRead := !slices.ContainsFunc(group, func(m *Member) bool { return len(readings.Processes[m.PID]) == 0 })
	for _, m := range group {
		b := m.Account
		switch {
		case eachRead:
			b.Beside = readings.beside(readings.Processes[m.PID])
			b.reconcileProcess(m, readings.Processes[m.PID])
		case len(group) == 1:
			b.Scope, b.UsedBeforeJob = ScopeDevice, readings.usedBeforeJob()
			b.reconcileProcess(m, readings.All)
		}
	}
	if !eachRead && len(group) > 1 {
		b := reconcileShared(group, readings)
		for _, m := range group {
			if b.Missing != "" { // each keeps the terms of its own events
				m.Account.Missing = b.Missing
				continue
			}
			shared := *b
			m.Account = &shared
		}
	}
}

// reconcileProcess compares the terms of one process with readings at its own peak and end.
func (b *Account) reconcileProcess(m *Member, course Course) {
	b.UsedPeak, b.Course = course.greatest(), course
	why := ""
	if b.Scope == ScopeDevice || b.Scope == ScopeCard && !m.Private {
		why = WhyNotOurs
	}
	for _, balance := range []*Balance{&b.Peak, &b.End} {
		if balance.At.Seq >= 0 { // otherwise the process never had memory that is in a term
			if most, ok := m.mostWithContext(balance, course); ok {
				balance.refuteContext(most)
			}
			balance.compare(m.readingFor(balance, course), why)
		}
	}
}

// mostWithContext returns the greatest reading taken while the CUDA contexts of a balance existed.
func (m *Member) mostWithContext(b *Balance, course Course) (used int64, ok bool) {
	until := max(m.Duration, m.Alive)
	if final := &m.Holdings.Final; b.ContextSince != final.ContextSince {
		until = b.Until - changeSpan
	}
	return course.greatestWithin(b.ContextSince+changeSpan, until)
}

// tolerance is how many bytes the terms may exceed a reading by before driver overhead counts as unknown: the
// driver does not count the use of a card and of a process alike to the byte.
func tolerance(used int64) int64 { return used / 16 }

// refuteContext marks the context unknown if its measured size exceeds used, the greatest reading while it
// existed.
func (b *Balance) refuteContext(used int64) {
	if b.Context > used+tolerance(used) {
		b.ContextRefuted = b.Context
		b.markUnknown(ContextPart, WhyRefuted)
	}
}

// Reasons why used or unexplained is unknown.
const (
	WhyUnread    = "the device's used memory was not read"
	WhyUnsteady  = "no reading was taken before the process's memory changed again"
	WhyTooLittle = "the reading is less than the arenas, other libraries and driver pools of the events"
	WhyNotOurs   = "the reading is of the whole card: it includes the memory of other processes"
	WhyBeyond    = "the terms exceed the reading"
	WhyOverhead  = "driver overhead is unknown"
)

// compare compares the terms with a reading. If the reading includes other processes, shared says so; otherwise
// it is "".
func (b *Balance) compare(r Reading, shared string) {
	b.Read, b.UsedUnknown, b.UnexplainedUnknown = r, "", shared
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
		b.markUnknown(AllOverhead, WhyExceeds)
	}
	b.Rest = max(0, r.Used-b.Sum())
	switch {
	case shared != "":
	case b.Sum() > r.Used:
		b.UnexplainedUnknown = WhyBeyond
	case b.Unknown != 0:
		b.UnexplainedUnknown = WhyOverhead
	default:
		b.Unexplained = b.Rest
	}
}

// readingFor chooses the reading for a balance. Readings up to the last event come first: after it the process
// may already be freeing its memory. A process that is idle until it ends may have no other readings.
func (m *Member) readingFor(b *Balance, course Course) Reading {
	since, last := b.Since+changeSpan, m.Duration
	if b.Until >= 0 {
		return course.at(b.At.Time, since, b.Until-changeSpan, last)
	}
	r := course.at(b.At.Time, since, last, last)
	if r.Steady || m.Alive <= last {
		return r
	}
	return course.at(b.At.Time, since, m.Alive, m.Alive)
}

// reconcileShared returns the account of a device that several processes use: its peak is the moment of the
// greatest reading, its end the last moment at which all of them were recorded.
func reconcileShared(group []*Member, readings *GPUReadings) *Account {
	b := &Account{Scope: ScopeDevice, GPU: group[0].GPU, UsedBeforeJob: readings.usedBeforeJob()}
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
	b.Peak, b.End = peak.balance(), end.balance()
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

// joint is the memory of several processes on a device at one moment.
type joint struct {
	Holding
	stretch   stretch
	processes int // those recorded at the moment
	steady    bool
}

// joinAt sums the memory of the processes at a moment. A process keeps the memory of its last event until it
// ends.
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
		until = j.Until - changeSpan
	}
	j.steady = j.stretch.readWithin(j.Since+changeSpan, until)
	j.At.Seq, j.At.Time, j.At.Iteration = -1, moment.time, -1
	sortLibraries(j.Libraries)
	return j
}

// plus adds the memory of another process on the same device.
func (h *Holding) plus(o *Holding) {
	h.At.Add(&o.At)
	h.Context, h.Modules, h.Loads, h.Graphs = h.Context+o.Context, h.Modules+o.Modules, h.Loads+o.Loads, h.Graphs+o.Graphs
	h.ContextOfDevice, h.ContextIsAll = h.ContextOfDevice || o.ContextOfDevice, h.ContextIsAll || o.ContextIsAll
	h.Pools, h.ContextSince = h.Pools+o.Pools, max(h.ContextSince, o.ContextSince)
	h.Unknown, h.UnknownWhy = h.Unknown|o.Unknown, cmp.Or(h.UnknownWhy, o.UnknownWhy)
	h.Managed, h.HostPinned = h.Managed+o.Managed, h.HostPinned+o.HostPinned
	for _, l := range o.Libraries {
		h.OtherMemory.add(&origin{library: l.Name}, l.Bytes)
	}
	h.Since = max(h.Since, o.Since)
	if o.Until >= 0 && (h.Until < 0 || o.Until < h.Until) {
		h.Until = o.Until
	}
}

// betterPeak prefers greater use, then steady moments, then longer stretches of equal readings.
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

// betterEnd prefers moments with more processes, then steady moments, then later ones.
func (j *joint) betterEnd(than *joint) bool {
	switch {
	case j.processes != than.processes:
		return j.processes > than.processes
	case j.steady != than.steady:
		return j.steady
	}
	return j.At.Time > than.At.Time
}

func (j *joint) balance() Balance {
	b := Balance{Holding: j.Holding, UsedUnknown: WhyUnread, UnexplainedUnknown: WhyUnread}
	b.markUnknown(b.Unknown, b.UnknownWhy) // a term that is unknown in one process is unknown in the sum
	if j.processes > 0 {
		if j.steady {
			b.refuteContext(j.stretch.Used)
		}
		b.compare(Reading{Valid: true, Used: j.stretch.Used, Steady: j.steady}, WhyNotOurs)
	}
	return b
}
