package kvserve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
)

// Timing is how long steps take, from flags.
type Timing struct {
	Name     string        // or a file, or a time; "" is the nearest
	StepTime time.Duration // constant, that of Name; 0: it is none
	Chunk    int64         // tokens
}

// AddFlags adds the flags about the time of steps.
func (t *Timing) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&t.Name, "timing", "", "how long steps take: a `name`, a file of memprof kv calibrate, or a constant time like 25ms (default: the nearest model's, scaled)")
	flags.Int64Var(&t.Chunk, "chunk", 0, "compute at most `N` tokens in a step, prompts in chunks (default: whole prompts)")
}

// Of returns the timing of a model on so many GPUs. It is nil where steps take a constant time, and without a model.
func (t *Timing) Of(m *models.Model, ranks int) (*serving.Timing, error) {
	if constant, err := time.ParseDuration(t.Name); err == nil && t.Name != "" {
		t.StepTime, t.Name = constant, ""
		if constant <= 0 {
			return nil, exit.Usagef("--timing %v: want more than 0", constant)
		}
	}
	switch {
	case t.Chunk < 0:
		return nil, exit.Usagef("--chunk %d: want 0 or more", t.Chunk)
	case t.StepTime > 0 && t.Chunk > 0:
		return nil, exit.Usagef("--timing %v is the same for every step, and with --chunk steps differ: give one of them", t.StepTime)
	case t.StepTime > 0:
		return nil, nil
	case t.Name == "" && m == nil:
		if t.Chunk > 0 {
			return nil, exit.Usagef("--chunk needs a timing, and without --model none is near: give --timing")
		}
		return nil, nil
	case t.Name == "":
		nearest := serving.NearestTiming(m, ranks)
		return &nearest, nil
	}
	found, err := serving.TimingNamed(t.Name)
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
func readTiming(path string, unknown error) (serving.Timing, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return serving.Timing{}, exit.Usagef("--timing: %w, and there is no such file%s", unknown, plain.DidYouMean(path, serving.TimingNames()...))
	}
	if err != nil {
		return serving.Timing{}, exit.Input(err)
	}
	defer f.Close()
	found, err := serving.ReadTiming(f)
	if err != nil {
		return serving.Timing{}, exit.Input(fmt.Errorf("--timing %s: %w", path, err))
	}
	return found, nil
}

// unknownStep is the time of a step of a model that is not known.
const unknownStep = 25 * time.Millisecond

// Set sets the time of steps in the options of a simulation. timed is what Of returned; stages are GPUs that the
// layers are divided over.
func (t *Timing) Set(o *kvcache.Options, timed *serving.Timing, stages int) {
	if timed != nil {
		o.Timing, o.Chunk = timed, t.Chunk
		if stages > 1 {
			o.Timing = serving.Pipeline{Timing: timed, Stages: int64(stages)}
		}
		return
	}
	o.StepTime = int64(t.StepTime)
	if o.StepTime == 0 {
		o.StepTime = int64(unknownStep)
	}
}
