package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/memprof/memprof/trace/outfile"
)

// end is the first slot that a dead process did not claim, or that the hook gave up.
func (p *SpoolProcess) end() int64 {
	end := p.header.Claimed
	if p.header.State == stateStopped {
		end = min(end, p.header.StopSlot)
	}
	return int64(min(end, 1<<50))
}

// stoppedAndDrained says whether the hook has stopped recording and all its records are read.
func (p *SpoolProcess) stoppedAndDrained() bool {
	return p.header.State == stateStopped && p.slot >= int64(min(p.header.StopSlot, 1<<50))
}

// visitor takes one event and its slot. The event's Context is the number of a string in the spool; its Seq is
// not set. After an error the next read begins with the same event.
type visitor func(e *Event, slot int64) error

// read visits the events committed since the last call. With final, which is for a dead process, it visits a lost
// event for each slot that the process claimed and did not fill, and sets p.ended after the last one.
//
// It trusts nothing in the files: the size of its buffer bounds each read, whatever the header or a
// string claims.
func (p *SpoolProcess) read(final bool, visit visitor) (progress bool, err error) {
	for !p.ended {
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
			if !took && p.slot >= p.end() {
				p.ended = true
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

// take takes the record at p.slot; false if it is not committed.
func (p *SpoolProcess) take(rec []byte, visit visitor) (bool, error) {
	commit := binary.LittleEndian.Uint32(rec)
	if commit&commitMask != committed {
		return false, nil
	}
	number := commit &^ commitMask
	if number == kindString {
		p.strings.add(rec, p.slot)
		return true, nil
	}
	if number > 255 || !Kind(number).Valid() || Kind(number) == KindLost {
		return false, nil // no hook writes such a record
	}
	if err := p.flushRun(p.run, visit); err != nil {
		return false, err
	}
	e := decodeRecord(rec, Kind(number))
	if err := visit(&e, p.slot); err != nil {
		return false, err
	}
	p.lastNS = uint64(e.Time)
	return true, nil
}

// decodeRecord decodes a record. Time is that of the hook's clock, Context the number of a string in the spool.
func decodeRecord(rec []byte, kind Kind) Event {
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	e := Event{
		Kind: kind, Time: int64(u64(rec[8:])), Addr: int64(u64(rec[16:])),
		Requested: int64(u64(rec[24:])), Provided: int64(u64(rec[32:])), Stream: int64(u64(rec[40:])),
		Arena: int32(u32(rec[48:])), Context: int32(u32(rec[52:])), Thread: int32(u32(rec[56:])),
		Device: int32(binary.LittleEndian.Uint16(rec[4:])),
	}
	if u32(rec[48:]) == noArena {
		e.Arena = NoArena
	}
	if e.Device == noDevice {
		e.Device = NoDevice
	}
	return e
}

// flushRun visits lost events for the first n of the p.run unfilled slots before p.slot.
func (p *SpoolProcess) flushRun(n int64, visit visitor) error {
	for ; n > 0; n-- {
		e := Event{Kind: KindLost, Time: int64(p.lastNS), Device: NoDevice, Arena: NoArena}
		if err := visit(&e, p.slot-p.run); err != nil {
			return err
		}
		p.run--
		p.lost++
	}
	return nil
}

// flushTail visits lost events for the unfilled slots after the last committed one.
func (p *SpoolProcess) flushTail(visit visitor) error {
	if p.run > maxLostTail {
		p.damage = fmt.Sprintf("the process file claims %d slots after the last record", p.run)
		p.slot -= p.run - maxLostTail
		p.run = maxLostTail
	}
	return p.flushRun(p.run, visit)
}

// pastSegment goes on after the last byte of a segment of a dead process.
func (p *SpoolProcess) pastSegment() error {
	end := p.end()
	if p.slot >= end {
		p.ended = true
		return nil
	}
	index := p.slot / segmentRecords
	present, err := listSegments(p.root)
	if err != nil {
		return err
	}
	if len(present) == 0 || present[len(present)-1] <= index {
		p.run += end - p.slot // claimed; the segment was never made, or is truncated
		p.slot = end
		p.ended = true
		return nil
	}
	if _, err := p.root.Lstat(segmentName(index)); errors.Is(err, fs.ErrNotExist) {
		p.damage = fmt.Sprintf("%s is missing: the events from slot %d on cannot be put in order", segmentPath(p.Dir, index), p.slot)
		p.ended = true
		return nil
	}
	next := min((index+1)*segmentRecords, end)
	p.run += next - p.slot // the segment is truncated
	p.slot = next
	return nil
}

func committedPrefix(block []byte) int {
	n := len(block) / recordBytes
	for i := range n {
		commit := binary.LittleEndian.Uint32(block[i*recordBytes:])
		number := commit &^ commitMask
		if commit&commitMask != committed || (number != kindString && (number > 255 || !Kind(number).Valid())) {
			return i
		}
	}
	return n
}

// load reads up to n whole records of one segment, from slot on; none if the segment does not exist or
// has no more.
func (p *SpoolProcess) load(slot int64, n int) ([]byte, error) {
	index, at := slot/segmentRecords, slot%segmentRecords
	if p.segIndex != index {
		p.closeSegment()
		f, err := openRegular(p.root, segmentName(index))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p.seg, p.segIndex = f, index
	}
	n = int(min(int64(n), segmentRecords-at))
	got, err := p.seg.ReadAt(p.buf[:n*recordBytes], at*recordBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s at %d: %w", p.seg.Name(), at*recordBytes, err)
	}
	return p.buf[:got/recordBytes*recordBytes], nil
}

// skipTo makes slot the next one to read. The events before it are in complete parts; of the remaining segments
// it reads the strings, which later events may name.
func (p *SpoolProcess) skipTo(slot int64) error {
	present, err := listSegments(p.root)
	if err != nil {
		return err
	}
	for _, index := range present {
		for at := index * segmentRecords; at < min(slot, (index+1)*segmentRecords); {
			block, err := p.load(at, int(min(blockRecords, slot-at)))
			if err != nil {
				return err
			}
			if len(block) == 0 {
				break
			}
			for ; len(block) > 0; block, at = block[recordBytes:], at+1 {
				if binary.LittleEndian.Uint32(block) == committed|kindString {
					p.strings.add(block[:recordBytes], at)
				}
			}
		}
	}
	p.slot = slot
	return nil
}

// spoolStrings assembles the strings of a process from their pieces.
type spoolStrings struct {
	texts   map[uint32]string
	partial map[uint32]*partialString
	bad     int // malformed pieces
}

type partialString struct {
	text  []byte
	got   int   // bytes of text that are filled
	first int64 // slot of the first piece
}

func (s *spoolStrings) add(rec []byte, slot int64) {
	offset := int(binary.LittleEndian.Uint16(rec[4:]))
	length := int(binary.LittleEndian.Uint16(rec[6:]))
	id := binary.LittleEndian.Uint32(rec[8:])
	total := int(binary.LittleEndian.Uint32(rec[12:]))
	if total < 1 || total > maxStringBytes || length < 1 || length > pieceBytes || offset+length > total {
		s.bad++
		return
	}
	if _, known := s.texts[id]; known {
		return
	}
	part := s.partial[id]
	if part == nil {
		part = &partialString{text: make([]byte, total), first: slot}
		s.partial[id] = part
	}
	if len(part.text) != total {
		s.bad++
		return
	}
	part.got += copy(part.text[offset:offset+length], rec[16:16+length])
	if part.got >= total {
		s.texts[id] = validText(string(part.text))
		delete(s.partial, id)
	}
}

// text returns the string with a number. If a damaged spool lacks it, the text says so.
func (s *spoolStrings) text(id uint32) string {
	if id == 0 {
		return ""
	}
	if text, ok := s.texts[id]; ok {
		return text
	}
	return fmt.Sprintf("<string %d is not in the spool>", id)
}

// firstNeeded is the slot of the oldest piece of an incomplete string, at most limit.
func (s *spoolStrings) firstNeeded(limit int64) int64 {
	for _, p := range s.partial {
		limit = min(limit, p.first)
	}
	return limit
}

// save writes the complete strings to a file in the process's directory, so that the segments with them can be
// deleted. The file has the number and the length of each string, both as varints, and its bytes.
func (s *spoolStrings) save(dir *os.Root) error {
	var out []byte
	for id, text := range s.texts {
		out = binary.AppendUvarint(out, uint64(id))
		out = binary.AppendUvarint(out, uint64(len(text)))
		out = append(out, text...)
	}
	const temp = stringsName + ".tmp"
	path := filepath.Join(dir.Name(), stringsName)
	f, err := outfile.Create(dir, temp)
	if err != nil {
		return diskError(path, err)
	}
	_, err = f.Write(out)
	if err = errors.Join(err, f.Close()); err != nil {
		return diskError(path, err)
	}
	return diskError(path, dir.Rename(temp, stringsName))
}

// mostStringBytes is the largest strings file that is read.
const mostStringBytes = 1 << 30

// loadStrings reads the file that save wrote. Without a file there are no strings.
func loadStrings(dir *os.Root) (spoolStrings, error) {
	s := spoolStrings{texts: map[uint32]string{}, partial: map[uint32]*partialString{}}
	path := filepath.Join(dir.Name(), stringsName)
	in, err := readRegular(dir, stringsName, mostStringBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for at := 0; at < len(in); {
		id, n := binary.Uvarint(in[at:]) // the text has been made valid UTF-8, which may have made it longer
		length, m := binary.Uvarint(in[at+max(n, 0):])
		start := at + n + m
		if n <= 0 || m <= 0 || length > 3*maxStringBytes || start+int(length) > len(in) {
			return s, &PathError{Path: path, Err: ErrDamaged, Detail: fmt.Sprintf("at byte %d", at),
				Remedy: "delete it: contexts that were in deleted segments will be missing"}
		}
		s.texts[uint32(id)] = validText(string(in[start : start+int(length)]))
		at = start + int(length)
	}
	return s, nil
}
