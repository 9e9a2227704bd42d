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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/memprof/memprof/trace/outfile"
)

const (
	ballastPrefix = ".ballast." // followed by the run's ID
	ballastBytes  = 8 << 20     // more than any part that was seen
)

// CollectorOptions describe the run that is collected.
type CollectorOptions struct {
	RunID     string // Info.ID
	ClockBase int64  // Info.ClockBase
	Writer    WriterOptions

	// Ring, if not 0, is how many bytes of each process's spool are kept, at least [RingLeast]: the last events. They are
	// converted at the end of the process. Watch, if set, is then called with each event when it is seen, within Poll, and
	// with the texts of its contexts. Its Time is that of the hook's clock, its Seq is 0.
	Ring  int64
	Watch func(process string, e *Event, text func(context int32) string)
	// Watched, if not nil, are the only kinds that Watch is called with; then its texts are "". The other events are not even
	// decoded.
	Watched []Kind
}

// Collector converts a spool to the parts of a run. `memprof record` polls it while the job runs,
// `memprof recover` converts what a killed collector left. Its methods may be called from
// several goroutines.
//
// It deletes a segment of the spool only after the part with the last of its events is complete. So
// the spool and the complete parts together always hold every event.
type Collector struct {
	dir   string
	place *spoolPlace
	spool *Spool
	opt   CollectorOptions
	lock  *os.File // holds the lock of the spool; nil after close

	held atomic.Int32 // readers of a ring that have to keep its segments

	mu        sync.Mutex
	processes []*conversion
	finished  Totals
	names     map[string]bool   // of processes, those in use
	resumable map[string][]Part // by name of the spool directory: complete parts of processes that have no last part yet
	ended     map[string]bool   // names of the spool directories of processes that have their last part
	before    []string          // problems of processes that an earlier collector completed
	summary   Summary
	full      error // an ErrDiskFull: the disk stayed full after the ballast was removed
}

// Summary is what a Collector converted.
type Summary struct {
	Processes []ProcessSummary
	Events    int64
	Problems  []string // of the hook and of the collector, one line each, with the process's name
	Libraries []string // loaded by a process, of those for which record sets environment variables: "NCCL", "XLA"
}

// ProcessSummary is one process of a Summary.
type ProcessSummary struct {
	Name   string
	Events int64
	Parts  int
	Ending Ending
}

// NewCollector opens the spool of the run in runDir. It keeps the parts that an earlier collector
// completed and removes incomplete ones. Errors: [fs.ErrNotExist] if the run has no spool, [ErrBusy] if another
// collector holds the spool, [ErrDiskFull] if the disk has no room for the ballast, and those
// of [Open] for the parts that exist.
func NewCollector(runDir string, opt CollectorOptions) (*Collector, error) {
	place, err := openPlaceOf(runDir)
	if err != nil {
		return nil, err
	}
	if place.root == nil {
		defer place.close()
		if err := place.checkPresent(); err != nil {
			return nil, err
		}
		return nil, cmp.Or(place.remove(), fs.ErrNotExist)
	}
	c := &Collector{
		dir: runDir, place: place, spool: newSpool(place), opt: opt,
		names: map[string]bool{}, resumable: map[string][]Part{}, ended: map[string]bool{},
	}
	if c.lock, err = lockSpool(place); err == nil {
		err = c.readEarlierParts()
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close closes all files, which also releases the lock of the spool.
func (c *Collector) close() {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
	c.place.close()
}

// [collecting] holds the lock for a moment. A collector therefore tries for 100 ms.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// lockSpool takes the lock of a spool. It is held while the returned file is open.
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

// collecting says whether a collector holds the lock of a spool.
func collecting(place *spoolPlace) (bool, error) {
	f, err := place.root.Open(".")
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// readEarlierParts removes the temporary files of an earlier collector and reads the parts that it completed.
func (c *Collector) readEarlierParts() error {
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
	return c.reserveBallast()
}

// temporaryOf says whether a name is that of a temporary file of the run. Such names contain the run's
// ID, so that no other file has them.
func temporaryOf(runID, name string) bool {
	return runID != "" && (strings.HasSuffix(name, tempSuffix(runID)) || name == ballastPrefix+runID || name == infoTemp(runID))
}

// removeTemporary removes the temporary files that a killed collector of the run left.
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

// reserveBallast allocates a file of the size of a part, whose room completes a part when the disk is full.
func (c *Collector) reserveBallast() error {
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

// removeBallast makes its room free; false if there was none.
func (c *Collector) removeBallast() bool {
	return c.place.run.Remove(ballastPrefix+c.opt.RunID) == nil
}

// Totals are the sums over all processes.
func (c *Collector) Totals() Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.finished
	for _, p := range c.processes {
		t.Add(p.to.Totals())
	}
	return t
}

// Alive says whether any process of the spool is alive.
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

// Poll converts what all processes have written since the last call; progress is false if that
// is nothing. A full disk is an [ErrDiskFull], reported once: the events then stay in the
// spool until Convert or `memprof recover`. Other errors concern one process or file; Poll
// converts the others.
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

// discover starts to convert the processes that are new in the spool.
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
	if c.ended[from.Name] { // an earlier collector converted it and was killed before it removed the directory
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

// Finish is Convert and, after its success, Remove.
func (c *Collector) Finish() (*Summary, error) {
	summary, err := c.Convert()
	if err != nil {
		return summary, err
	}
	return summary, c.Remove()
}

// Convert converts the rest of the spool and completes all parts. Call it after the job: the events of a
// process that still runs end here, and no further process can start to record. On a full
// disk the remaining events stay in the spool, and the error is an [ErrDiskFull] that names the last
// converted event. After an error the Collector cannot be used. After success the spool still exists: call
// Remove when the Summary has been stored.
func (c *Collector) Convert() (*Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = nil
	lines, err := c.convertAll()
	if err == nil {
		// From here on no process finds the spool. One that found it before is converted below.
		err = c.place.finish()
	}
	if err == nil {
		lines, err = c.convertAll()
	}
	c.removeBallast()
	if err != nil {
		c.close()
	}
	c.summary.Problems = append(c.summary.Problems, lines...)
	return &c.summary, err
}

// convertAll completes all processes, including those that appear while it works, and returns the lines
// of neverRecorded.
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

// Remove removes the spool after Convert. If it is killed, [Open] still reads the whole run, and `memprof
// recover` removes the rest.
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
		p.closeRing()
		return err
	}
	return c.end(p)
}

// neverRecorded returns lines about the processes that made a directory in the spool and recorded
// nothing. Call it when all others are converted. A directory with records and without a process
// file is an [ErrDamaged].
func (c *Collector) neverRecorded() (lines []string, err error) {
	entries, err := entriesOf(c.place.root)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || c.ended[e.Name()] { // converted, and not removed by an earlier collector
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
			return nil, &PathError{Path: filepath.Join(c.place.path(), e.Name(), processName), Err: ErrDamaged, Detail: "missing or truncated, although there are segments with records",
				Remedy: "delete the directory if the events of its process are not needed"}
		}
	}
	return lines, nil
}

// whyNotRecorded returns the problems of a process that made its directory but no segment.
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
