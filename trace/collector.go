package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/memprof/memprof/trace/outfile"
)

const (
	ballastPrefix = ".ballast." // and the run's ID
	ballastBytes  = 8 << 20     // the greatest part seen, with room
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
	place *spoolPlace
	spool *Spool
	opt   CollectorOptions
	lock  *os.File // nil once it is given back

	mu        sync.Mutex
	processes []*conversion
	finished  Totals
	names     map[string]bool   // in use
	resumable map[string][]Part // complete parts by name of the spool directory, of processes that go on
	ended     map[string]bool   // those of processes that are in complete parts to their end
	before    []string          // problems of processes that an earlier collector completed
	summary   Summary
	full      error // set when the disk stayed full
}

// Summary is what a Collector made.
type Summary struct {
	Processes []ProcessSummary
	Events    int64
	Problems  []string // troubles of the hook's and of ours, each with the process's name
	Libraries []string // seen in some process, of those that variables are set for: "NCCL", "XLA"
}

// ProcessSummary is one process of a Summary.
type ProcessSummary struct {
	Name   string
	Events int64
	Parts  int
	Ending Ending
}

// NewCollector collects the spool of the run in runDir, an [fs.ErrNotExist] if it has none. Parts that
// an earlier collector completed are kept; what it left incomplete is removed. Errors:
// [ErrBusy] when another one is at work on the spool, [ErrDiskFull] when there is not even
// room for the ballast, and those of [Open] for parts that are there.
func NewCollector(runDir string, opt CollectorOptions) (*Collector, error) {
	place, err := openPlaceOf(runDir)
	if err != nil {
		return nil, err
	}
	if place.root == nil {
		defer place.close()
		if err := place.lost(); err != nil {
			return nil, err
		}
		return nil, cmp.Or(place.remove(), fs.ErrNotExist)
	}
	c := &Collector{
		dir: runDir, place: place, spool: newSpool(place), opt: opt,
		names: map[string]bool{}, resumable: map[string][]Part{}, ended: map[string]bool{},
	}
	if c.lock, err = lockSpool(place); err == nil {
		err = c.takeStock()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close gives the files back, and with them the spool.
func (c *Collector) close() {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
	c.place.close()
}

// Whoever asks with [collecting] has a spool for a moment; a collector waits so long for it.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// lockSpool makes a spool ours, for as long as the file is open.
func lockSpool(place *spoolPlace) (*os.File, error) {
	f, err := place.root.Open(".")
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
		return nil, &PathError{Path: place.path(), Err: ErrBusy, Detail: err.Error(), Remedy: "wait for it to end"}
	}
	return f, nil
}

// collecting says whether a collector is at work on a spool.
func collecting(place *spoolPlace) (bool, error) {
	f, err := place.root.Open(".")
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
	if err := removeTemporary(c.place.run, c.opt.RunID); err != nil {
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
		last := p.Parts[len(p.Parts)-1].Last
		if last {
			c.before = append(c.before, problemsOf(p.Name, p.Events, &p.Ending)...)
		}
		switch {
		case p.Spool == "":
		case last:
			c.ended[p.Spool] = true
		default:
			c.resumable[p.Spool] = p.Parts
		}
	}
	return c.layBallast()
}

// temporaryOf says whether a name is that of a file in the making of a run. Such names have the run's
// ID in them, so that they are nobody else's.
func temporaryOf(runID, name string) bool {
	return runID != "" && (strings.HasSuffix(name, tempSuffix(runID)) || name == ballastPrefix+runID || name == infoTemp(runID))
}

// removeTemporary removes what a collector of the run that was killed leaves behind.
func removeTemporary(dir *os.Root, runID string) error {
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !temporaryOf(runID, e.Name()) {
			continue
		}
		if err := dir.Remove(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// layBallast reserves the room that a part needs when the disk fills up.
func (c *Collector) layBallast() error {
	name := ballastPrefix + c.opt.RunID
	path := filepath.Join(c.dir, name)
	f, err := outfile.Create(c.place.run, name)
	if err != nil {
		return diskError(path, err)
	}
	defer f.Close()
	err = syscall.Fallocate(int(f.Fd()), 0, 0, ballastBytes)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		_, err = f.WriteAt(make([]byte, ballastBytes), 0)
	}
	if err != nil {
		c.place.run.Remove(name)
	}
	return diskError(path, err)
}

// dropBallast says whether there was any.
func (c *Collector) dropBallast() bool {
	return c.place.run.Remove(ballastPrefix+c.opt.RunID) == nil
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
	if c.ended[from.Name] { // an earlier collector had only the directory left to remove
		from.Close()
		return nil, c.place.root.RemoveAll(from.Name)
	}
	p := &conversion{from: from, ids: map[uint32]int32{}}
	parts := c.resumable[from.Name]
	if len(parts) == 0 {
		p.to = NewWriter(c.dir, c.meta(from), c.opt.Writer)
		return p, nil
	}
	last := parts[len(parts)-1]
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

// Finish is Convert and, if that went well, Remove.
func (c *Collector) Finish() (*Summary, error) {
	summary, err := c.Convert()
	if err != nil {
		return summary, err
	}
	return summary, c.Remove()
}

// Convert takes the rest and completes all parts. It is for after the job: a process that
// still runs is cut off where it is, and none begins to record any more. Events that a full disk keeps
// from being converted stay in the spool; the error is then an [ErrDiskFull] that names
// the point up to which the trace is complete. After an error the Collector is of no use; otherwise the spool
// is still there, for Remove, once the Summary is kept.
func (c *Collector) Convert() (*Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = nil
	lines, err := c.convertAll()
	if err == nil {
		// No process finds the spool from here on. One that came before that is still converted.
		err = c.place.finish()
	}
	if err == nil {
		lines, err = c.convertAll()
	}
	c.dropBallast()
	if err != nil {
		c.close()
	}
	c.summary.Problems = append(c.summary.Problems, lines...)
	return &c.summary, err
}

// convertAll completes all processes that there are, those too that appear meanwhile, and returns the lines of
// neverRecorded.
func (c *Collector) convertAll() (lines []string, err error) {
	var failed []error
	for {
		if err := c.discover(); err != nil {
			failed = append(failed, err)
		}
		if len(c.processes) == 0 && len(failed) > 0 {
			return nil, errors.Join(failed...)
		}
		if len(c.processes) == 0 {
			return c.neverRecorded()
		}
		for _, p := range c.processes {
			if err := c.finishProcess(p); err != nil {
				failed = append(failed, err)
			}
		}
		c.processes = nil
	}
}

// Remove removes the spool after Convert. Whenever it is killed, what is left is nothing that
// [Open] misses, and `memprof recover` removes it.
func (c *Collector) Remove() error {
	defer c.close()
	return c.place.remove()
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

// neverRecorded are lines about the processes that are left in a spool whose others are converted: those
// that recorded nothing. Records without a process are an [ErrDamaged].
func (c *Collector) neverRecorded() (lines []string, err error) {
	entries, err := entriesOf(c.place.root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || c.ended[e.Name()] { // of one that has ended, what an earlier collector did not come to remove
			continue
		}
		dir, err := c.place.root.OpenRoot(e.Name())
		if err != nil {
			return nil, err
		}
		records := hasRecords(dir)
		lines = append(lines, whyNotRecorded(dir, e.Name())...)
		dir.Close()
		if records {
			return nil, &PathError{Path: filepath.Join(c.place.path(), e.Name(), processName), Err: ErrDamaged, Detail: "missing, or cut, beside segments with records",
				Remedy: "delete the directory if its process does not matter"}
		}
	}
	return lines, nil
}

// whyNotRecorded are lines about a process that made its directory and nothing to record in.
func whyNotRecorded(dir *os.Root, name string) []string {
	name, _, _ = strings.Cut(name, ".")
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
func hasRecords(dir *os.Root) bool {
	present, err := listSegments(dir)
	if err != nil {
		return true
	}
	var first [recordBytes]byte
	for _, index := range present {
		f, err := openRegular(dir, segmentName(index))
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
