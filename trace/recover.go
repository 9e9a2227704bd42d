package trace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// recoverPoll is how often Recover looks at processes it waits for.
const recoverPoll = 200 * time.Millisecond

// Recover finishes the run in dir whose collector died: what was converted is kept, the
// rest of the spool is, and the trace becomes the one the collector would have made. One that is killed
// is finished by the next.
//
// While a process of the run lives, also one that has not begun to record, it returns [ErrAlive], or, with wait,
// collects until all have ended. A run that needs no recovery is left as it is; its Summary is empty.
func Recover(ctx context.Context, dir string, wait bool) (*Summary, error) {
	return recoverAfter(dir, func(c *Collector) error { return c.waitForDead(ctx, wait) })
}

// RecoverNow is Recover that takes no notice of processes that live: they are cut off where they are, and what they
// would record from now on is lost.
func RecoverNow(dir string) (*Summary, error) {
	return recoverAfter(dir, func(c *Collector) error {
		_, err := c.Alive() // which finds what there is to convert
		return err
	})
}

// recoverAfter converts the spool of the run in dir once ready has returned without an error.
func recoverAfter(dir string, ready func(*Collector) error) (*Summary, error) {
	info, err := ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PathError{Path: dir, Err: ErrEmpty, Detail: "no " + InfoName, Remedy: "give a directory that `memprof record -o` wrote"}
	}
	if err != nil {
		return nil, err
	}
	c, err := NewCollector(dir, CollectorOptions{RunID: info.ID, ClockBase: info.ClockBase})
	if errors.Is(err, fs.ErrNotExist) {
		return &Summary{}, tidy(dir, info.ID)
	}
	if err != nil {
		return nil, err
	}
	if c.place.name == finishedName && info.Processes != nil { // written once all is converted
		c.dropBallast()
		return &Summary{}, c.Remove()
	}
	if err := ready(c); err != nil {
		c.leave()
		return nil, err
	}
	// Before the first part, so that it is known when this is killed and the next has nothing to do.
	if info.ExitStatus == nil || c.pending() {
		info.Recovered = true
		if err := WriteInfo(dir, info); err != nil {
			c.leave()
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
	if err := WriteInfo(dir, info); err != nil {
		c.close()
		return summary, err
	}
	return summary, c.Remove()
}

// tidy removes what a collector that was killed left in a directory without a spool.
func tidy(dir, runID string) error {
	run, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	return removeTemporary(run, runID)
}

// waitForDead returns when no process of the run lives, and an [ErrAlive] at once without wait.
func (c *Collector) waitForDead(ctx context.Context, wait bool) error {
	for {
		// In this order: who has not begun to record may in between.
		waiting := c.place.starters()
		alive, err := c.Alive()
		if err != nil || !alive && len(waiting) == 0 {
			return err
		}
		if !wait {
			about := &PathError{Path: c.dir, Err: ErrAlive, Remedy: "wait for it to end, or run `memprof recover --wait`"}
			if !alive {
				about.Detail = waiting[0].String() + " may yet begin to record"
				about.Remedy += "; if it is none of the job, `memprof recover --now`"
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

// processNames are those of all processes of the run, sorted.
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

// leave gives up without converting: what is incomplete is removed, the spool stays.
func (c *Collector) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.to.Abandon()
		p.from.Close()
	}
	c.processes = nil
	c.dropBallast()
	c.close()
}
