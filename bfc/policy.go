package bfc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Growth says how much memory an allocator asks for when nothing fits.
type Growth int

const (
	// Double asks for regions that double from 2 MiB: the classic policy.
	Double Growth = iota
	// Needed asks for what the request lacks, and no more, and first takes back granules
	// that are free elsewhere.
	Needed
	// None asks for the whole limit, at the first request.
	None
	// Step asks for what the request lacks, rounded up to a multiple of Options.Step.
	Step
)

var growthNames = []string{Double: "double", Needed: "needed", None: "none", Step: "step"}

// String is the name of the growth, without the size of a step.
func (g Growth) String() string {
	if g < 0 || int(g) >= len(growthNames) {
		return fmt.Sprintf("growth %d", int(g))
	}
	return growthNames[g]
}

// ParseGrowth is the growth of a text: double, needed, none, or step:BYTES with the bytes of
// a step, which are 0 for the others.
func ParseGrowth(text string) (growth Growth, step uint64, err error) {
	if size, ok := strings.CutPrefix(text, "step:"); ok {
		if step, err = strconv.ParseUint(size, 10, 64); err != nil || step == 0 {
			return 0, 0, fmt.Errorf("growth %q: a step is a positive number of bytes", text)
		}
		return Step, step, nil
	}
	if at := slices.Index(growthNames, text); at >= 0 && Growth(at) != Step {
		return Growth(at), 0, nil
	}
	return 0, 0, fmt.Errorf("unknown growth %q: use double, needed, step:BYTES or none", text)
}

// GrowthText is what ParseGrowth reads.
func (o *Options) GrowthText() string {
	if o.Growth == Step {
		return fmt.Sprintf("step:%d", o.Step)
	}
	return o.Growth.String()
}

// Split says when a chunk is split: where at least that many bytes would be left over, a
// positive number; SplitClassic is the rule of the reference.
type Split uint64

const (
	// SplitClassic splits chunks of twice the request, or with the greatest excess.
	SplitClassic Split = 0
	// SplitAlways splits wherever anything is left over.
	SplitAlways Split = Granule
)

// String is what ParseSplit reads.
func (s Split) String() string {
	switch s {
	case SplitClassic:
		return "classic"
	case SplitAlways:
		return "always"
	}
	return strconv.FormatUint(uint64(s), 10)
}

// ParseSplit is the split of a text: classic, always, or a positive number of bytes.
func ParseSplit(text string) (Split, error) {
	switch text {
	case "classic":
		return SplitClassic, nil
	case "always":
		return SplitAlways, nil
	}
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil || bytes == 0 {
		return 0, fmt.Errorf("unknown split %q: use classic, always or a positive number of bytes", text)
	}
	return Split(bytes), nil
}

// Placement says where a request goes that something fits.
type Placement int

const (
	// PlacementBestFit takes the best fit.
	PlacementBestFit Placement = iota
	// PlacementPlanned places the blocks of an iteration that repeats itself by a plan, in which
	// all lifetimes are known; what is not in the plan, by best fit.
	PlacementPlanned
)

var placementNames = []string{PlacementBestFit: "best-fit", PlacementPlanned: "planned"}

// String is what ParsePlacement reads.
func (p Placement) String() string {
	if p < 0 || int(p) >= len(placementNames) {
		return fmt.Sprintf("placement %d", int(p))
	}
	return placementNames[p]
}

// ParsePlacement is the placement of a text: best-fit or planned.
func ParsePlacement(text string) (Placement, error) {
	if at := slices.Index(placementNames, text); at >= 0 {
		return Placement(at), nil
	}
	return 0, fmt.Errorf("unknown placement %q: use best-fit or planned", text)
}

// Trim says when the owner of an allocator gives back the memory of free granules.
type Trim struct {
	When TrimWhen
	// Idle is for how long nothing was asked or freed, with TrimIdle; positive there.
	Idle time.Duration
}

// TrimWhen is the occasion of a trim.
type TrimWhen int

const (
	// TrimNever keeps all that was mapped.
	TrimNever TrimWhen = iota
	// TrimIteration gives back, at the end of an iteration, what the next will not need.
	TrimIteration
	// TrimIdle gives back all that is free once nothing has happened for a while.
	TrimIdle
	// TrimPressure gives back what is free while the device is short of memory.
	TrimPressure
)

var trimNames = []string{TrimNever: "never", TrimIteration: "iteration", TrimIdle: "idle", TrimPressure: "pressure"}

// String is what ParseTrim reads: idle comes with its nanoseconds.
func (t Trim) String() string {
	if t.When < 0 || int(t.When) >= len(trimNames) {
		return fmt.Sprintf("trim %d", int(t.When))
	}
	if t.When == TrimIdle {
		return fmt.Sprintf("idle:%d", t.Idle.Nanoseconds())
	}
	return trimNames[t.When]
}

// ParseTrim is the trim of a text: never, iteration, pressure, or idle:NS with a positive
// number of nanoseconds.
func ParseTrim(text string) (Trim, error) {
	if idle, ok := strings.CutPrefix(text, "idle:"); ok {
		ns, err := strconv.ParseInt(idle, 10, 64)
		if err != nil || ns <= 0 {
			return Trim{}, fmt.Errorf("trim %q: idle takes a positive number of nanoseconds", text)
		}
		return Trim{TrimIdle, time.Duration(ns)}, nil
	}
	if at := slices.Index(trimNames, text); at >= 0 && TrimWhen(at) != TrimIdle {
		return Trim{When: TrimWhen(at)}, nil
	}
	return Trim{}, fmt.Errorf("unknown trim %q: use never, iteration, idle:NS or pressure", text)
}

// maxExcess is the excess in bytes from which a chunk is split.
func maxExcess(options Options) uint64 {
	switch {
	case options.Split != SplitClassic:
		return uint64(options.Split)
	case options.FragmentationFraction > 0:
		return truncate(options.FragmentationFraction * float64(options.Limit))
	}
	return defaultMaxExcess
}
