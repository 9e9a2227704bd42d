//go:build !js

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/hooks"
)

// unbounded is the memory of the simulated device of a dry run: what a job needs is found out, so nothing is refused.
const unbounded = int64(4) << 40

// dryRunOptions are those of record --dry-run: the job runs without a GPU, and its requests are recorded.
type dryRunOptions struct {
	On         bool
	Card       string
	Assume     string
	Iterations int

	card    accounting.CardModel
	nonzero float64
}

func (o *dryRunOptions) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.On, "dry-run", false, "run a PyTorch job without a GPU, on tensors without values, and record what it would request")
	flags.StringVar(&o.Card, "card", "H100-80GB", "with --dry-run: the `card` that the job sees: "+strings.Join(accounting.CardNames(), ", "))
	flags.StringVar(&o.Assume, "assume", "nonzero=0.1", "with --dry-run: the `share` of nonzero elements where sizes depend on values")
	flags.IntVar(&o.Iterations, "iterations", 4, "with --dry-run: end the job after so many iterations, once they repeat; 0: never")
}

// validateDryRun refuses what a dry run has no use for, and reads its options.
func (o *recordOptions) validateDryRun() error {
	d := &o.Dry
	if !d.On {
		for _, name := range []string{"card", "assume", "iterations"} {
			if o.flags.Changed(name) {
				return exit.Usagef("--%s needs --dry-run", name)
			}
		}
		return nil
	}
	switch {
	case o.Device == "real":
		return exit.Usagef("--dry-run runs without a GPU: remove --device real")
	case o.Allocator != "bfc", o.NoTrace, o.Shim != "", o.RequireTensors, o.Serve:
		return exit.Usagef("--dry-run has no CUDA allocator to replace: remove --allocator, --no-trace, --shim, --require-tensors and --serve")
	case d.Iterations < 0:
		return exit.Usagef("--iterations %d: want 0 or more", d.Iterations)
	}
	var known bool
	if d.card, known = accounting.CardNamed(d.Card); !known {
		return exit.Usagef("--card %q: want %s%s", d.Card, plain.Alternatives(accounting.CardNames()), plain.DidYouMean(d.Card, accounting.CardNames()...))
	}
	share, isNonzero := strings.CutPrefix(d.Assume, "nonzero=")
	var err error
	if d.nonzero, err = strconv.ParseFloat(share, 64); err != nil || !isNonzero || d.nonzero < 0 || d.nonzero > 1 {
		return exit.Usagef("--assume %q: want nonzero=SHARE, from 0 to 1", d.Assume)
	}
	return nil
}

// chooseDevice returns the device of --device, or that of a dry run: simulated, and described as the card.
func (o *recordOptions) chooseDevice(installed *hooks.Installation) (*recorder.Device, error) {
	if !o.Dry.On {
		return recorder.ChooseDevice(o.Device, int64(o.SimMemory), installed)
	}
	if o.SimMemory == 0 {
		o.SimMemory = sizeFlag(unbounded)
	}
	device, err := recorder.ChooseDevice("sim", int64(o.SimMemory), installed)
	if err != nil {
		return nil, err
	}
	for i := range device.GPUs {
		device.GPUs[i].Name, device.GPUs[i].Memory, device.GPUs[i].Driver = o.Dry.card.Name, o.Dry.card.Memory, ""
	}
	return device, nil
}

// options are what the Python package is passed; nil without --dry-run.
func (o *dryRunOptions) options() *hooks.DryRun {
	if !o.On {
		return nil
	}
	return &hooks.DryRun{Card: o.card.Name, Memory: o.card.Memory, Capability: o.card.Capability, Multiprocessors: o.card.Multiprocessors, Nonzero: o.nonzero, Iterations: o.Iterations}
}

func (o *dryRunOptions) addSettings(settings map[string]string) {
	if o.On {
		settings["card"], settings["assume"], settings["iterations"] = o.card.Name, o.Assume, fmt.Sprint(o.Iterations)
	}
}
