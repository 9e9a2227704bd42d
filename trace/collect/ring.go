package collect

import (
	"errors"
	"path/filepath"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/spool"
)

// A ring keeps the last events of each process in its spool, unconverted, and nothing else of it: `memprof record --ring`.
// It costs the collector a glance at each event instead of its conversion. When the segments of a process exceed
// Options.Ring, the oldest quarter is dropped. What they did to the process's memory is kept: it becomes the opening rows
// of a part without events ([dataset.Part.Dropped]), which is complete before a segment is deleted. So at any time that part and the
// segments after it are a process that [OpenLive] and [Recover] read, from there on.

// RingLeast is the smallest Options.Ring: a few segments.
const RingLeast = 4 * spool.SegmentBytes

// followRing looks at new events of a process, and drops the oldest if there are too many.
func (c *Collector) followRing(p *conversion) (progress bool, err error) {
	if progress, err = c.look(p); err != nil {
		return progress, err
	}
	if c.held.Load() > 0 {
		return progress, nil // a reader converts the segments
	}
	return progress, c.shorten(p)
}

// look counts the requests that failed since the last call for Options.Failed.
func (c *Collector) look(p *conversion) (progress bool, err error) {
	if p.ahead == nil {
		if p.ahead, err = c.spool.Process(p.from.Name); err != nil || p.ahead == nil {
			return false, err
		}
		if err := p.ahead.SkipTo(p.from.Slot()); err != nil {
			return false, err
		}
	}
	if _, err := p.ahead.Refresh(); err != nil {
		return false, err
	}
	failed, progress, err := p.ahead.Count(trace.KindOOM)
	if failed > 0 && c.opt.Failed != nil {
		c.opt.Failed(failed)
	}
	return progress, err
}

// shorten drops the oldest segments of a process if there are more than the ring has room for.
func (c *Collector) shorten(p *conversion) error {
	most := c.opt.Ring / spool.SegmentBytes
	newest, oldest := p.ahead.Slot()/spool.SegmentRecords, p.from.Slot()/spool.SegmentRecords
	if newest-oldest+1 > most {
		until := (newest + 1 - most*3/4) * spool.SegmentRecords
		_, err := p.from.Read(false, func(spooled *trace.Event, slot int64) error {
			if slot >= until {
				return errEnough
			}
			p.to.Skip(p.event(spooled, p.to.NextSeq()), slot)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if p.to.Skipped() == 0 {
		return nil
	}
	superseded, err := p.to.Restart()
	if err != nil {
		return err
	}
	// A reader lists the segments first and then the parts: if it misses the new part, it has to find segments missing, too.
	if err := c.deleteSegments(p); err != nil {
		return err
	}
	for i := range superseded {
		if err := trace.IgnoreMissing(c.spool.Run().Remove(filepath.Base(superseded[i].Path))); err != nil {
			return err
		}
	}
	return nil
}

// Hold keeps the segments of a ring until release is called, for a reader that takes its time.
func (c *Collector) Hold() (release func()) {
	c.held.Add(1)
	return func() { c.held.Add(-1) }
}

// closeRing closes the reader of new events.
func (p *conversion) closeRing() {
	if p.ahead != nil {
		p.ahead.Close()
		p.ahead = nil
	}
}
