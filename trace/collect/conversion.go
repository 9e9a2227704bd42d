package collect

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// conversion converts one process from its spool directory to parts.
type conversion struct {
	*translation
	to     *dataset.Writer
	silent int            // number of last polls that found it dead and without new events
	ahead  *spool.Process // passes over each event once as it comes, if the collector keeps a ring
	alive  int64          // CLOCK_MONOTONIC, ns, when it was last seen alive; 0 for never
}

// translation turns the events of a spool into those of a trace.
type translation struct {
	from   *spool.Process
	base   int64                   // Info.ClockBase
	intern func(text string) int32 // of the trace's strings
	ids    map[uint32]int32        // number of a string in the spool -> its number in the trace
	last   trace.Event
}

func translate(from *spool.Process, base int64, intern func(string) int32) *translation {
	return &translation{from: from, base: base, intern: intern, ids: map[uint32]int32{}}
}

// event is valid until the next call.
func (t *translation) event(spooled *trace.Event, seq int64) *trace.Event {
	t.last = *spooled
	e := &t.last
	e.Seq = seq
	e.Time = (e.Time - t.base) &^ (dataset.TimeStep - 1)
	e.Context = t.context(uint32(e.Context))
	return e
}

func (t *translation) context(spoolID uint32) int32 {
	if spoolID == 0 {
		return 0
	}
	id, ok := t.ids[spoolID]
	if !ok {
		id = t.intern(t.from.Text(spoolID))
		t.ids[spoolID] = id
	}
	return id
}

// convert begins to convert a process after the parts that it has.
func (c *Collector) convert(from *spool.Process, parts []dataset.Part, opt dataset.WriterOptions) (p *conversion, err error) {
	p = &conversion{}
	if len(parts) == 0 {
		p.to = dataset.NewWriter(c.dir, c.meta(from), opt)
	} else {
		if p.to, err = dataset.ResumeWriter(c.dir, opt, parts); err != nil {
			return nil, err
		}
		if err := from.SkipTo(max(parts[len(parts)-1].NextSlot, 0)); err != nil {
			return nil, err
		}
	}
	p.translation = translate(from, c.opt.ClockBase, p.to.Intern)
	return p, nil
}

// giveUp removes what is incomplete and closes all files.
func (p *conversion) giveUp() {
	p.to.Abandon()
	p.from.Close()
	p.closeRing()
}

func (c *Collector) meta(from *spool.Process) dataset.ProcessMeta {
	h := &from.Header
	return dataset.ProcessMeta{
		RunID: c.opt.RunID, Name: c.unusedName(h), Spool: from.Name, PID: int(h.PID),
		Rank: int(h.Rank), LocalRank: int(h.LocalRank), WorldSize: int(h.WorldSize), LocalWorldSize: max(int(h.LocalWorldSize), 0),
		Command: h.Command, Frameworks: h.Frameworks,
	}
}

// nameOf is rankN, or pidN, with the class of an actor of Ray behind it.
func nameOf(h *spool.Header) string {
	if h.Rank >= 0 {
		return fmt.Sprintf("rank%d", h.Rank)
	}
	if actor := rayActor.FindStringSubmatch(h.Command); actor != nil && actor[1] != "IDLE" {
		return fmt.Sprintf("pid%d-%s", h.PID, actor[1])
	}
	return fmt.Sprintf("pid%d", h.PID)
}

// rayActor finds the class of an actor, or the function of a task, in the title that Ray gives a worker's process: ray::Trainer.step.
var rayActor = regexp.MustCompile(`^ray::([A-Za-z_][A-Za-z0-9_]{0,63})\b`)

