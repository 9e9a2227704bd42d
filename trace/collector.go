package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	ballastName  = ".ballast"
	ballastBytes = 8 << 20 // the greatest part seen, with room
)

// CollectorOptions describe the run that is collected.
type CollectorOptions struct {
	RunID     string // Info.ID
	ClockBase int64  // Info.ClockBase
	Writer    WriterOptions
}

// Collector turns a spool into the parts of a run: `memprof record` polls one while the
// job runs, `memprof recover` one that another memprof left. Its methods may be called
// from several goroutines.
//
// A segment of the spool is deleted when the part with all its events is complete, so the
// spool and the complete parts together always hold every event.
type Collector struct {
	dir   string
	spool *Spool
	opt   CollectorOptions
	lock  *os.File

	mu        sync.Mutex
	processes []*conversion
	finished  Totals
	names     map[string]bool   // in use
	resumable map[string][]Part // complete parts by name of the spool directory
	summary   Summary
	full      error // set when the disk stayed full
}

// Summary is what a Collector made.
type Summary struct {
	Processes []ProcessSummary
	Events    int64
	Problems  []string // troubles of the hook's and of ours, each with the process's name
}

// ProcessSummary is one process of a Summary.
type ProcessSummary struct {
	Name   string
	Events int64
	Parts  int
	Ending Ending
}

// NewCollector collects spoolDir, which exists, into the run directory runDir. Parts that
// an earlier collector completed are kept; what it left incomplete is removed. Errors:
// [ErrBusy] when another one is at work on the spool, [ErrDiskFull] when there is not even
// room for the ballast, and those of [Open] for parts that are there.
func NewCollector(runDir, spoolDir string, opt CollectorOptions) (*Collector, error) {
	spool, err := OpenSpool(spoolDir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(spoolDir)
	if err != nil {
		return nil, err
	}
	c := &Collector{dir: runDir, spool: spool, opt: opt, lock: lock, names: map[string]bool{}, resumable: map[string][]Part{}}
	if err := c.takeStock(); err != nil {
		lock.Close()
		return nil, err
	}
	return c, nil
}

// Whoever asks with [collecting] has a spool for a moment; a collector waits so long for it.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// lockDir makes a spool ours, for as long as the file is open.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for range lockTries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
	}
	if err != nil {
		f.Close()
		return nil, &PathError{Path: dir, Err: ErrBusy, Detail: err.Error(), Remedy: "wait for it to end"}
	}
	return f, nil
}

// collecting says whether a collector is at work on a spool.
func collecting(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() // gives the lock back
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// takeStock looks at what an earlier collector left in the run directory.
func (c *Collector) takeStock() error {
	if err := removeTemporary(c.dir); err != nil {
		return err
	}
	parts, err := readParts(c.dir, func(file string) bool { return !isReadings(file) })
	if err != nil {
		return err
	}
	processes, err := groupParts(c.dir, parts, true)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.RunID != c.opt.RunID {
			return &PathError{Path: p.Parts[0].Path, Err: ErrMixedRuns,
				Detail: fmt.Sprintf("it belongs to run %s, the spool to run %s", p.RunID, c.opt.RunID),
				Remedy: "put each run into a directory of its own"}
		}
		c.names[p.Name] = true
		if p.Spool != "" {
			c.resumable[p.Spool] = p.Parts
		}
	}
	return c.layBallast()
}

// removeTemporary removes what a collector that was killed leaves behind.
func removeTemporary(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		n := e.Name()
		if strings.HasSuffix(n, tempSuffix) || n == ballastName || strings.HasPrefix(n, "."+InfoName+".") {
			if err := os.Remove(filepath.Join(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// layBallast reserves the room that a part needs when the disk fills up.
func (c *Collector) layBallast() error {
	path := filepath.Join(c.dir, ballastName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return diskError(path, err)
	}
	defer f.Close()
	err = syscall.Fallocate(int(f.Fd()), 0, 0, ballastBytes)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		_, err = f.WriteAt(make([]byte, ballastBytes), 0)
	}
	if err != nil {
		os.Remove(path)
	}
	return diskError(path, err)
}

// dropBallast says whether there was any.
func (c *Collector) dropBallast() bool {
	return os.Remove(filepath.Join(c.dir, ballastName)) == nil
}

// Totals are the numbers of all processes together.
func (c *Collector) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.finished
	for _, p := range c.processes {
		t.Add(p.to.Totals())
	}
	return t
}

// Alive says whether any process of the spool lives.
func (c *Collector) Alive() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.discover(); err != nil {
		return false, err
	}
	for _, p := range c.processes {
		if alive, err := p.from.Alive(); alive || err != nil {
			return alive, err
		}
	}
	return false, nil
}

// Poll takes what all processes have written since the last call; progress is false when
// that was nothing. A full disk is an [ErrDiskFull], once: the events then wait in the
// spool for Finish, or for `memprof recover`. Other errors are about one process or file,
// and do not keep the rest from being taken.
func (c *Collector) Poll() (progress bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		return false, nil
	}
	var failed []error
	if err := c.discover(); err != nil {
		failed = append(failed, err)
	}
	running := c.processes[:0]
	for _, p := range c.processes {
		moved, ended, err := c.follow(p)
		progress = progress || moved
		if err != nil {
			failed = append(failed, err)
		}
		if !ended {
			running = append(running, p)
		}
	}
	c.processes = running
	return progress, errors.Join(failed...)
}

