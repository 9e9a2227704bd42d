package verify

import (
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// follower returns what follows PyTorch's own allocator in a process, by the rules of its version; where the process
// does not name one, by those of 2.7 to 2.12.
func follower(p *dataset.Process) *torchalloc.Follower {
	version, ok := torchalloc.VersionOf(p.FrameworkNames())
	if !ok {
		version = torchalloc.Torch211
	}
	return torchalloc.NewFollower(version, p.Strings().Text)
}

// follow hands an event to the model of PyTorch's own allocator, once there is an arena of it, or memory of it from before. What
// the model does not have ends the comparison.
func (r *replayer) follow(e *trace.Event) *Mismatch {
	if e.Kind != trace.KindArena && e.Kind != trace.KindExternalFree && r.observedArenas == 0 || r.follower == nil || r.unmodeled != nil {
		return nil
	}
	if _, err := r.follower.Add(e); err != nil {
		return r.differs(e, err)
	}
	return nil
}

// differs takes an error of the model. It is a function of its own since most recordings never call it, and errors.As
// would cost follow an allocation for each event.
func (r *replayer) differs(e *trace.Event, err error) *Mismatch {
	var difference *torchalloc.Difference
	if errors.As(err, &difference) {
		if r.setInCode {
			r.unmodeled = fmt.Errorf("event %d (the job set the allocator up in its code): %w", e.Seq, torchalloc.ErrNotModeled)
			return nil
		}
		return atEvent(e, difference.Expected+" (unless the job changed PyTorch's settings in its code)", difference.Found)
	}
	r.unmodeled = err
	return nil
}

// followed adds what the model compared to a result. The error is ErrObserved where it compared nothing.
func (r *replayer) followed(p *dataset.Process, result *Result) error {
	if r.unmodeled != nil {
		return fmt.Errorf("%s: %w: %w", p.Name, ErrObserved, r.unmodeled)
	}
	f := r.follower
	if f.Allocs == 0 {
		if r.ours == 0 && r.observed {
			return fmt.Errorf("%s: %w", p.Name, ErrObserved)
		}
		return nil
	}
	result.Observed = &f.Followed
	result.Allocs, result.Frees, result.Growths = result.Allocs+f.Allocs, result.Frees+f.Frees, result.Growths+f.Segments
	result.Arenas += r.observedArenas
	return nil
}