// unusedName is nameOf. If several processes have one rank (children of a launcher), the pid
// follows in the names of all but the first.
func (c *Collector) unusedName(h *spool.Header) string {
	name := nameOf(h)
	if c.names[name] && h.Rank >= 0 {
		name = fmt.Sprintf("rank%d-pid%d", h.Rank, h.PID)
	}
	for base, n := name, 2; c.names[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	c.names[name] = true
	return name
}

// follow converts what one process has written since the last call. ended: the process has ended and is
// converted completely.
func (c *Collector) follow(p *conversion) (progress, ended bool, err error) {
	// Ask first whether it is alive: all that it wrote before it was found dead is read below.
	alive, err := p.from.Alive()
	if err != nil {
		return false, false, err
	}
	if alive {
		p.alive = monotonic()
	}
	if _, err := p.from.Refresh(); err != nil {
		return false, false, err
	}
	reader := p.from
	if c.opt.Ring > 0 {
		progress, err = c.followRing(p)
		if p.ahead != nil {
			reader = p.ahead
		}
	} else {
		progress, err = c.drain(p, false)
	}
	if err != nil {
		return progress, false, err
	}
	if reader.Drained() {
		if _, err := c.drain(p, false); err != nil {
			return progress, false, err
		}
		return progress, true, c.end(p)
	}
	if alive || progress {
		p.silent = 0
		return progress, false, nil
	}
	// A process that has just made its directory may not hold its lock yet, so one poll is not enough.
	if p.silent++; p.silent < 2 {
		return progress, false, nil
	}
	if _, err := c.drain(p, true); err != nil {
		return true, false, err
	}
	return true, true, c.end(p)
}

func (c *Collector) drain(p *conversion, final bool) (progress bool, err error) {
	var deleting error // not fatal: the events are in complete parts
	progress, err = p.from.Read(final, func(spooled *trace.Event, slot int64) error {
		e := p.event(spooled, p.to.NextSeq())
		parts := len(p.to.Parts())
		err := p.to.AppendSlot(e, slot)
		if errors.Is(err, trace.ErrDiskFull) && c.removeBallast() {
			err = c.completeEarly(p, e, slot)
		}
		if err == nil && len(p.to.Parts()) != parts {
			deleting = errors.Join(deleting, c.deleteSegments(p))
		}
		return err
	})
	if errors.Is(err, trace.ErrDiskFull) {
		err = c.diskStaysFull(p, err)
	}
	return progress, errors.Join(err, deleting)
}

// completeEarly completes the current part in the room of the ballast, so that the segments of its events
// can be deleted: they are larger than the part.
func (c *Collector) completeEarly(p *conversion, e *trace.Event, slot int64) error {
	if err := p.to.CompletePart(); err != nil {
		return err
	}
	if len(p.to.Parts()) > 0 {
		if err := c.deleteSegments(p); err != nil {
			return err
		}
	}
	return p.to.AppendSlot(e, slot)
}

// deleteSegments deletes the segments whose events are all in complete parts.
func (c *Collector) deleteSegments(p *conversion) error {
	parts := p.to.Parts()
	deleted, err := p.from.DeleteBefore(max(parts[len(parts)-1].NextSlot, 0))
	if deleted {
		// If this fails, a full disk leaves the rest to `memprof record --finish`; no event is lost.
		_ = c.reserveBallast()
	}
	return err
}

// diskStaysFull records that the disk is full and no ballast is left. The error says which events are converted.
func (c *Collector) diskStaysFull(p *conversion, err error) error {
	parts := p.to.Parts()
	valid := "no event of it is converted"
	if len(parts) > 0 {
		last := &parts[len(parts)-1]
		valid = fmt.Sprintf("it is converted up to seq %d (%s)", last.FirstSeq+last.Events-1, filepath.Base(last.Path))
	}
	what := err.Error()
	if full := (*trace.PathError)(nil); errors.As(err, &full) {
		what = full.Detail
	}
	c.full = &trace.PathError{
		Path: c.dir, Err: trace.ErrDiskFull,
		Detail: fmt.Sprintf("%s; %s: %s, the rest is in %s", what, p.to.Name(), valid, p.from.Dir),
		Remedy: fmt.Sprintf("make room and run `memprof record --finish %s`", c.dir),
	}
	return c.full
}

// end completes the parts of a process whose events are all read, and removes its spool directory.
func (c *Collector) end(p *conversion) error {
	ending := p.ending()
	if p.alive > 0 {
		ending.LastAlive = p.alive - c.opt.ClockBase
	}
	p.to.SetFrameworks(p.from.Header.Frameworks)
	err := p.to.Finish(ending)
	if errors.Is(err, trace.ErrDiskFull) && c.removeBallast() {
		err = p.to.Finish(ending)
	}
	if errors.Is(err, trace.ErrDiskFull) {
		err = c.diskStaysFull(p, err)
	}
	if err != nil {
		p.giveUp()
		return err
	}
	c.summarize(p, ending)
	p.from.Close()
	p.closeRing()
	c.ended[p.from.Name] = true
	return c.spool.RemoveProcess(p.from.Name)
}

func (p *conversion) ending() dataset.Ending {
	h := &p.from.Header
	e := dataset.Ending{State: dataset.StateKilled, Lost: p.from.Lost, Problems: p.from.Problems()}
	switch {
	case p.from.Damage != "":
		e.Reason = p.from.Damage
	case h.Closed():
		e.State = dataset.StateClosed
	case h.Stopped():
		e.State = dataset.StateStopped
		e.Reason = h.StopReason
		if e.Reason == "" {
			e.Reason = syscall.Errno(h.StopErrno).Error()
		}
	case !p.from.Ended:
		e.State, e.Reason = dataset.StateStopped, "the recording ended before the process did"
	}
	if n := p.from.Malformed(); n > 0 {
		e.Problems = append(e.Problems, fmt.Sprintf("%d pieces of strings in the spool were malformed", n))
	}
	return e
}

func (c *Collector) summarize(p *conversion, ending dataset.Ending) {
	t := p.to.Totals()
	c.finished.Add(t)
	name := p.to.Name()
	c.summary.Events += t.Events
	c.summary.Processes = append(c.summary.Processes, ProcessSummary{
		Name: name, Events: t.Events, Parts: len(p.to.Parts()), Ending: ending,
	})
	for _, library := range p.from.Header.LibraryNames() {
		if !slices.Contains(c.summary.Libraries, library) {
			c.summary.Libraries = append(c.summary.Libraries, library)
		}
	}
	c.summary.Problems = append(c.summary.Problems, problemsOf(name, t.Events, &ending)...)
}

// problemsOf returns lines for the user about how the recording of a process ended.
func problemsOf(name string, events int64, ending *dataset.Ending) []string {
	var lines []string
	for _, line := range ending.Problems {
		lines = append(lines, name+": "+line)
	}
	switch {
	case ending.State != dataset.StateStopped && ending.Reason == "":
	case events == 0:
		lines = append(lines, fmt.Sprintf("%s: nothing was recorded: %s", name, ending.Reason))
	default:
		lines = append(lines, fmt.Sprintf("%s: recording ended at seq %d: %s", name, events-1, ending.Reason))
	}
	return lines
}

// monotonic reads the clock of event times, CLOCK_MONOTONIC, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano()
}
