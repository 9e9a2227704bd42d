package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// spill keeps the entries between the two passes, in a file without a name: some 15 bytes each. A pickle takes
// four to ten times as many, and decoding it a second time would take longer than all the rest.
type spill struct {
	file *os.File
	out  *bufio.Writer
	last entry // the one before, whose fields are not written again
	row  []byte
}

// Flags behind an entry's action say what differs from the entry before.
const (
	spillStream = 1 << (4 + iota) // another stream
	spillStack                    // there is a stack
	spillOther                    // another device or pool, or there is metadata or the size of a block: a second byte of flags
)

const (
	spillDevice = 1 << iota
	spillPool
	spillMetadata
	spillBlock
)

// mostSpilled is the most bytes of an entry: two of flags and ten numbers.
const mostSpilled = 2 + 10*binary.MaxVarintLen64

// newSpill makes a spill in a directory.
func newSpill(dir string) (*spill, error) {
	file, err := os.CreateTemp(dir, ".entries-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spill{file: file, out: bufio.NewWriterSize(file, 1<<18), row: make([]byte, 0, mostSpilled)}, nil
}

func (s *spill) add(e *entry) error {
	flags, other := byte(e.action), byte(0)
	if e.stream != s.last.stream {
		flags |= spillStream
	}
	if e.stack != 0 {
		flags |= spillStack
	}
	if e.device != s.last.device {
		other |= spillDevice
	}
	if e.pool != s.last.pool {
		other |= spillPool
	}
	if e.metadata != 0 {
		other |= spillMetadata
	}
	if e.block != 0 {
		other |= spillBlock
	}
	if other != 0 {
		flags |= spillOther
	}
	b := append(s.row, flags)
	if other != 0 {
		b = append(b, other)
	}
	b = binary.AppendVarint(b, int64(e.addr-s.last.addr))
	b = binary.AppendUvarint(b, e.size)
	b = binary.AppendVarint(b, e.timeUS-s.last.timeUS)
	if flags&spillStream != 0 {
		b = binary.AppendUvarint(b, e.stream)
	}
	if flags&spillStack != 0 {
		b = binary.AppendUvarint(b, uint64(e.stack))
	}
	if other&spillDevice != 0 {
		b = binary.AppendUvarint(b, uint64(e.device))
	}
	if other&spillPool != 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, e.pool[0]), e.pool[1])
	}
	if other&spillMetadata != 0 {
		b = binary.AppendUvarint(b, e.metadata)
	}
	if other&spillBlock != 0 {
		b = binary.AppendUvarint(b, e.block)
	}
	s.last = *e
	_, err := s.out.Write(b)
	return err
}

// each gives visit all entries, in their order.
func (s *spill) each(visit func(*entry) error) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(s.file, 1<<18)
	var e entry
	for {
		b, err := in.Peek(mostSpilled)
		if len(b) == 0 {
			if err == io.EOF {
				return nil
			}
			return err
		}
		n := e.read(b)
		if _, err := in.Discard(n); err != nil {
			return err
		}
		if err := visit(&e); err != nil {
			return err
		}
	}
}

// read decodes the entry after e into e, and returns its bytes.
func (e *entry) read(b []byte) (n int) {
	number := func() uint64 {
		v, width := binary.Uvarint(b[n:])
		n += width
		return v
	}
	signed := func() int64 {
		v, width := binary.Varint(b[n:])
		n += width
		return v
	}
	flags, other := b[0], byte(0)
	n = 1
	if flags&spillOther != 0 {
		other, n = b[1], 2
	}
	e.action = action(flags & 15)
	e.addr += uint64(signed())
	e.size = number()
	e.timeUS += signed()
	if flags&spillStream != 0 {
		e.stream = number()
	}
	e.stack, e.metadata, e.block = 0, 0, 0
	if flags&spillStack != 0 {
		e.stack = int64(number())
	}
	if other&spillDevice != 0 {
		e.device = int32(number())
	}
	if other&spillPool != 0 {
		e.pool = [2]uint64{number(), number()}
	}
	if other&spillMetadata != 0 {
		e.metadata = number()
	}
	if other&spillBlock != 0 {
		e.block = number()
	}
	return n
}

func (s *spill) close() error { return s.file.Close() }
