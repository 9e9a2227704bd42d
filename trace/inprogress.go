package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// goesOn is the reason that a process which is still recorded has for its end.
const goesOn = "the recording goes on"

// OpenLive opens a run that is being recorded, as it is now: its complete parts, and behind them the
// events that wait in the spool, which it brings into the form of parts in memory (about 4 bytes an
// event). A process that is still recorded has [Process.Live] set, and an Ending that says so. It
// writes nothing and holds no lock. Errors are those of [Open], and [ErrBusy] when the collector took
// away again and again what was about to be read.
func OpenLive(dir string) (*Run, error) {
	const tries = 20
	for range tries {
		run, err := openLive(dir)
		if !errors.Is(err, errMoved) {
			return run, err
		}
	}
	return nil, &PathError{Path: dir, Err: ErrBusy, Remedy: "try again"}
}

// errMoved says that the collector completed a part meanwhile.
var errMoved = errors.New("the spool has moved on")

func openLive(dir string) (*Run, error) {
	info, err := ReadInfo(dir)
	if err != nil {
		return nil, err
	}
	// The spool first: when a process is gone from it, the parts that are found after that are all.
	spools, err := openSpools(dir)
	defer func() {
		for _, s := range spools {
			s.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	parts, err := readParts(dir, func(file string) bool { return !isReadings(file) })
	if err != nil {
		return nil, err
	}
	processes, err := groupParts(dir, parts, true)
	if err != nil {
		return nil, err
	}
	run := &Run{Dir: dir, Info: *info, Live: true}
	c := &Collector{dir: dir, opt: CollectorOptions{RunID: info.ID, ClockBase: info.ClockBase}, names: map[string]bool{}}
	for _, p := range processes {
		if p.RunID != info.ID {
			return nil, &PathError{Path: p.Parts[0].Path, Err: ErrMixedRuns,
				Detail: fmt.Sprintf("it belongs to run %s, %s to run %s", p.RunID, InfoName, info.ID), Remedy: "put each run into a directory of its own"}
		}
		c.names[p.Name] = true
		spool := spools[p.Spool]
		delete(spools, p.Spool)
		if last := &p.Parts[len(p.Parts)-1]; !last.Last {
			if spool == nil {
				return nil, errMoved
			}
			if p, err = c.behind(spool, p.Parts); err != nil {
				return nil, err
			}
		} else if spool != nil {
			spool.Close()
		}
		run.Processes = append(run.Processes, p)
	}
	for _, name := range slices.Sorted(maps.Keys(spools)) {
		p, err := c.behind(spools[name], nil)
		if err != nil {
			return nil, err
		}
		run.Processes = append(run.Processes, p)
	}
	if len(run.Processes) == 0 {
		return nil, &PathError{Path: dir, Err: ErrEmpty, Detail: "no process of the job has used a GPU so far", Remedy: "try again later"}
	}
	slices.SortFunc(run.Processes, func(a, b *Process) int { return compareProcesses(&a.ProcessMeta, &b.ProcessMeta) })
	run.takeReadings()
	return run, nil
}

// liveSpool is a process in a spool, and the segments it had before it was opened.
type liveSpool struct {
	*SpoolProcess
	segments []int64
}

// moved says whether segments are gone since then: their events are in a part that is complete, and
// their strings elsewhere.
func (s *liveSpool) moved() (bool, error) {
	now, err := listSegments(s.root)
	return len(s.segments) > 0 && (len(now) == 0 || now[0] != s.segments[0]), err
}

// openSpools opens what there is of the processes in the spool of the run in dir, by the names of their
// directories. What cannot be understood is the collector's to complain of.
func openSpools(dir string) (map[string]*liveSpool, error) {
	spools := map[string]*liveSpool{}
	place, err := openPlaceOf(dir)
	if err != nil {
		return spools, ignoreMissing(err)
	}
	defer place.close()
	if place.root == nil {
		return spools, nil
	}
	entries, err := entriesOf(place.root)
	if err != nil {
		return spools, err
	}
	for _, e := range entries {
		p, err := openSpoolProcess(place.root, e.Name())
		if err != nil || p == nil {
			continue
		}
		segments, err := listSegments(p.root)
		if err != nil {
			p.Close()
			return spools, err
		}
		spools[e.Name()] = &liveSpool{p, segments}
	}
	return spools, nil
}

// behind is a process with its complete parts and what its spool has behind them, up to what the
// process had claimed when the spool was opened. The spool is closed.
func (c *Collector) behind(from *liveSpool, parts []Part) (*Process, error) {
	defer from.Close()
	opt := WriterOptions{create: createMemory}
	p := &conversion{from: from.SpoolProcess, ids: map[uint32]int32{}}
	if len(parts) == 0 {
		p.to = NewWriter(c.dir, c.meta(from.SpoolProcess), opt)
	} else {
		var err error
		last := &parts[len(parts)-1]
		if p.to, err = resumeWriter(c.dir, last.Process, opt, parts); err != nil {
			return nil, err
		}
		if err := from.skipTo(max(last.NextSlot, 0)); err != nil {
			return nil, err
		}
	}
	end := from.end()
	_, err := from.read(false, func(spooled *Event, slot int64) error {
		if slot >= end {
			return errEnough
		}
		e := *spooled
		e.Seq = p.to.NextSeq()
		e.Time = (e.Time - c.opt.ClockBase) &^ (TimeStep - 1)
		e.Context = p.context(uint32(e.Context))
		return p.to.appendSlot(&e, slot)
	})
	if err != nil && !errors.Is(err, errEnough) {
		p.to.Abandon()
		return nil, err
	}
	if moved, err := from.moved(); moved || err != nil {
		p.to.Abandon()
		return nil, cmp.Or(err, errMoved)
	}
	if err := p.to.Finish(Ending{State: StateStopped, Reason: goesOn}); err != nil {
		p.to.Abandon()
		return nil, err
	}
	process := newProcess(p.to.Parts())
	process.Live = true
	return process, nil
}

// errEnough ends the reading of a spool that grows while it is read.
var errEnough = errors.New("read to the end there was")

// memoryFile is a part that has no name in any directory.
type memoryFile struct{ *os.File }

func createMemory(_ *os.Root, name string) (partFile, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "memfd_create", Path: name, Err: err}
	}
	return memoryFile{os.NewFile(uintptr(fd), name)}, nil
}

// name is a path under which this process, and no other, can open the file.
func (f memoryFile) name() string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
