package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// Options of Run.
type Options struct {
	Policies []bfc.Policy // at least one
	// Limit is the most that may be mapped on a device, in bytes; 0 is what the recording says that
	// the device has, less what others have in use.
	Limit uint64
	// Cards, if set, has the size of each device for each policy, and what others than the arenas use of it: Limit and what the
	// recording says of both do not count then. They differ in their sizes alone.
	Cards []*accounting.Card
	// UntilRefused ends the replay of a policy when a request was refused.
	UntilRefused bool
	// Blocks is how many are live at a time, as far as it is known: memory for so many is not copied as it grows.
	Blocks int64
	// Text gives the text of a context.
	Text func(context int32) string
	// Workers replay side by side; 0 is one for each core.
	Workers int
	// Observe, if set, is called after each request and free with the event's number and the bytes that all
	// devices have mapped under the first policy.
	Observe func(seq int64, reserved uint64)
}

// Result is what all policies would have taken.
type Result struct {
	Outcomes []Outcome // in the order of the policies
	Allocs   int64     // requests replayed under each
	// LeftOut are arenas of graph memory, which are not replayed.
	LeftOut int64
	// Measured are the driver calls of the recorded allocator, by its own count.
	Measured iterations.CallLog
}

// ErrNothing is of a trace without any request.
var ErrNothing = errors.New("nothing to replay: no allocation was recorded")

// Run replays the events of a process under each policy, in one pass. Host memory is bounded by
// what is live, times the policies. Errors are the source's, the context's, ErrNothing, or of an
// event that cannot be.
func Run(ctx context.Context, src trace.Source, o Options) (*Result, error) {
	replays := make([]*replay, len(o.Policies))
	for i, policy := range o.Policies {
		replays[i] = newReplay(policy, o.Limit)
		replays[i].blocks = make([]placed, 0, o.Blocks)
		if o.Cards != nil {
			replays[i].card = o.Cards[i]
		}
	}
	if len(replays) > 0 {
		replays[0].observe = o.Observe
	}
	crew := newCrew(replays, o.Workers, o.UntilRefused)
	f := newFeed(o.Text)
	if o.Cards != nil {
		f.cardOthers = accounting.NewOthers(o.Cards[0], o.Text)
	}
	err := crew.feed(ctx, src, f)
	crew.wait()
	if err != nil {
		return nil, err
	}
	if f.allocs == 0 {
		return nil, ErrNothing
	}
	result := &Result{Allocs: f.allocs, LeftOut: f.leftOut, Measured: f.calls}
	for _, replay := range replays {
		result.Outcomes = append(result.Outcomes, replay.finish())
	}
	return result, nil
}

// load has the operations of a batch of events. Each worker of the crew reads it, and the last one returns it
// to crew.loads.
type load struct {
	ops     []op
	readers atomic.Int32
}

// crew is the workers of a run, each with its replays.
type crew struct {
	loads chan *load   // that can be filled
	work  []chan *load // by worker
	done  sync.WaitGroup

	untilRefused bool
	going        atomic.Int32 // replays that have not refused a request
}

// loadsAhead is how many loads there are: the reader fills some while workers use others.
const loadsAhead = 4

func newCrew(replays []*replay, workers int, untilRefused bool) *crew {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, len(replays))
	c := &crew{loads: make(chan *load, loadsAhead), untilRefused: untilRefused}
	c.going.Store(int32(len(replays)))
	for range loadsAhead {
		c.loads <- &load{}
	}
	for i := range workers {
		work := make(chan *load, loadsAhead)
		c.work = append(c.work, work)
		var own []*replay
		for k := i; k < len(replays); k += workers {
			own = append(own, replays[k])
		}
		c.done.Go(func() { c.replay(own, work) })
	}
	return c
}

func (c *crew) replay(replays []*replay, work chan *load) {
	for l := range work {
		for _, replay := range replays {
			if c.untilRefused && replay.refused > 0 {
				continue
			}
			if replay.run(l.ops); replay.refused > 0 && c.untilRefused {
				replay.heaps, replay.blocks, replay.born = nil, nil, nil
				c.going.Add(-1)
			}
		}
		if l.readers.Add(-1) == 0 {
			c.loads <- l
		}
	}
}

// feed reads all events and has each load replayed by all.
func (c *crew) feed(ctx context.Context, src trace.Source, f *feed) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.untilRefused && c.going.Load() == 0 {
			return nil
		}
		batch, err := src.Next()
		if err == io.EOF {
			c.give(f.flush(nil))
			return nil
		}
		if err != nil {
			return err
		}
		l := <-c.loads
		l.ops = l.ops[:0]
		f.look(batch)
		for i := range batch.Len() {
			if l.ops, err = f.add(batch, i, l.ops); err != nil {
				return fmt.Errorf("the trace cannot be replayed: %w", err)
			}
		}
		c.hand(l)
	}
}

// give hands the last operations to all workers.
func (c *crew) give(ops []op) {
	if len(ops) > 0 {
		l := <-c.loads
		l.ops = append(l.ops[:0], ops...)
		c.hand(l)
	}
}

func (c *crew) hand(l *load) {
	l.readers.Store(int32(len(c.work)))
	for _, work := range c.work {
		work <- l
	}
}

// wait ends the crew when its workers have replayed all loads.
func (c *crew) wait() {
	for _, work := range c.work {
		close(work)
	}
	c.done.Wait()
}
