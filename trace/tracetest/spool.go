package tracetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The layout of hooks/capture/spool/record.h, a second time on purpose: a test of package trace compares both with the
// C compiler's.
const (
	RecordBytes    = 64
	SegmentRecords = 65536
	Committed      = 0x4d500000
	kindString     = 255
)

// ProcessOffsets are the offsets of struct memprof_process's fields.
var ProcessOffsets = map[string]int{
	"magic": 0, "version": 8, "pid": 12, "start_monotonic_ns": 16, "start_realtime_ns": 24,
	"record_bytes": 32, "segment_records": 36, "claimed": 40, "state": 48, "stop_errno": 52,
	"stop_slot": 56, "rank": 64, "local_rank": 68, "world_size": 72, "local_world_size": 76,
	"stop_reason": 80, "command": 336, "frameworks": 1360, "libraries": 1872,
}

// ProcessBytes is sizeof(struct memprof_process).
const ProcessBytes = 1880

// RecordOffsets are the offsets of struct memprof_record's fields.
var RecordOffsets = map[string]int{
	"commit": 0, "device": 4, "time_ns": 8, "addr": 16, "requested": 24, "provided": 32,
	"stream": 40, "arena": 48, "context": 52, "thread": 56,
}

// StringOffsets are the offsets of struct memprof_string's fields.
var StringOffsets = map[string]int{"commit": 0, "offset": 4, "length": 6, "id": 8, "total": 12, "text": 16}

// States of struct memprof_process.
const (
	Recording = 0
	Closed    = 1
	Stopped   = 2
)

// Spool writes one process's directory as the capture hook does: into mapped files.
type Spool struct {
	Dir     string
	t       testing.TB
	process *os.File
	header  []byte           // the process file
	segs    map[int64][]byte // by index
	slot    int64
	strings map[string]uint32
}

// NewSpool makes the directory p<pid>.<start> in dir. A rank below 0 is none.
func NewSpool(t testing.TB, dir string, pid, rank int) *Spool {
	t.Helper()
	s := &Spool{
		Dir: filepath.Join(dir, fmt.Sprintf("p%d.88123456789", pid)), t: t,
		segs: map[int64][]byte{}, strings: map[string]uint32{},
	}
	assert.NoError(t, os.MkdirAll(s.Dir, 0o700))
	s.process, s.header = s.mapped("process", ProcessBytes)
	t.Cleanup(s.Close)
	copy(s.header, "MEMPROFP")
	s.put32("version", 1)
	s.put32("pid", uint32(pid))
	s.put64("start_monotonic_ns", 88123456789)
	s.put32("record_bytes", RecordBytes)
	s.put32("segment_records", SegmentRecords)
	for _, f := range []string{"rank", "local_rank"} {
		s.put32(f, uint32(int32(rank)))
	}
	s.put32("world_size", ^uint32(0))
	s.Text("command", "python3 train.py")
	return s
}

