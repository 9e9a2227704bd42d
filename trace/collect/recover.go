package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// recoverPoll is the time between two polls while Recover waits for processes.
const recoverPoll = 200 * time.Millisecond

// Recover completes the run in dir whose collector was killed: it keeps the complete parts and converts the rest of
// the spool. The trace becomes the one that the collector would have written. If Recover is killed, another
// call completes the run.
//
// If a process of the run is alive, even one that has not begun to record, Recover returns [trace.ErrAlive]; with wait, it
// polls until all have ended. It does not change a run that is complete, and returns an empty Summary.
func Recover(ctx context.Context, dir string, wait bool) (*Summary, error) {
	return recoverAfter(dir, func(c *Collector) error { return c.waitForDead(ctx, wait) })
}

// RecoverRing is Recover with wait, of a run that keeps the last events only: opt has [Options.Ring] and [Options.Failed]. started gets the
// Collector before the first poll, and ended is called after the last one, while the segments are there.
func RecoverRing(ctx context.Context, dir string, opt Options, started func(*Collector), ended func()) (*Summary, error) {
	return recoverWith(dir, opt, func(c *Collector) error {
		started(c)
		err := c.waitForDead(ctx, true)
		if err == nil {
			_, err = c.Poll() // a process may end right after a request failed
		}
		ended()
		return err
	})
}

// RecoverNow is Recover without regard to living processes: their recording ends here, and their later events
// are lost.
func RecoverNow(dir string) (*Summary, error) {
	return recoverAfter(dir, func(c *Collector) error {
		_, err := c.Alive() // also starts to convert the processes in the spool
		return err
	})
}

// recoverAfter converts the spool of the run in dir if ready returns no error.
func recoverAfter(dir string, ready func(*Collector) error) (*Summary, error) {
	return recoverWith(dir, Options{}, ready)
}

func recoverWith(dir string, opt Options, ready func(*Collector) error) (*Summary, error) {
	info, err := dataset.ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &trace.PathError{Path: dir, Err: trace.ErrEmpty, Detail: "no " + dataset.InfoName, Remedy: "give a directory that `memprof record -o` wrote"}
	}
	if err != nil {
		return nil, err
	}
	opt.RunID, opt.ClockBase = info.ID, info.ClockBase
	c, err := New(dir, opt)
	if errors.Is(err, fs.ErrNotExist) {
		return &Summary{}, dataset.RemoveTemporary(dir, info.ID)
	}
	if err != nil {
		return nil, err
	}
	if c.spool.Finished() && info.Processes != nil { // written only after all is converted
		c.removeBallast()
		return &Summary{}, c.Remove()
	}
	if err := ready(c); err != nil {
		c.cancel()
		return nil, err
	}
	// Write this before the first part: if this call is killed later, the next may find nothing to convert.
	if info.ExitStatus == nil || c.pending() {
		info.Recovered = true
		if err := dataset.WriteInfo(dir, info); err != nil {
			c.cancel()
			return nil, err
		}
	}
	summary, err := c.Convert()
	if err != nil {
		return summary, err
	}
	for _, problem := range slices.Concat(c.before, summary.Problems) {
		if !slices.Contains(info.Problems, problem) {
			info.Problems = append(info.Problems, problem)
		}
	}
	info.Processes = c.processNames()
	if err := dataset.WriteInfo(dir, info); err != nil {
		c.close()
		return summary, err
	}
	return summary, c.Remove()
}

// waitForDead returns nil if no process of the run is alive. If one is, it returns [trace.ErrAlive] or, with wait,
// polls until all have ended.
func (c *Collector) waitForDead(ctx context.Context, wait bool) error {
	for {
		// List these first: one of them may begin to record before c.Alive.
		waiting := c.spool.Starters()
		alive, err := c.Alive()
		if err != nil || !alive && len(waiting) == 0 {
			return err
		}
		if !wait {
			about := &trace.PathError{Path: c.dir, Err: trace.ErrAlive, Remedy: "wait for it to end, or run `memprof record --finish RUN --wait`"}
			if !alive {
				about.Detail = waiting[0].String() + " may still begin to record"
				about.Remedy += "; if it does not belong to the job, run `memprof record --finish RUN --now`"
			}
			return about
		}
		if _, err := c.Poll(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("recover %s: %w", c.dir, ctx.Err())
		case <-time.After(recoverPoll):
		}
	}
}

// processNames returns the names of all processes of the run, sorted.
func (c *Collector) processNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}

// pending says whether there is anything to convert.
func (c *Collector) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.processes) > 0
}

// cancel removes incomplete parts and keeps the spool.
func (c *Collector) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.giveUp()
	}
	c.processes = nil
	c.removeBallast()
	c.close()
}
