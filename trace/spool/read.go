package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/memprof/memprof/trace"
)

// blockRecords is the most records that one read returns.
const blockRecords = 4096

// maxLostTail is the most lost events that are made for slots after the last committed one. A killed process
// leaves one such slot for each thread that was writing; only a damaged header claims more.
const maxLostTail = 1024

// End is the first slot that a dead process did not claim, or that the hook gave up.
func (p *Process) End() int64 {
	end := p.Header.Claimed
	if p.Header.Stopped() {
		end = min(end, p.Header.StopSlot)
	}
	return int64(min(end, 1<<50))
}

// Drained says whether the hook has stopped recording and all its records are read.
func (p *Process) Drained() bool {
	return p.Header.Stopped() && p.slot >= int64(min(p.Header.StopSlot, 1<<50))
}

// Visitor takes one event and its slot. The event's Context is the number of a string in the spool; its Seq is
// not set. After an error the next read begins with the same event.
type Visitor func(e *trace.Event, slot int64) error

// Read visits the events committed since the last call. With final, which is for a dead process, it visits a lost
// event for each slot that the process claimed and did not fill, and sets Ended after the last one.
//
// It trusts nothing in the files: the size of its buffer bounds each read, whatever the header or a
// string claims.
func (p *Process) Read(final bool, visit Visitor) (progress bool, err error) {
	for !p.Ended {
		block, err := p.load(p.slot, len(p.buf)/recordBytes)
		if err != nil {
			return progress, err
		}
		n := len(block) / recordBytes
		if !final {
			n = committedPrefix(block)
			// A record is complete once its commit word is stored. The read that returned the commit
			// word may have copied the other bytes before that, so read the records again.
			if block, err = p.load(p.slot, n); err != nil {
				return progress, err
			}
			n = min(n, len(block)/recordBytes)
		}
		if n == 0 {
			if !final {
				return progress, nil
			}
			if err := p.pastSegment(); err != nil {
				return progress, err
			}
			continue
		}
		for i := range n {
			took, err := p.take(block[i*recordBytes:(i+1)*recordBytes], visit)
			if err != nil {
				return progress, err
			}
			if !took && p.slot >= p.End() {
				p.Ended = true
				break
			}
			if !took {
				p.run++
			}
			p.slot++
			progress = true
		}
	}
	if err := p.flushTail(visit); err != nil {
		return progress, err
	}
	return progress, nil
}

// Text returns the string with a number in the spool. If a damaged spool lacks it, the text says so.
func (p *Process) Text(id uint32) string { return p.texts.text(id) }

// Malformed is the number of pieces of strings that were malformed.
func (p *Process) Malformed() int { return p.texts.bad }

// Slot is the next slot to read.
func (p *Process) Slot() int64 { return p.slot }

// take takes the record at p.slot; false if it is not committed.
func (p *Process) take(rec []byte, visit Visitor) (bool, error) {
	commit := binary.LittleEndian.Uint32(rec)
	if commit&commitMask != committed {
		return false, nil
	}
	number := commit &^ commitMask
	if number == kindString {
		p.texts.add(rec, p.slot)
		return true, nil
	}
	if number > 255 || !trace.Kind(number).Valid() || trace.Kind(number) == trace.KindLost {
		return false, nil // no hook writes such a record
	}
	if err := p.flushRun(p.run, visit); err != nil {
		return false, err
	}
	e := decodeRecord(rec, trace.Kind(number))
	if err := visit(&e, p.slot); err != nil {
		return false, err
	}
	p.lastNS = uint64(e.Time)
	return true, nil
}

// flushRun visits lost events for the first n of the p.run unfilled slots before p.slot.
func (p *Process) flushRun(n int64, visit Visitor) error {
	for ; n > 0; n-- {
		e := trace.Event{Kind: trace.KindLost, Time: int64(p.lastNS), Device: trace.NoDevice, Arena: trace.NoArena}
		if err := visit(&e, p.slot-p.run); err != nil {
			return err
		}
		p.run--
		p.Lost++
	}
	return nil
}

// flushTail visits lost events for the unfilled slots after the last committed one.
func (p *Process) flushTail(visit Visitor) error {
	if p.run > maxLostTail {
		p.Damage = fmt.Sprintf("the process file claims %d slots after the last record", p.run)
		p.slot -= p.run - maxLostTail
		p.run = maxLostTail
	}
	return p.flushRun(p.run, visit)
}

// pastSegment goes on after the last byte of a segment of a dead process.
func (p *Process) pastSegment() error {
	end := p.End()
	if p.slot >= end {
		p.Ended = true
		return nil
	}
	index := p.slot / SegmentRecords
	present, err := p.Segments()
	if err != nil {
		return err
	}
	if len(present) == 0 || present[len(present)-1] <= index {
		p.run += end - p.slot // claimed; the segment was never made, or is truncated
		p.slot = end
		p.Ended = true
		return nil
	}
	if _, err := p.root.Lstat(segmentName(index)); errors.Is(err, fs.ErrNotExist) {
		p.Damage = fmt.Sprintf("%s is missing: the events from slot %d on cannot be put in order", filepath.Join(p.Dir, segmentName(index)), p.slot)
		p.Ended = true
		return nil
	}
	next := min((index+1)*SegmentRecords, end)
	p.run += next - p.slot // the segment is truncated
	p.slot = next
	return nil
}

// load reads up to n whole records of one segment, from slot on; none if the segment does not exist or
// has no more.
func (p *Process) load(slot int64, n int) ([]byte, error) {
	index, at := slot/SegmentRecords, slot%SegmentRecords
	if p.segIndex != index {
		p.closeSegment()
		f, err := trace.OpenRegular(p.root, segmentName(index))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p.seg, p.segIndex = f, index
	}
	n = int(min(int64(n), SegmentRecords-at))
	got, err := p.seg.ReadAt(p.buf[:n*recordBytes], at*recordBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s at %d: %w", p.seg.Name(), at*recordBytes, err)
	}
	return p.buf[:got/recordBytes*recordBytes], nil
}

// SkipTo makes slot the next one to read. The events before it are in complete parts; of the remaining segments
// it reads the strings, which later events may name.
func (p *Process) SkipTo(slot int64) error {
	present, err := p.Segments()
	if err != nil {
		return err
	}
	for _, index := range present {
		for at := index * SegmentRecords; at < min(slot, (index+1)*SegmentRecords); {
			block, err := p.load(at, int(min(blockRecords, slot-at)))
			if err != nil {
				return err
			}
			if len(block) == 0 {
				break
			}
			for ; len(block) > 0; block, at = block[recordBytes:], at+1 {
				if binary.LittleEndian.Uint32(block) == committed|kindString {
					p.texts.add(block[:recordBytes], at)
				}
			}
		}
	}
	p.slot = slot
	return nil
}

// Count returns how many events of a kind were committed since the last call, without decoding any. progress says whether there were
// events at all.
func (p *Process) Count(kind trace.Kind) (count int64, progress bool, err error) {
	for {
		block, err := p.load(p.slot, len(p.buf)/recordBytes)
		if err != nil {
			return count, progress, err
		}
		n := committedPrefix(block)
		if n == 0 {
			return count, progress, nil
		}
		for at := range n {
			if binary.LittleEndian.Uint32(block[at*recordBytes:])&^commitMask == uint32(kind) {
				count++
			}
		}
		p.slot += int64(n)
		progress = true
	}
}