// discover starts the conversion of processes that have appeared.
func (c *Collector) discover() error {
	found, err := c.spool.Processes()
	for _, from := range found {
		p, startErr := c.start(from)
		if startErr != nil {
			err = errors.Join(err, startErr)
			from.Close()
			continue
		}
		if p != nil {
			c.processes = append(c.processes, p)
		}
	}
	return err
}

func (c *Collector) start(from *SpoolProcess) (*conversion, error) {
	p := &conversion{from: from, ids: map[uint32]int32{}}
	parts := c.resumable[from.Name]
	if len(parts) == 0 {
		p.to = NewWriter(c.dir, c.meta(from), c.opt.Writer)
		return p, nil
	}
	last := parts[len(parts)-1]
	if last.Last { // the earlier collector had only the directory left to remove
		from.Close()
		return nil, os.RemoveAll(from.Dir)
	}
	w, err := resumeWriter(c.dir, last.Process, c.opt.Writer, parts)
	if err != nil {
		return nil, err
	}
	p.to = w
	if err := from.skipTo(max(last.NextSlot, 0)); err != nil {
		return nil, err
	}
	return p, nil
}

// Finish takes the rest, completes all parts and removes the spool. It is for after the
// job: a process that still runs is cut off where it is. Events that a full disk keeps
// from being converted stay in the spool; the error is then an [ErrDiskFull] that names
// the point up to which the trace is complete. The Collector is of no use afterwards.
func (c *Collector) Finish() (*Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.lock.Close()
	c.full = nil
	var failed []error
	if err := c.discover(); err != nil {
		failed = append(failed, err)
	}
	for _, p := range c.processes {
		if err := c.finishProcess(p); err != nil {
			failed = append(failed, err)
		}
	}
	c.processes = nil
	c.dropBallast()
	if len(failed) == 0 {
		if err := c.removeSpool(); err != nil {
			failed = append(failed, err)
		}
	}
	return &c.summary, errors.Join(failed...)
}

func (c *Collector) finishProcess(p *conversion) error {
	alive, err := p.from.Alive()
	if err == nil {
		_, err = p.from.refresh()
	}
	if err == nil {
		_, err = c.drain(p, !alive)
	}
	if err != nil {
		p.to.Abandon()
		p.from.Close()
		return err
	}
	return c.end(p)
}

// removeSpool removes what is left of the spool: directories of processes that never came
// to record anything.
func (c *Collector) removeSpool() error {
	entries, err := os.ReadDir(c.spool.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(c.spool.dir, e.Name())
		if e.IsDir() && hasRecords(dir) {
			return &PathError{Path: filepath.Join(dir, processName), Err: ErrDamaged, Detail: "missing, or cut, beside segments with records",
				Remedy: "delete the directory if its process does not matter"}
		}
		if e.IsDir() {
			c.summary.Problems = append(c.summary.Problems, neverRecorded(dir)...)
		}
	}
	return os.RemoveAll(c.spool.dir)
}

// neverRecorded is what to say of a process that made its directory and nothing to record in.
func neverRecorded(dir string) []string {
	name, _, _ := strings.Cut(filepath.Base(dir), ".")
	name = "pid" + strings.TrimPrefix(name, "p")
	lines := problemLines(dir)
	if len(lines) == 0 {
		lines = []string{"it could not start to record"}
	}
	for i, line := range lines {
		lines[i] = name + ": " + line
	}
	return lines
}

// hasRecords says whether the first slot of any segment in dir is committed.
func hasRecords(dir string) bool {
	present, err := listSegments(dir)
	if err != nil {
		return true
	}
	var first [recordBytes]byte
	for _, index := range present {
		f, err := os.Open(segmentPath(dir, index))
		if err != nil {
			return true
		}
		n, _ := f.ReadAt(first[:], 0)
		f.Close()
		if n == recordBytes && committedPrefix(first[:]) == 1 {
			return true
		}
	}
	return false
}
