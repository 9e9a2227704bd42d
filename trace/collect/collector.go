package collect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/outfile"
	"github.com/memprof/memprof/trace/spool"
)

// ballastBytes is more than any part that was seen.
const ballastBytes = 8 << 20

// Options describe the run that is collected.
type Options struct {
	RunID     string // Info.ID
	ClockBase int64  // Info.ClockBase
	Writer    dataset.WriterOptions

	// Ring, if not 0, is how many bytes of each process's spool are kept, at least [RingLeast]: the last events. They are
	// converted at the end of the process. Failed, if set, is then called within Poll with the number of requests that failed.
	Ring   int64
	Failed func(requests int64)
}

// Collector converts a spool to the parts of a run. `memprof record` polls it while the job runs,
// `memprof record --finish` converts what a killed collector left. Its methods may be called from
// several goroutines.
//
// It deletes a segment of the spool only after the part with the last of its events is complete. So
// the spool and the complete parts together always hold every event.
type Collector struct {
	dir   string
	spool *spool.Spool
	opt   Options
	lock  *os.File // holds the lock of the spool; nil after close

	held atomic.Int32 // readers of a ring that have to keep its segments

	mu        sync.Mutex
	processes []*conversion
	finished  trace.Totals
	names     map[string]bool           // of processes, those in use
	resumable map[string][]dataset.Part // by name of the spool directory: complete parts of processes that have no last part yet
	ended     map[string]bool           // names of the spool directories of processes that have their last part
	recorded  map[int]bool              // PIDs of processes that have a directory in the spool, or had one
	before    []string                  // problems of processes that an earlier collector completed
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
	Ending dataset.Ending
}

// New opens the spool of the run in runDir. It keeps the parts that an earlier collector
// completed and removes incomplete ones. Errors: [fs.ErrNotExist] if the run has no spool, [trace.ErrBusy] if another
// collector holds the spool, [trace.ErrDiskFull] if the disk has no room for the ballast, and those
// of [dataset.Open] for the parts that exist.
func New(runDir string, opt Options) (*Collector, error) {
	from, err := spool.Open(runDir)
	if err != nil {
		return nil, err
	}
	if !from.Present() {
		defer from.Close()
		if err := from.CheckPresent(); err != nil {
			return nil, err
		}
		return nil, cmp.Or(from.Remove(), fs.ErrNotExist)
	}
	c := &Collector{
		dir: runDir, spool: from, opt: opt,
		names: map[string]bool{}, resumable: map[string][]dataset.Part{}, ended: map[string]bool{}, recorded: map[int]bool{},
	}
	if c.lock, err = from.Lock(); err == nil {
		err = c.readEarlierParts()
	}
	if err != nil {
		c.close()
		return nil, c.scarce(err)
	}
	return c, nil
}

// close closes all files, which also releases the lock of the spool.
func (c *Collector) close() {
	if c.lock != nil {
		c.lock.Close()
		c.lock = nil
	}
	c.spool.Close()
}

// scarce says what to do about an error for want of file descriptors. Nothing is lost by it.
func (c *Collector) scarce(err error) error {
	if !trace.IsScarce(err) {
		return err
	}
	return &trace.PathError{Path: c.dir, Err: trace.ErrScarce, Detail: err.Error(),
		Remedy: fmt.Sprintf("nothing is lost: raise the limit of open files (`ulimit -n`) and run `memprof record --finish %s`", c.dir)}
}