// mapped makes a file of so many zeros and maps it.
func (s *Spool) mapped(name string, bytes int) (*os.File, []byte) {
	f, err := os.OpenFile(filepath.Join(s.Dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	assert.NoError(s.t, err)
	assert.NoError(s.t, f.Truncate(int64(bytes)))
	b, err := syscall.Mmap(int(f.Fd()), 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	assert.NoError(s.t, err)
	return f, b
}

func (s *Spool) put32(field string, v uint32) {
	binary.LittleEndian.PutUint32(s.header[ProcessOffsets[field]:], v)
}

func (s *Spool) put64(field string, v uint64) {
	binary.LittleEndian.PutUint64(s.header[ProcessOffsets[field]:], v)
}

// Text sets a text field of the process file.
func (s *Spool) Text(field, text string) {
	copy(s.header[ProcessOffsets[field]:], text+"\x00")
}

// SetState sets the process's state.
func (s *Spool) SetState(state uint32) { s.put32("state", state) }

// Stop marks that the hook stopped recording: later slots have no segment.
func (s *Spool) Stop(errno syscall.Errno, reason string) {
	s.put64("stop_slot", uint64(s.slot))
	s.put32("stop_errno", uint32(errno))
	s.Text("stop_reason", reason)
	s.SetState(Stopped)
}

// SetClaimed overrides the number of claimed slots in the process file.
func (s *Spool) SetClaimed(n uint64) { s.put64("claimed", n) }

// Problem adds a line to the problems file.
func (s *Spool) Problem(line string) {
	f, err := os.OpenFile(filepath.Join(s.Dir, "problems"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// Lock takes the lock of a living process. F_GETLK in this process does not report it.
func (s *Spool) Lock() {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(s.process.Fd(), syscall.F_SETLK, &lock); err != nil {
		s.t.Fatal(err)
	}
}

// Slot is the next slot.
func (s *Spool) Slot() int64 { return s.slot }

// Claim takes a slot and leaves it uncommitted.
func (s *Spool) Claim() int64 {
	slot := s.slot
	s.slot++
	s.put64("claimed", uint64(s.slot))
	s.segment(slot / SegmentRecords)
	return slot
}

func (s *Spool) segment(index int64) []byte {
	if _, ok := s.segs[index]; !ok {
		var f *os.File
		f, s.segs[index] = s.mapped(fmt.Sprintf("%06d.seg", index), SegmentRecords*RecordBytes)
		f.Close()
	}
	return s.segs[index]
}

// Append writes one event with the given context, its string first if it is new.
func (s *Spool) Append(e trace.Event, text string) {
	e.Context = int32(s.stringID(text))
	s.Fill(s.Claim(), e)
}

// Fill commits an event in a slot that was claimed; e.Context is a string id.
func (s *Spool) Fill(slot int64, e trace.Event) {
	var b [RecordBytes]byte
	put32 := func(field string, v uint32) { binary.LittleEndian.PutUint32(b[RecordOffsets[field]:], v) }
	put64 := func(field string, v int64) { binary.LittleEndian.PutUint64(b[RecordOffsets[field]:], uint64(v)) }
	put32("commit", Committed|uint32(e.Kind))
	binary.LittleEndian.PutUint16(b[RecordOffsets["device"]:], uint16(e.Device))
	put64("time_ns", e.Time)
	put64("addr", e.Addr)
	put64("requested", e.Requested)
	put64("provided", e.Provided)
	put64("stream", e.Stream)
	put32("arena", uint32(e.Arena))
	put32("context", uint32(e.Context))
	put32("thread", uint32(e.Thread))
	s.Raw(slot, b[:])
}

// Raw writes the bytes of a slot, the commit word last.
func (s *Spool) Raw(slot int64, b []byte) {
	record := s.segment(slot / SegmentRecords)[slot%SegmentRecords*RecordBytes:][:RecordBytes]
	copy(record[4:], b[4:])
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&record[0])), binary.LittleEndian.Uint32(b))
}

func (s *Spool) stringID(text string) uint32 {
	if text == "" {
		return 0
	}
	id, ok := s.strings[text]
	if ok {
		return id
	}
	id = uint32(len(s.strings) + 1)
	s.strings[text] = id
	for at := 0; at < len(text); at += 48 {
		s.Piece(s.Claim(), id, text, at, min(48, len(text)-at))
	}
	return id
}

// Piece commits one piece of a string in a slot that was claimed.
func (s *Spool) Piece(slot int64, id uint32, text string, offset, length int) {
	var b [RecordBytes]byte
	binary.LittleEndian.PutUint32(b[StringOffsets["commit"]:], Committed|kindString)
	binary.LittleEndian.PutUint16(b[StringOffsets["offset"]:], uint16(offset))
	binary.LittleEndian.PutUint16(b[StringOffsets["length"]:], uint16(length))
	binary.LittleEndian.PutUint32(b[StringOffsets["id"]:], id)
	binary.LittleEndian.PutUint32(b[StringOffsets["total"]:], uint32(len(text)))
	copy(b[StringOffsets["text"]:], text[offset:offset+length])
	s.Raw(slot, b[:])
}

// Close closes the files, which also releases the lock.
func (s *Spool) Close() {
	s.process.Close()
	for _, b := range append(slices.Collect(maps.Values(s.segs)), s.header) {
		syscall.Munmap(b)
	}
	s.header, s.segs = nil, nil
}
