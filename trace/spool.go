package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The spool format of hooks/capture/spool/record.h.
const (
	spoolVersion   = 1
	recordBytes    = 64
	segmentRecords = 65536
	processBytes   = 1880 // sizeof(struct memprof_process)
	committed      = 0x4d500000
	commitMask     = 0xffff0000
	kindString     = 255
	noArena        = 0xffffffff
	noDevice       = 0xffff
	maxStringBytes = 4096
	pieceBytes     = 48

	stateRecording = 0
	stateClosed    = 1
	stateStopped   = 2
)

var spoolMagic = [8]byte{'M', 'E', 'M', 'P', 'R', 'O', 'F', 'P'}

const (
	processName  = "process"
	problemsName = "problems"
	stringsName  = "strings"
	segSuffix    = ".seg"
)

// blockRecords is the most records that one read returns.
const blockRecords = 4096

// maxLostTail is the most lost events that are made for slots after the last committed one. A killed process
// leaves one such slot for each thread that was writing; only a damaged header claims more.
const maxLostTail = 1024

// Spool is the directory into which hooks write. It has a directory for each process.
type Spool struct {
	place *spoolPlace
	known map[string]bool
}

func newSpool(place *spoolPlace) *Spool { return &Spool{place: place, known: map[string]bool{}} }

// Processes returns the processes that are new since the last call, by name. A directory without a complete
// process file is left for a later call. An unreadable one is reported once, in the error; the
// readable ones are returned all the same.
func (s *Spool) Processes() ([]*SpoolProcess, error) {
	entries, err := entriesOf(s.place.root)
	if err != nil {
		return nil, err
	}
	var found []*SpoolProcess
	var bad []error
	for _, e := range entries {
		if !e.IsDir() || s.known[e.Name()] {
			continue
		}
		p, err := openSpoolProcess(s.place.root, e.Name())
		if err != nil {
			bad = append(bad, err)
		}
		if p != nil {
			found = append(found, p)
		}
		if p != nil || err != nil {
			s.known[e.Name()] = true
		}
	}
	return found, errors.Join(bad...)
}

// processHeader has the fields of struct memprof_process that readers need.
type processHeader struct {
	PID                  uint32
	Start                uint64 // CLOCK_MONOTONIC, ns
	Claimed              uint64
	State                uint32
	StopErrno            uint32
	StopSlot             uint64
	Rank, LocalRank      int32
	WorldSize            int32
	LocalWorldSize       int32  // 0 or -1 if unknown
	Libraries            uint32 // set of enum memprof_library
	StopReason           string
	Command, Frameworks  string
	recordSize, segments uint32
	version              uint32
}