// readEarlierParts removes the temporary files of an earlier collector and reads the parts that it completed.
func (c *Collector) readEarlierParts() error {
	if err := dataset.RemoveTemporary(c.dir, c.opt.RunID); err != nil {
		return err
	}
	processes, err := dataset.OpenUnfinished(c.dir, c.opt.RunID)
	if err != nil {
		return err
	}
	for _, p := range processes {
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

// reserveBallast allocates a file of the size of a part, whose room completes a part when the disk is full.
func (c *Collector) reserveBallast() error {
	name := dataset.BallastName(c.opt.RunID)
	path := filepath.Join(c.dir, name)
	f, err := outfile.Create(c.spool.Run(), name)
	if err != nil {
		return trace.DiskError(path, err)
	}
	defer f.Close()
	err = syscall.Fallocate(int(f.Fd()), 0, 0, ballastBytes)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		_, err = f.WriteAt(make([]byte, ballastBytes), 0)
	}
	if err != nil {
		c.spool.Run().Remove(name)
	}
	return trace.DiskError(path, err)
}

// removeBallast makes its room free; false if there was none.
func (c *Collector) removeBallast() bool {
	return c.spool.Run().Remove(dataset.BallastName(c.opt.RunID)) == nil
}

// Totals are the sums over all processes.
func (c *Collector) Totals() trace.Totals {
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
	if err := errors.Join(c.discover()...); err != nil {
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
// is nothing. A full disk is an [trace.ErrDiskFull], reported once: the events then stay in the
// spool until Convert or `memprof record --finish`. Other errors concern one process or file; Poll
// converts the others, and tries again the next time. An error for want of file descriptors is returned by Convert only.
func (c *Collector) Poll() (progress bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		return false, nil
	}
	failed := c.discover()
	running := c.processes[:0]
	for _, p := range c.processes {
		moved, ended, err := c.follow(p)
		progress = progress || moved
		if err != nil {
			failed = append(failed, err)
		}
		if err != nil && ended {
			c.retry(p)
		}
		if !ended {
			running = append(running, p)
		}
	}
	c.processes = running
	return progress, errors.Join(slices.DeleteFunc(failed, trace.IsScarce)...)
}

// discover starts to convert the processes that are new in the spool.
func (c *Collector) discover() (failed []error) {
	found, failed := c.spool.New()
	for _, from := range found {
		p, err := c.start(from)
		if err != nil {
			failed = append(failed, err)
			from.Close()
			c.spool.Forget(from.Name)
			continue
		}
		if p != nil {
			c.processes = append(c.processes, p)
		}
	}
	return failed
}

func (c *Collector) start(from *spool.Process) (*conversion, error) {
	c.recorded[int(from.Header.PID)] = true
	if c.ended[from.Name] { // an earlier collector converted it and was killed before it removed the directory
		from.Close()
		return nil, c.spool.RemoveProcess(from.Name)
	}
	return c.convert(from, c.resumable[from.Name], c.opt.Writer)
}

// retry has a process start again whose last part could not be completed, after the parts that it has.
func (c *Collector) retry(p *conversion) {
	c.resumable[p.from.Name] = p.to.Parts()
	if len(p.to.Parts()) == 0 {
		delete(c.names, p.to.Name())
	}
	c.spool.Forget(p.from.Name)
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
// disk the remaining events stay in the spool, and the error is an [trace.ErrDiskFull] that names the last
// converted event. After an error the Collector cannot be used. After success the spool still exists: call
// Remove when the Summary has been stored.
func (c *Collector) Convert() (*Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = nil
	lines, err := c.convertAll()
	if err == nil {
		c.summary.Problems = append(c.summary.Problems, c.late()...)
		// From here on no process finds the spool. One that found it before is converted below.
		err = c.spool.Finish()
	}
	if err == nil {
		lines, err = c.convertAll()
	}
	c.removeBallast()
	if err != nil {
		c.close()
	}
	c.summary.Problems = append(c.summary.Problems, lines...)
	return &c.summary, c.scarce(err)
}

// late names processes that still run and have recorded nothing: once the spool is finished, no memory of theirs is.
func (c *Collector) late() (lines []string) {
	var waiting []spool.Starter
	for _, s := range c.spool.Starters() {
		if !c.recorded[s.PID] {
			waiting = append(waiting, s)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	others := ""
	if n := len(waiting) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more", n)
	}
	return []string{fmt.Sprintf("%v%s outlived the command and had not used the GPU: what it allocates from now on is not recorded; let the command wait for it", waiting[0], others)}
}

// convertAll completes all processes, including those that appear while it works, and returns the lines
// of NeverRecorded.
func (c *Collector) convertAll() (lines []string, err error) {
	for {
		failed := c.discover()
		if len(c.processes) == 0 && len(failed) == 0 {
			return c.spool.NeverRecorded(c.ended)
		}
		for _, p := range c.processes {
			if err := c.finishProcess(p); err != nil {
				failed = append(failed, err)
			}
		}
		c.processes = nil
		if len(failed) > 0 {
			return nil, errors.Join(failed...)
		}
	}
}

// Remove removes the spool after Convert. If it is killed, [dataset.Open] still reads the whole run, and `memprof
// recover` removes the rest.
func (c *Collector) Remove() error {
	defer c.close()
	return c.spool.Remove()
}

func (c *Collector) finishProcess(p *conversion) error {
	alive, err := p.from.Alive()
	if err == nil {
		_, err = p.from.Refresh()
	}
	if err == nil {
		_, err = c.drain(p, !alive)
	}
	if err != nil {
		p.giveUp()
		return err
	}
	return c.end(p)
}
