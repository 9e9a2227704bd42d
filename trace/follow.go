package trace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Follower reads a run while it is recorded: complete parts, and the spool after them. It writes
// nothing, holds no lock and waits for no process, so that it cannot disturb the recording.
type Follower struct {
	dir       string
	Info      Info
	processes []*Followed
}

// Follow opens the run in dir, which may have no events yet.
func Follow(dir string) (*Follower, error) {
	info, err := ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PathError{Path: dir, Err: ErrEmpty, Detail: "no " + InfoName, Remedy: "give a directory that `memprof record -o` writes"}
	}
	if err != nil {
		return nil, err
	}
	return &Follower{dir: dir, Info: *info}, nil
}

// Ended says whether the recording has ended: it has no spool any more.
func (f *Follower) Ended() (bool, error) {
	_, err := os.Stat(filepath.Join(f.dir, SpoolName))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Abandoned says whether the recording will not continue: it has a spool, but no collector and
// no living process. This may also hold for a moment while a recording begins.
func (f *Follower) Abandoned() (bool, error) {
	place, err := openPlaceOf(f.dir)
	if err != nil {
		return false, ignoreMissing(err)
	}
	defer place.close()
	if place.root == nil {
		return false, nil
	}
	held, err := collecting(place)
	if err != nil || held {
		return false, ignoreMissing(err)
	}
	entries, err := entriesOf(place.root)
	if err != nil {
		return false, ignoreMissing(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		spool, err := openSpoolProcess(place.root, e.Name())
		if err != nil || spool == nil {
			continue // unreadable; `memprof recover` reports the error
		}
		alive, err := spool.Alive()
		spool.Close()
		if err != nil || alive {
			return false, ignoreMissing(err)
		}
	}
	return true, nil
}

// ignoreMissing turns fs.ErrNotExist into nil: a collector may remove files of the spool at any time.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Processes are those that have recorded so far, in order of appearance.
func (f *Follower) Processes() ([]*Followed, error) {
	parts, err := readParts(f.dir, func(file string) bool { return !isReadings(file) })
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
	place, err := openPlaceOf(f.dir)
	if err != nil {
		return f.processes, ignoreMissing(err)
	}
	defer place.close()
	if place.root == nil {
		return f.processes, nil
	}
	entries, err := entriesOf(place.root)
	if err != nil {
		return f.processes, ignoreMissing(err)
	}
	for _, e := range entries {
		if !e.IsDir() || f.find(&ProcessMeta{Spool: e.Name()}) != nil {
			continue
		}
		spool, err := openSpoolProcess(place.root, e.Name())
		if err != nil || spool == nil {
			continue // incomplete, removed or unreadable; the collector reports the error
		}
		h := &spool.header
		f.processes = append(f.processes, &Followed{run: f, ProcessMeta: ProcessMeta{
			RunID: f.Info.ID, Name: liveName(h), Spool: e.Name(), PID: int(h.PID), Rank: int(h.Rank), WorldSize: int(h.WorldSize), Command: h.Command,
		}})
		spool.Close()
	}
	return f.processes, nil
}

// liveName is the name of a process that has no part yet. Its final name differs if another process has the same.
func liveName(h *processHeader) string {
	if h.Rank >= 0 {
		return "rank" + strconv.Itoa(int(h.Rank))
	}
	return "pid" + strconv.Itoa(int(h.PID))
}

func (f *Follower) find(meta *ProcessMeta) *Followed {
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
	ProcessMeta
	run     *Follower
	spool   *SpoolProcess // nil before the first poll, and when the process is completely converted
	strings *Strings
	ids     map[uint32]int32 // number of a string in the spool -> its number in strings
	seq     int64            // of the next event
	ended   bool
}

// same says whether meta, of a part or of a spool directory, is of this process.
func (p *Followed) same(meta *ProcessMeta) bool {
	if p.Spool == "" || meta.Spool == "" {
		return p.Name == meta.Name
	}
	return p.Spool == meta.Spool
}

// Strings are the context texts of the events since the last call of begin (see Poll).
func (p *Followed) Strings() *Strings { return p.strings }

// Ended says whether all events of the process are converted and were visited.
func (p *Followed) Ended() bool { return p.ended }

// Poll calls visit with the events since the last call, up to the slots that the process had claimed when Poll
// was called, so that it returns even if the process writes faster than Poll reads. The first
// call starts with the last complete part: it calls begin with the part's first seq, then visit with
// the part's opening rows and events. It starts again in this way after the collector has deleted a
// segment that was to be read next.
func (p *Followed) Poll(begin func(firstSeq int64), visit func(*Event) error) error {
	if p.ended {
		return nil
	}
	if p.spool == nil || p.overtaken() {
		if err := p.begin(begin, visit); err != nil || p.ended {
			return err
		}
	}
	if _, err := p.spool.refresh(); err != nil {
		return err
	}
	end := p.spool.end()
	_, err := p.spool.read(false, func(spooled *Event, slot int64) error {
		if slot >= end {
			return errEnough
		}
		e := *spooled
		e.Seq = p.seq
		e.Time = (e.Time - p.run.Info.ClockBase) &^ (TimeStep - 1)
		e.Context = p.context(uint32(e.Context))
		p.seq++
		return visit(&e)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// overtaken says whether the collector has deleted the segment that is to be read next; its events are in a part.
func (p *Followed) overtaken() bool {
	present, err := listSegments(p.spool.root)
	if err != nil {
		return false
	}
	if len(present) == 0 {
		return p.spool.removed()
	}
	return present[0] > p.spool.slot/segmentRecords
}

// begin starts, twice if need be: the run may be taken away, and another one put in its place, after its parts were listed and
// before they are opened.
func (p *Followed) begin(begin func(int64), visit func(*Event) error) error {
	err := p.start(begin, visit)
	if errors.Is(err, fs.ErrNotExist) {
		err = p.start(begin, visit)
	}
	return err
}

// start reads the last complete part and opens the spool at the slot after its events. A process without
// a spool directory has ended: its parts hold all events.
func (p *Followed) start(begin func(int64), visit func(*Event) error) error {
	p.closeSpool()
	// Open the spool first: if it is removed, the parts that are found afterwards are complete.
	spool, err := p.openSpool()
	if err != nil {
		return err
	}
	parts, err := readParts(p.run.dir, func(file string) bool { return !isReadings(file) })
	if err != nil {
		if spool != nil {
			spool.Close()
		}
		return err
	}
	parts = slices.DeleteFunc(parts, func(part Part) bool { return !p.same(&part.Process) })
	p.strings, p.ids, p.seq = NewStrings(), map[uint32]int32{}, 0
	p.spool = spool
	p.ended = spool == nil
	if len(parts) == 0 {
		begin(0)
		return nil
	}
	last := slices.MaxFunc(parts, func(a, b Part) int { return a.Number - b.Number })
	if err := p.readPart(&last, begin, visit); err != nil {
		return err
	}
	p.ended = p.ended || last.Last
	if p.ended {
		return nil
	}
	return spool.skipTo(max(last.NextSlot, 0))
}

// openSpool opens the process's directory in the spool; nil without an error if it is removed.
func (p *Followed) openSpool() (*SpoolProcess, error) {
	place, err := openPlaceOf(p.run.dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	defer place.close()
	if place.root == nil || p.Spool == "" {
		return nil, nil
	}
	return openSpoolProcess(place.root, p.Spool)
}

func (p *Followed) readPart(part *Part, begin func(int64), visit func(*Event) error) error {
	process := newProcess([]Part{*part})
	process.strings = p.strings
	begin(part.FirstSeq)
	if err := process.Each(visit); err != nil {
		return err
	}
	p.seq = part.FirstSeq + part.Events
	return nil
}

func (p *Followed) context(spoolID uint32) int32 {
	if spoolID == 0 {
		return 0
	}
	id, known := p.ids[spoolID]
	if !known {
		id = p.strings.Intern(p.spool.strings.text(spoolID))
		p.ids[spoolID] = id
	}
	return id
}

func (p *Followed) closeSpool() {
	if p.spool != nil {
		p.spool.Close()
		p.spool = nil
	}
}
