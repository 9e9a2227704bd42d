package collect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// Follower reads a run while it is recorded: complete parts, and the spool after them. It writes
// nothing, holds no lock and waits for no process, so that it cannot disturb the recording.
type Follower struct {
	dir       string
	Info      dataset.Info
	processes []*Followed
}

// Follow opens the run in dir, which may have no events yet.
func Follow(dir string) (*Follower, error) {
	info, err := dataset.ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &trace.PathError{Path: dir, Err: trace.ErrEmpty, Detail: "no " + dataset.InfoName, Remedy: "give a directory that `memprof record -o` writes"}
	}
	if err != nil {
		return nil, err
	}
	return &Follower{dir: dir, Info: *info}, nil
}

// Ended says whether the recording has ended: it has no spool any more.
func (f *Follower) Ended() (bool, error) {
	_, err := os.Stat(filepath.Join(f.dir, spool.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Abandoned says whether the recording will not continue: it has a spool, but no collector and
// no living process. This may also hold for a moment while a recording begins.
func (f *Follower) Abandoned() (bool, error) {
	place, err := spool.Find(f.dir)
	if err != nil || place == nil {
		return false, err
	}
	defer place.Close()
	worker, err := place.Worker()
	return err == nil && worker == "", err
}

// Processes are those that have recorded so far, in order of appearance.
func (f *Follower) Processes() ([]*Followed, error) {
	parts, err := dataset.ReadParts(f.dir)
	if err != nil {
		return f.processes, err
	}
	for i := range parts {
		meta := &parts[i].Process
		p := f.find(meta)
		if p == nil {
			p = &Followed{run: f}
			f.processes = append(f.processes, p)
		}
		p.ProcessMeta = *meta // with its final name
	}
	place, err := spool.Find(f.dir)
	if err != nil || place == nil {
		return f.processes, err
	}
	defer place.Close()
	names, err := place.Names()
	if err != nil {
		return f.processes, trace.IgnoreMissing(err)
	}
	for _, name := range names {
		if f.find(&dataset.ProcessMeta{Spool: name}) != nil {
			continue
		}
		p, err := place.Readable(name)
		if err != nil {
			return f.processes, err
		}
		if p == nil {
			continue // incomplete, removed or damaged; the collector reports the error
		}
		h := &p.Header
		f.processes = append(f.processes, &Followed{run: f, ProcessMeta: dataset.ProcessMeta{ // its final name differs if another process has the same
			RunID: f.Info.ID, Name: nameOf(h), Spool: name, PID: int(h.PID), Rank: int(h.Rank), WorldSize: int(h.WorldSize), Command: h.Command,
		}})
		p.Close()
	}
	return f.processes, nil
}

func (f *Follower) find(meta *dataset.ProcessMeta) *Followed {
	at := slices.IndexFunc(f.processes, func(p *Followed) bool { return p.same(meta) })
	if at < 0 {
		return nil
	}
	return f.processes[at]
}

// Close closes all files.
func (f *Follower) Close() {
	for _, p := range f.processes {
		p.closeSpool()
	}
}

// Followed is a process of a run that is being recorded.
type Followed struct {
	dataset.ProcessMeta
	run     *Follower
	spool   *spool.Process // nil before the first poll, and when the process is completely converted
	strings *dataset.Strings
	events  *translation // of the spool's
	seq     int64        // of the next event
	ended   bool
}

// same says whether meta, of a part or of a spool directory, is of this process.
func (p *Followed) same(meta *dataset.ProcessMeta) bool {
	if p.Spool == "" || meta.Spool == "" {
		return p.Name == meta.Name
	}
	return p.Spool == meta.Spool
}

// Strings are the context texts of the events since the last call of begin (see Poll).
func (p *Followed) Strings() *dataset.Strings { return p.strings }

// Ended says whether all events of the process are converted and were visited.
func (p *Followed) Ended() bool { return p.ended }

// Poll calls visit with the events since the last call, up to the slots that the process had claimed when Poll
// was called, so that it returns even if the process writes faster than Poll reads. The first
// call starts with the last complete part: it calls begin with the part's first seq, then visit with
// the part's opening rows and events. It starts again in this way after the collector has deleted a
// segment that was to be read next.
func (p *Followed) Poll(begin func(firstSeq int64), visit func(*trace.Event) error) error {
	if p.ended {
		return nil
	}
	if p.spool == nil || p.spool.Overtaken() {
		if err := p.begin(begin, visit); err != nil || p.ended {
			return err
		}
	}
	if _, err := p.spool.Refresh(); err != nil {
		return err
	}
	end := p.spool.End()
	_, err := p.spool.Read(false, func(spooled *trace.Event, slot int64) error {
		if slot >= end {
			return errEnough
		}
		e := p.events.event(spooled, p.seq)
		p.seq++
		return visit(e)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// begin starts, twice if need be: the run may be taken away, and another one put in its place, after its parts were listed and
// before they are opened.
func (p *Followed) begin(begin func(int64), visit func(*trace.Event) error) error {
	err := p.start(begin, visit)
	if errors.Is(err, fs.ErrNotExist) {
		err = p.start(begin, visit)
	}
	return err
}

// start reads the last complete part and opens the spool at the slot after its events. A process without
// a spool directory has ended: its parts hold all events.
func (p *Followed) start(begin func(int64), visit func(*trace.Event) error) error {
	p.closeSpool()
	// Open the spool first: if it is removed, the parts that are found afterwards are complete.
	from, err := p.openSpool()
	if err != nil {
		return err
	}
	parts, err := dataset.ReadParts(p.run.dir)
	if err != nil {
		if from != nil {
			from.Close()
		}
		return err
	}
	parts = slices.DeleteFunc(parts, func(part dataset.Part) bool { return !p.same(&part.Process) })
	p.spool, p.ended, p.seq = from, from == nil, 0
	if len(parts) == 0 {
		p.number(dataset.NewStrings())
		begin(0)
		return nil
	}
	last := slices.MaxFunc(parts, func(a, b dataset.Part) int { return a.Number - b.Number })
	if err := p.readPart(&last, begin, visit); err != nil {
		return err
	}
	p.ended = p.ended || last.Last
	if p.ended {
		return nil
	}
	return from.SkipTo(max(last.NextSlot, 0))
}

// openSpool opens the process's directory in the spool; nil without an error if it is removed.
func (p *Followed) openSpool() (*spool.Process, error) {
	place, err := spool.Find(p.run.dir)
	if err != nil || place == nil {
		return nil, err
	}
	defer place.Close()
	if p.Spool == "" {
		return nil, nil
	}
	return place.Process(p.Spool)
}

// number has the texts of the events numbered by strings.
func (p *Followed) number(strings *dataset.Strings) {
	p.strings = strings
	p.events = translate(p.spool, p.run.Info.ClockBase, strings.Intern)
}

func (p *Followed) readPart(part *dataset.Part, begin func(int64), visit func(*trace.Event) error) error {
	process := dataset.NewProcess([]dataset.Part{*part})
	p.number(process.Strings())
	begin(part.FirstSeq)
	if err := process.Each(visit); err != nil {
		return err
	}
	p.seq = part.FirstSeq + part.Events
	return nil
}

func (p *Followed) closeSpool() {
	if p.spool != nil {
		p.spool.Close()
		p.spool = nil
	}
}
