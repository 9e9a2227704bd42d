package trace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// recoverPoll is how often Recover looks at processes it waits for.
const recoverPoll = 200 * time.Millisecond

// Recover finishes the run in dir whose collector died: what was converted is kept, the
// rest of the spool is, and the trace becomes the one the collector would have made.
//
// While a process of the run lives it returns [ErrAlive], or, with wait, collects until
// all have ended. A run that needs no recovery is left as it is; its Summary is empty.
func Recover(ctx context.Context, dir string, wait bool) (*Summary, error) {
	info, err := ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PathError{Path: dir, Err: ErrEmpty, Detail: "no " + InfoName, Remedy: "give a directory that `memprof record -o` wrote"}
	}
	if err != nil {
		return nil, err
	}
	c, err := NewCollector(dir, filepath.Join(dir, SpoolName), CollectorOptions{RunID: info.ID, ClockBase: info.ClockBase})
	if errors.Is(err, fs.ErrNotExist) {
		return &Summary{}, removeTemporary(dir)
	}
	if err != nil {
		return nil, err
	}
	summary, err := recoverWith(ctx, c, dir, wait)
	if err != nil {
		return summary, err
	}
	info.Recovered = true
	info.Problems = append(info.Problems, summary.Problems...)
	return summary, WriteInfo(dir, info)
}

func recoverWith(ctx context.Context, c *Collector, dir string, wait bool) (*Summary, error) {
	for {
		alive, err := c.Alive()
		if err != nil {
			c.leave()
			return nil, err
		}
		if !alive {
			return c.Finish()
		}
		if !wait {
			c.leave()
			return nil, &PathError{Path: dir, Err: ErrAlive, Remedy: "wait for it to end, or run `memprof recover --wait`"}
		}
		if _, err := c.Poll(); err != nil {
			c.leave()
			return nil, err
		}
		select {
		case <-ctx.Done():
			c.leave()
			return nil, fmt.Errorf("recover %s: %w", dir, ctx.Err())
		case <-time.After(recoverPoll):
		}
	}
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
	c.lock.Close()
}
