package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/outfile"
)

// texts assembles the strings of a process from their pieces.
type texts struct {
	texts   map[uint32]string
	partial map[uint32]*partialString
	bad     int // malformed pieces
}

type partialString struct {
	text  []byte
	got   int   // bytes of text that are filled
	first int64 // slot of the first piece
}

func (s *texts) add(rec []byte, slot int64) {
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
		s.texts[id] = trace.ValidText(string(part.text))
		delete(s.partial, id)
	}
}

// text returns the string with a number. If a damaged spool lacks it, the text says so.
func (s *texts) text(id uint32) string {
	if id == 0 {
		return ""
	}
	if text, ok := s.texts[id]; ok {
		return text
	}
	return fmt.Sprintf("<string %d is not in the spool>", id)
}

// firstNeeded is the slot of the oldest piece of an incomplete string, at most limit.
func (s *texts) firstNeeded(limit int64) int64 {
	for _, p := range s.partial {
		limit = min(limit, p.first)
	}
	return limit
}

// save writes the complete strings to a file in the process's directory, so that the segments with them can be
// deleted. The file has the number and the length of each string, both as varints, and its bytes.
func (s *texts) save(dir *os.Root) error {
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
		return trace.DiskError(path, err)
	}
	_, err = f.Write(out)
	if err = errors.Join(err, f.Close()); err != nil {
		return trace.DiskError(path, err)
	}
	return trace.DiskError(path, dir.Rename(temp, stringsName))
}

// mostStringBytes is the largest strings file that is read.
const mostStringBytes = 1 << 30

func readStrings(dir *os.Root) ([]byte, error) {
	f, err := trace.OpenRegular(dir, stringsName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, err := io.ReadAll(io.LimitReader(f, mostStringBytes+1))
	if err == nil && len(in) > mostStringBytes {
		err = &trace.PathError{Path: filepath.Join(dir.Name(), stringsName), Err: trace.ErrDamaged, Detail: fmt.Sprintf("more than %d bytes", mostStringBytes)}
	}
	return in, err
}

// loadTexts reads the file that save wrote. Without a file there are no strings.
func loadTexts(dir *os.Root) (texts, error) {
	s := texts{texts: map[uint32]string{}, partial: map[uint32]*partialString{}}
	path := filepath.Join(dir.Name(), stringsName)
	in, err := readStrings(dir)
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
			return s, &trace.PathError{Path: path, Err: trace.ErrDamaged, Detail: fmt.Sprintf("at byte %d", at),
				Remedy: "delete it: contexts that were in deleted segments will be missing"}
		}
		s.texts[uint32(id)] = trace.ValidText(string(in[start : start+int(length)]))
		at = start + int(length)
	}
	return s, nil
}
