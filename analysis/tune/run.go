package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

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
	f := newFeed(o.Text)
	if o.Cards != nil {
		f.cardOthers = accounting.NewOthers(o.Cards[0], o.Text)
	}
	if err := f.replay(ctx, src, replays, o.UntilRefused); err != nil {
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

// together is how many operations each policy replays before the next one does: few enough to stay in the processor's nearest cache.
const together = 512

// replay replays all events.
func (f *feed) replay(ctx context.Context, src trace.Source, replays []*replay, untilRefused bool) error {
	var ops []op
	going := slices.Clone(replays)
	run := func() {
		going = slices.DeleteFunc(going, func(r *replay) bool {
			r.run(ops)
			refused := untilRefused && r.refused > 0
			if refused {
				r.heaps, r.blocks, r.born = nil, nil, nil
			}
			return refused
		})
		ops = ops[:0]
	}
	for len(going) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := src.Next()
		if err == io.EOF {
			ops = f.flush(ops)
			run()
			return nil
		} else if err != nil {
			return err
		}
		f.look(batch)
		for i := range batch.Len() {
			if ops, err = f.add(batch, i, ops); err != nil {
				return fmt.Errorf("the trace cannot be replayed: %w", err)
			}
			if len(ops) >= together {
				run()
			}
		}
		run()
	}
	return nil
}
