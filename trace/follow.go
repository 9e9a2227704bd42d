package trace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Follower watches a run that is being recorded, by reading what its recorder and its processes
// write. It writes nothing, holds no lock and waits for nobody, so that neither can tell.
type Follower struct {
	dir       string
	Info      Info
	processes []*Followed
}

// Follow watches the run in dir, which need not have recorded anything yet.
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

// Ended says whether the recording is over: its spool is gone.
func (f *Follower) Ended() (bool, error) {
	_, err := os.Stat(filepath.Join(f.dir, SpoolName))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Abandoned says whether the recording stands still for good: its spool is there, but no collector is at
// work on it and none of its processes lives. It may be so for a moment while a recording begins.
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
			continue // nothing is known of it; what is wrong with it is for recover to say
		}
		alive, err := spool.Alive()
		spool.Close()
		if err != nil || alive {
			return false, ignoreMissing(err)
		}
	}
	return true, nil
}

// ignoreMissing is for what a collector may take away at any time.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Processes are those that have appeared so far, in order of appearance.
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
		p.ProcessMeta = *meta // its name is certain now
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
			continue // not there yet, or gone again; what is wrong with it is the collector's to say
		}
		h := &spool.header
		f.processes = append(f.processes, &Followed{run: f, ProcessMeta: ProcessMeta{
			RunID: f.Info.ID, Name: liveName(h), Spool: e.Name(), PID: int(h.PID), Rank: int(h.Rank), WorldSize: int(h.WorldSize), Command: h.Command,
		}})
		spool.Close()
	}
	return f.processes, nil
}

// liveName is what a process is called that has no part yet: most likely its name in the end.
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

// Close gives the files back.
func (f *Follower) Close() {
	for _, p := range f.processes {
		p.closeSpool()
	}
}

// Followed is a process of a run that is being recorded.
type Followed struct {
	ProcessMeta
	run     *Follower
	spool   *SpoolProcess // nil before the first poll, and when the process is converted to its end
	strings *Strings
	ids     map[uint32]int32 // spool string id -> ours
	seq     int64            // of the next event
	ended   bool
}

// same says whether a part, or a spool's directory, is of this process.
func (p *Followed) same(meta *ProcessMeta) bool {
	if p.Spool == "" || meta.Spool == "" {
		return p.Name == meta.Name
	}
	return p.Spool == meta.Spool
}

// Strings are the texts of the events' contexts since the last begin.
func (p *Followed) Strings() *Strings { return p.strings }

// Ended says whether the process is converted to its end, and read.
func (p *Followed) Ended() bool { return p.ended }

// Poll visits the events since the last call, up to what the process had claimed when it was called:
// one that writes faster than it is read does not keep Poll from its end. It begins, and begins again when the collector has
// meanwhile taken away what was to be read next, with the last complete part: first begin is
// called with the first seq that counts, then come the events in force before that.
func (p *Followed) Poll(begin func(firstSeq int64), visit func(*Event) error) error {
	if p.ended {
		return nil
	}
	if p.spool == nil || p.behind() {
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

// behind says whether the segment that is read next is gone: its events are in a part.
func (p *Followed) behind() bool {
	present, err := listSegments(p.spool.root)
	if err != nil {
		return false
	}
	if len(present) == 0 {
		return p.spool.gone()
	}
	return present[0] > p.spool.slot/segmentRecords
}

// begin reads the last complete part and opens the spool behind it. A process without a spool
// has ended: the part has all there is.
func (p *Followed) begin(begin func(int64), visit func(*Event) error) error {
	p.closeSpool()
	// The spool first: when it is gone, the parts that are found after that are all.
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

// openSpool opens the process's directory in the spool; nil without an error when it is gone.
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
