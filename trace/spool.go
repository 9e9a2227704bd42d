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

// blockRecords is how many records one read takes.
const blockRecords = 4096

// maxLostTail bounds the lost events made for slots behind the last committed one. The
// hook leaves one for each thread that was inside an arena; only a damaged header claims more.
const maxLostTail = 1024

// Spool is the directory a hook writes into: one directory in it for each process.
type Spool struct {
	place *spoolPlace
	known map[string]bool
}

func newSpool(place *spoolPlace) *Spool { return &Spool{place: place, known: map[string]bool{}} }

// Processes are those that have appeared since the last call, by name. A directory whose
// process file is not written yet is left for a later call; one that cannot be understood
// is reported once, in the error, beside the good ones.
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

// processHeader is struct memprof_process, as far as readers need it.
type processHeader struct {
	PID                  uint32
	Start                uint64 // CLOCK_MONOTONIC, ns
	Claimed              uint64
	State                uint32
	StopErrno            uint32
	StopSlot             uint64
	Rank, LocalRank      int32
	WorldSize            int32
	LocalWorldSize       int32  // 0 or -1 when it is not known
	Libraries            uint32 // set of enum memprof_library
	StopReason           string
	Command, Frameworks  string
	recordSize, segments uint32
	version              uint32
}

// parseProcess returns ok = false while the magic is not there yet.
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

// libraryNames are those of the bits of enum memprof_library.
var libraryNames = []string{"NCCL", "XLA"}

// SpoolProcess follows the records of one process.
type SpoolProcess struct {
	Dir  string // its path, for people
	Name string // of the directory
	root *os.Root

	header processHeader
	file   *os.File // "process"
	slot   int64    // next to read

	seg      *os.File
	segIndex int64
	buf      []byte

	strings spoolStrings
	lost    int64  // slots lost so far
	run     int64  // lost slots seen and not given out yet
	lastNS  uint64 // time of the last event
	damage  string // why reading ended before the process did, "" if it did not
	ended   bool
}

// openSpoolProcess opens a process's directory in the spool; nil without an error if it has no process
// file that is complete.
func openSpoolProcess(spool *os.Root, name string) (*SpoolProcess, error) {
	stat, err := spool.Lstat(name)
	if err != nil || !stat.IsDir() { // a pipe would be waited for
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
			Remedy: "use the memprof that recorded it, or a newer one"}
	}
	if h.version == 0 || h.recordSize != recordBytes || h.segments != segmentRecords {
		return &PathError{Path: path, Err: ErrDamaged,
			Detail: fmt.Sprintf("version %d, records of %d bytes, segments of %d records", h.version, h.recordSize, h.segments),
			Remedy: "this process cannot be recovered; delete its directory to recover the others"}
	}
	return nil
}

// refresh reads the process file again; ok is false while it is not complete.
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

// Alive says whether the process lives: whether the lock on its process file is held. The
// hook's is one of an open file description, which F_GETLK sees as it sees that of a process,
// which older hooks have. On kernels without (gVisor) the hook's is one of flock.
func (p *SpoolProcess) Alive() (bool, error) {
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	fd := p.file.Fd()
	if err := syscall.FcntlFlock(fd, syscall.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("%s: ask for the lock: %w", p.file.Name(), err)
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
		err = nil // a file system without: the hook has none either
	}
	if err != nil {
		return false, fmt.Errorf("%s: ask for the lock: %w", p.file.Name(), err)
	}
	return false, nil
}

// gone says whether the directory is removed; it may be open longer than it is there.
func (p *SpoolProcess) gone() bool {
	_, err := p.root.Lstat(processName)
	return errors.Is(err, fs.ErrNotExist)
}

// Close gives the files back.
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

// Problems are the lines of the hook's problems file.
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
	for line := range strings.Lines(validText(string(bytes.TrimRight(text, "\x00")))) { // the hook has the file mapped, with room
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func segmentName(index int64) string { return fmt.Sprintf("%06d%s", index, segSuffix) }

func segmentPath(dir string, index int64) string { return filepath.Join(dir, segmentName(index)) }

// listSegments are the indices of the segment files of a process, ascending.
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
