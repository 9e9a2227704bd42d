package kvload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/timing"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// Timing is how long steps take, from flags.
type Timing struct {
	Name     string        // or a file; "" is the nearest
	StepTime time.Duration // constant; 0: not given
	Chunk    int64         // tokens

	given func() bool // whether --step-time was
}

// AddFlags adds the flags about the time of steps.
func (t *Timing) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.Name, "timing", "", "how long steps take: a `name`, or a file of memprof kv calibrate (default: the nearest model's, scaled)")
	flags.DurationVar(&t.StepTime, "step-time", 0, "constant `time` of a step, whatever it computes, in place of --timing")
	t.given = func() bool { return flags.Changed("step-time") }
	flags.Int64Var(&t.Chunk, "chunk", 0, "compute at most `N` tokens in a step, prompts in chunks (default: whole prompts)")
}

// Of returns the timing of a model on so many GPUs. It is nil with --step-time, and without a model.
func (t *Timing) Of(m *models.Model, ranks int) (*timing.Timing, error) {
	switch {
	case t.StepTime <= 0 && t.given():
		return nil, exit.Usagef("--step-time %v: want more than 0", t.StepTime)
	case t.Chunk < 0:
		return nil, exit.Usagef("--chunk %d: want 0 or more", t.Chunk)
	case t.StepTime > 0 && (t.Name != "" || t.Chunk > 0):
		return nil, exit.Usagef("--step-time is the same for every step, and --timing and --chunk are not: give one of them")
	case t.StepTime > 0:
		return nil, nil
	case t.Name == "" && m == nil:
		if t.Chunk > 0 {
			return nil, exit.Usagef("--chunk needs a timing, and without --model none is near: give --timing")
		}
		return nil, nil
	case t.Name == "":
		nearest := timing.Nearest(m, ranks)
		return &nearest, nil
	}
	found, err := timing.Named(t.Name)
	if err != nil {
		if found, err = readTiming(t.Name, err); err != nil {
			return nil, err
		}
	}
	if m != nil {
		found = found.For(m, ranks)
	}
	return &found, nil
}

// readTiming reads a file; unknown is the error of its name as a name.
func readTiming(path string, unknown error) (timing.Timing, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return timing.Timing{}, exit.Usagef("--timing: %w, and there is no such file%s", unknown, plain.DidYouMean(path, timing.Names()...))
	}
	if err != nil {
		return timing.Timing{}, exit.Input(err)
	}
	defer f.Close()
	found, err := timing.Read(f)
	if err != nil {
		return timing.Timing{}, exit.Input(fmt.Errorf("--timing %s: %w", path, err))
	}
	return found, nil
}

// unknownStep is the time of a step of a model that is not known.
const unknownStep = 25 * time.Millisecond

// Set sets the time of steps in the options of a simulation. timed is what Of returned; stages are GPUs that the
// layers are divided over.
func (t *Timing) Set(o *kvcache.Options, timed *timing.Timing, stages int) {
	if timed != nil {
		o.Timing, o.Chunk = timed, t.Chunk
		if stages > 1 {
			o.Timing = timing.Pipeline{Timing: timed, Stages: int64(stages)}
		}
		return
	}
	o.StepTime = int64(t.StepTime)
	if o.StepTime == 0 {
		o.StepTime = int64(unknownStep)
	}
}
