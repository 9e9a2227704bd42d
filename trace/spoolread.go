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

// end is the first slot that no record can come from any more, for a process that is dead.
func (p *SpoolProcess) end() int64 {
	end := p.header.Claimed
	if p.header.State == stateStopped {
		end = min(end, p.header.StopSlot)
	}
	return int64(min(end, 1<<50))
}

// stoppedAndDrained says that a hook that has given up can have no more records for us.
func (p *SpoolProcess) stoppedAndDrained() bool {
	return p.header.State == stateStopped && p.slot >= int64(min(p.header.StopSlot, 1<<50))
}

// visitor takes one event, whose Context is a spool string id and whose Seq is not set,
// with its slot. After an error the same event comes again at the next read.
type visitor func(e *Event, slot int64) error

// read visits the events committed since the last call. With final, which is for a process
// that is dead, slots it had claimed and not filled become lost events, and ended is set
// when there is nothing more.
//
// Nothing in the files is trusted: reads are bounded by the buffer, whatever sizes the
// header or the strings claim.
func (p *SpoolProcess) read(final bool, visit visitor) (progress bool, err error) {
	for !p.ended {
		block, err := p.load(p.slot, len(p.buf)/recordBytes)
		if err != nil {
			return progress, err
		}
		n := len(block) / recordBytes
		if !final {
			n = committedPrefix(block)
			// A record is complete when its commit word is seen. The bytes behind a commit
			// word that was just seen may have been copied before it was stored, so they are
			// read again.
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

// take handles the record at p.slot; false if it is not committed.
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
		return false, nil // no hook writes this
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

// decodeRecord leaves Time on the hook's clock and Context as a spool string id.
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

// flushRun gives out the first n of the lost slots that lie just before p.slot.
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

// flushTail gives out the lost slots behind the last committed one.
func (p *SpoolProcess) flushTail(visit visitor) error {
	if p.run > maxLostTail {
		p.damage = fmt.Sprintf("the process file claims %d slots behind the last record", p.run)
		p.slot -= p.run - maxLostTail
		p.run = maxLostTail
	}
	return p.flushRun(p.run, visit)
}

// pastSegment is called where a dead process's segment has no further bytes.
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
		p.run += end - p.slot // claimed, and the segment was never made, or is cut
		p.slot = end
		p.ended = true
		return nil
	}
	if _, err := p.root.Lstat(segmentName(index)); errors.Is(err, fs.ErrNotExist) {
		p.damage = fmt.Sprintf("%s is missing: the events from slot %d on cannot be ordered", segmentPath(p.Dir, index), p.slot)
		p.ended = true
		return nil
	}
	next := min((index+1)*segmentRecords, end)
	p.run += next - p.slot // the segment is cut
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

// load reads up to n whole records from slot on, all of one segment; none where the
// segment does not exist or ends.
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

// skipTo makes slot the next one. The events before it are in complete parts already, but
// strings that later events name may stand in the segments that are still there.
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

// spoolStrings puts the strings of a process together.
type spoolStrings struct {
	texts   map[uint32]string
	partial map[uint32]*partialString
	bad     int // malformed pieces
}

type partialString struct {
	text  []byte
	got   int
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

// text is the string with the given id; a damaged spool may lack it.
func (s *spoolStrings) text(id uint32) string {
	if id == 0 {
		return ""
	}
	if text, ok := s.texts[id]; ok {
		return text
	}
	return fmt.Sprintf("<string %d is not in the spool>", id)
}

// firstNeeded is the slot of the oldest piece of a string that is not complete, or limit.
func (s *spoolStrings) firstNeeded(limit int64) int64 {
	for _, p := range s.partial {
		limit = min(limit, p.first)
	}
	return limit
}

// save writes the complete strings into the process's directory, so that the segments that hold them can go:
// for each its id, its length (both as varints) and its bytes.
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

// mostStringBytes is the longest strings file that is read: no job comes near it.
const mostStringBytes = 1 << 30

// loadStrings is the inverse of save; a missing file is no strings.
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
		id, n := binary.Uvarint(in[at:]) // a text that was made valid may be longer than it was in the spool
		length, m := binary.Uvarint(in[at+max(n, 0):])
		start := at + n + m
		if n <= 0 || m <= 0 || length > 3*maxStringBytes || start+int(length) > len(in) {
			return s, &PathError{Path: path, Err: ErrDamaged, Detail: fmt.Sprintf("at byte %d", at),
				Remedy: "delete it: contexts of the converted segments will be missing"}
		}
		s.texts[uint32(id)] = validText(string(in[start : start+int(length)]))
		at = start + int(length)
	}
	return s, nil
}
