package collect

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// stillRecording is Ending.Reason of a process whose recording has not ended.
const stillRecording = "the recording goes on"

// OpenLive opens a run that is being recorded, with its events up to now. It converts the events in the spool to
// parts in memory, about 4 bytes an event. A process that is still recorded has [dataset.Process.Live] set and
// the Ending.State StateStopped. OpenLive writes no file and holds no lock. Errors are those of [dataset.Open], and [trace.ErrBusy]
// if the collector deleted what was to be read in each of 20 tries.
func OpenLive(dir string) (*dataset.Run, error) { return openUntilNow(dir, stillRecording) }

// openUntilNow is OpenLive; reason is the Ending.Reason of processes that are still recorded.
func openUntilNow(dir, reason string) (*dataset.Run, error) {
	const tries = 20
	for range tries {
		run, err := openLive(dir, reason)
		if !errors.Is(err, errMoved) {
			return run, err
		}
	}
	return nil, &trace.PathError{Path: dir, Err: trace.ErrBusy, Remedy: "try again"}
}

// errMoved: the collector completed a part while the spool was read.
var errMoved = errors.New("the collector has deleted segments of the spool")

func openLive(dir, reason string) (*dataset.Run, error) {
	info, err := dataset.ReadInfo(dir)
	if err != nil {
		return nil, err
	}
	// Open the spool first: if it lacks a process, the parts that are found afterwards are complete.
	spools, err := openSpools(dir)
	defer func() {
		for _, s := range spools {
			s.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	processes, err := dataset.OpenUnfinished(dir, info.ID)
	if err != nil {
		return nil, err
	}
	run := &dataset.Run{Dir: dir, Info: *info, Live: true}
	c := &Collector{dir: dir, opt: Options{RunID: info.ID, ClockBase: info.ClockBase}, names: map[string]bool{}}
	for _, p := range processes {
		c.names[p.Name] = true
		from := spools[p.Spool]
		delete(spools, p.Spool)
		if last := &p.Parts[len(p.Parts)-1]; !last.Last {
			if from == nil {
				return nil, errMoved
			}
			if p, err = c.fromSpool(from, p.Parts, reason); err != nil {
				return nil, err
			}
		} else if from != nil {
			from.Close()
		}
		run.Processes = append(run.Processes, p)
	}
	for _, name := range slices.Sorted(maps.Keys(spools)) {
		p, err := c.fromSpool(spools[name], nil, reason)
		if err != nil {
			return nil, err
		}
		run.Processes = append(run.Processes, p)
	}
	if len(run.Processes) == 0 {
		return nil, &trace.PathError{Path: dir, Err: trace.ErrEmpty, Detail: "no process of the job has used a GPU yet", Remedy: "try again later"}
	}
	slices.SortFunc(run.Processes, func(a, b *dataset.Process) int { return dataset.CompareProcesses(&a.ProcessMeta, &b.ProcessMeta) })
	run.AddReadings()
	return run, nil
}

// liveSpool is a process in a spool, with the segments that it had when it was opened.
type liveSpool struct {
	*spool.Process
	segments []int64
}

// moved says whether the collector has deleted segments since then, whose events are in a complete part.
func (s *liveSpool) moved() (bool, error) {
	now, err := s.Segments()
	return len(s.segments) > 0 && (len(now) == 0 || now[0] != s.segments[0]), err
}

// openSpools opens the processes in the spool of the run in dir, by the names of their directories. It skips
// damaged ones, which the collector reports.
func openSpools(dir string) (map[string]*liveSpool, error) {
	spools := map[string]*liveSpool{}
	place, err := spool.Find(dir)
	if err != nil || place == nil {
		return spools, err
	}
	defer place.Close()
	names, err := place.Names()
	if err != nil {
		return spools, err
	}
	for _, name := range names {
		p, err := place.Readable(name)
		if err != nil {
			return spools, err
		}
		if p == nil {
			continue
		}
		segments, err := p.Segments()
		if err != nil {
			p.Close()
			return spools, err
		}
		spools[name] = &liveSpool{p, segments}
	}
	return spools, nil
}

// fromSpool returns a process with its complete parts and further parts in memory, for the events in its spool
// up to the slots that the process had claimed when the spool was opened. The last part ends for the reason given. It closes
// the spool.
func (c *Collector) fromSpool(from *liveSpool, parts []dataset.Part, reason string) (*dataset.Process, error) {
	defer from.Close()
	if len(parts) == 0 && len(from.segments) > 0 && from.segments[0] > 0 {
		return nil, errMoved // to a ring's part that was not found
	}
	p, err := c.convert(from.Process, parts, dataset.WriterOptions{Create: dataset.InMemory})
	if err != nil {
		return nil, err
	}
	end := from.End()
	_, err = from.Read(false, func(spooled *trace.Event, slot int64) error {
		if slot >= end {
			return errEnough
		}
		return p.to.AppendSlot(p.event(spooled, p.to.NextSeq()), slot)
	})
	if err != nil && !errors.Is(err, errEnough) {
		p.to.Abandon()
		return nil, err
	}
	if moved, err := from.moved(); moved || err != nil {
		p.to.Abandon()
		return nil, cmp.Or(err, errMoved)
	}
	if err := p.to.Finish(dataset.Ending{State: dataset.StateStopped, Reason: reason}); err != nil {
		p.to.Abandon()
		return nil, err
	}
	process := dataset.NewProcess(p.to.Parts())
	process.Live = true
	return process, nil
}

// errEnough ends the reading of a spool that grows while it is read.
var errEnough = errors.New("read up to the slots claimed at the start")