// parseProcess returns ok = false while the hook has not written the magic bytes.
func parseProcess(b []byte) (h processHeader, ok bool) {
	if len(b) < processBytes || !bytes.Equal(b[:8], spoolMagic[:]) {
		return h, false
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	text := func(b []byte) string {
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return validText(string(b))
	}
	return processHeader{
		version: u32(b[8:]), PID: u32(b[12:]), Start: u64(b[16:]),
		recordSize: u32(b[32:]), segments: u32(b[36:]),
		Claimed: u64(b[40:]), State: u32(b[48:]), StopErrno: u32(b[52:]), StopSlot: u64(b[56:]),
		Rank: int32(u32(b[64:])), LocalRank: int32(u32(b[68:])), WorldSize: int32(u32(b[72:])), LocalWorldSize: int32(u32(b[76:])),
		StopReason: text(b[80:336]), Command: text(b[336:1360]), Frameworks: text(b[1360:1872]),
		Libraries: u32(b[1872:]),
	}, true
}

// libraryNames has the name of each bit of enum memprof_library.
var libraryNames = []string{"NCCL", "XLA"}

// SpoolProcess reads the records of one process while the process writes them.
type SpoolProcess struct {
	Dir  string // path of its directory, for messages
	Name string // of that directory
	root *os.Root

	header processHeader
	file   *os.File // "process"
	slot   int64    // next slot to read

	seg      *os.File
	segIndex int64
	buf      []byte

	strings spoolStrings
	lost    int64  // slots lost so far
	run     int64  // unfilled slots just before slot that were not visited as lost events yet
	lastNS  uint64 // time of the last event
	damage  string // why the rest of the spool cannot be read; "" if it can
	ended   bool   // all records are read, and no further ones can come
}

// openSpoolProcess opens a process's directory in the spool; nil without an error if its process file is
// missing or incomplete.
func openSpoolProcess(spool *os.Root, name string) (*SpoolProcess, error) {
	stat, err := spool.Lstat(name)
	if err != nil || !stat.IsDir() { // opening a pipe would block
		return nil, ignoreMissing(err)
	}
	root, err := spool.OpenRoot(name)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	f, err := openRegular(root, processName)
	if err != nil {
		root.Close()
		return nil, ignoreMissing(err)
	}
	p := &SpoolProcess{
		Dir: filepath.Join(spool.Name(), name), Name: name, root: root,
		file: f, segIndex: -1, buf: make([]byte, blockRecords*recordBytes),
	}
	ok, err := p.refresh()
	if err == nil && ok {
		err = p.header.check(filepath.Join(p.Dir, processName))
	}
	if err == nil && ok {
		p.strings, err = loadStrings(root)
	}
	if err != nil || !ok {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (h *processHeader) check(path string) error {
	if h.version > spoolVersion {
		return &PathError{Path: path, Err: ErrNewerSchema,
			Detail: fmt.Sprintf("spool version %d, this memprof knows up to %d", h.version, spoolVersion),
			Remedy: "use the memprof that recorded it, or a newer version"}
	}
	if h.version == 0 || h.recordSize != recordBytes || h.segments != segmentRecords {
		return &PathError{Path: path, Err: ErrDamaged,
			Detail: fmt.Sprintf("version %d, records of %d bytes, segments of %d records", h.version, h.recordSize, h.segments),
			Remedy: "this process cannot be recovered; delete its directory, then recover the others"}
	}
	return nil
}

// refresh reads the process file again; ok is false while it is incomplete.
func (p *SpoolProcess) refresh() (ok bool, err error) {
	var b [processBytes]byte
	if _, err := p.file.ReadAt(b[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	h, ok := parseProcess(b[:])
	if ok {
		p.header = h
	}
	return ok, nil
}

// Alive says whether the process is alive, by the lock on its process file. The hook takes a lock of the open
// file description (F_OFD_SETLK); older hooks took a POSIX lock. F_GETLK reports both. On kernels without
// F_OFD_SETLK (gVisor) the hook takes a lock by flock.
func (p *SpoolProcess) Alive() (bool, error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	fd := p.file.Fd()
	if err := syscall.FcntlFlock(fd, syscall.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("%s: read its lock: %w", p.file.Name(), err)
	}
	if lock.Type != syscall.F_UNLCK {
		return true, nil
	}
	err := syscall.Flock(int(fd), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err == nil {
		err = syscall.Flock(int(fd), syscall.LOCK_UN)
	}
	if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil // the file system has no such locks, so the hook has none either
	}
	if err != nil {
		return false, fmt.Errorf("%s: read its lock: %w", p.file.Name(), err)
	}
	return false, nil
}

// removed says whether the directory has been removed while it was open.
func (p *SpoolProcess) removed() bool {
	_, err := p.root.Lstat(processName)
	return errors.Is(err, fs.ErrNotExist)
}

// Close closes all files.
func (p *SpoolProcess) Close() {
	p.file.Close()
	p.closeSegment()
	p.root.Close()
}

func (p *SpoolProcess) closeSegment() {
	if p.seg != nil {
		p.seg.Close()
		p.seg, p.segIndex = nil, -1
	}
}

// Problems returns the lines of the hook's problems file.
func (p *SpoolProcess) Problems() []string { return problemLines(p.root) }

func problemLines(dir *os.Root) []string {
	f, err := openRegular(dir, problemsName)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(validText(string(bytes.TrimRight(text, "\x00")))) { // the hook maps the file, and leaves zeros at its end
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func segmentName(index int64) string { return fmt.Sprintf("%06d%s", index, segSuffix) }

func segmentPath(dir string, index int64) string { return filepath.Join(dir, segmentName(index)) }

// listSegments returns the indices of the segment files in a process's directory, ascending.
func listSegments(dir *os.Root) ([]int64, error) {
	entries, err := entriesOf(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []int64
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), segSuffix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(base, 10, 64); err == nil && n >= 0 && n < 1<<40 {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}
