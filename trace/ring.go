package trace

import (
	"encoding/binary"
	"errors"
	"path/filepath"
)

// A ring keeps the last events of each process in its spool, unconverted, and nothing else of it: `memprof record --ring`.
// It costs the collector a glance at each event instead of its conversion. When the segments of a process exceed
// CollectorOptions.Ring, the oldest quarter is dropped. What they did to the process's memory is kept: it becomes the opening rows
// of a part without events ([Part.Dropped]), which is complete before a segment is deleted. So at any time that part and the
// segments after it are a process that [OpenLive] and [Recover] read, from there on.

// RingLeast is the smallest CollectorOptions.Ring: a few segments.
const RingLeast = 4 * segmentRecords * recordBytes

// ring is what a conversion has where the collector keeps a ring.
type ring struct {
	ahead *SpoolProcess // reads each event once as it comes
}

// followRing passes new events of a process to the watcher, and drops the oldest if there are too many.
func (c *Collector) followRing(p *conversion) (progress bool, err error) {
	if progress, err = c.look(p); err != nil {
		return progress, err
	}
	if c.held.Load() > 0 {
		return progress, nil // a reader converts the segments
	}
	return progress, c.shorten(p)
}

// look passes the events since the last call to CollectorOptions.Watch.
func (c *Collector) look(p *conversion) (progress bool, err error) {
	if p.ring.ahead == nil {
		if p.ring.ahead, err = openSpoolProcess(c.place.root, p.from.Name); err != nil || p.ring.ahead == nil {
			return false, err
		}
		if err := p.ring.ahead.skipTo(max(p.from.slot, 0)); err != nil {
			return false, err
		}
	}
	ahead := p.ring.ahead
	if _, err := ahead.refresh(); err != nil {
		return false, err
	}
	watch := c.opt.Watch
	if watch == nil {
		watch = func(string, *Event, func(int32) string) {}
	}
	name := p.to.meta.Name
	if c.opt.Watched != nil {
		return ahead.glance(c.opt.Watched, func(e *Event) { watch(name, e, func(int32) string { return "" }) })
	}
	text := func(context int32) string { return ahead.strings.text(uint32(context)) }
	return ahead.read(false, func(e *Event, slot int64) error {
		watch(name, e, text)
		return nil
	})
}

// glance visits the events of some kinds that were committed since the last call, and passes over the others.
func (p *SpoolProcess) glance(kinds []Kind, visit func(*Event)) (progress bool, err error) {
	var wanted [256]bool
	for _, kind := range kinds {
		wanted[kind] = true
	}
	for {
		block, err := p.load(p.slot, len(p.buf)/recordBytes)
		if err != nil {
			return progress, err
		}
		n := committedPrefix(block)
		if n == 0 {
			return progress, nil
		}
		at := 0 // the first that is wanted
		for at < n {
			if number := binary.LittleEndian.Uint32(block[at*recordBytes:]) &^ commitMask; number < 256 && wanted[number] {
				break
			}
			at++
		}
		p.slot += int64(at)
		progress = true
		if at == n {
			continue
		}
		// Its other bytes may have been copied before its commit word was stored: read them again.
		if block, err = p.load(p.slot, 1); err != nil || len(block) < recordBytes {
			return progress, err
		}
		e := decodeRecord(block, Kind(binary.LittleEndian.Uint32(block)&^commitMask))
		visit(&e)
		p.slot++
	}
}

// shorten drops the oldest segments of a process if there are more than the ring has room for.
func (c *Collector) shorten(p *conversion) error {
	const segmentBytes = segmentRecords * recordBytes
	most := c.opt.Ring / segmentBytes
	newest, oldest := p.ring.ahead.slot/segmentRecords, p.from.slot/segmentRecords
	if newest-oldest+1 > most {
		until := (newest + 1 - most*3/4) * segmentRecords
		_, err := p.from.read(false, func(spooled *Event, slot int64) error {
			if slot >= until {
				return errEnough
			}
			e := *spooled
			e.Seq = p.to.NextSeq()
			e.Time = (e.Time - c.opt.ClockBase) &^ (TimeStep - 1)
			e.Context = p.context(uint32(e.Context))
			p.to.skip(&e, slot)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if p.to.skipped() == 0 {
		return nil
	}
	superseded, err := p.to.restart()
	if err != nil {
		return err
	}
	// A reader lists the segments first and then the parts: if it misses the new part, it has to find segments missing, too.
	if err := c.deleteSegments(p); err != nil {
		return err
	}
	for i := range superseded {
		if err := ignoreMissing(c.place.run.Remove(filepath.Base(superseded[i].Path))); err != nil {
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
	if p.ring.ahead != nil {
		p.ring.ahead.Close()
		p.ring.ahead = nil
	}
}
