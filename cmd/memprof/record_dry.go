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
	"github.com/memprof/memprof/trace/dataset"
)

// unbounded is the memory of the simulated device of a dry run: what a job needs is found out, so nothing is refused.
const unbounded = int64(4) << 40

// dryRunOptions are those of record --dry-run: the job runs without a GPU, and its requests are recorded.
type dryRunOptions struct {
	On         bool
	Card       string
	Assume     string
	Iterations int
	Ranks      int
	Rank       int
	Checkpoint []string
	Offload    string

	card    accounting.CardModel
	nonzero float64
	triton  bool // Triton kernels only write into tensors that are there
}

func (o *dryRunOptions) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.On, "dry-run", false, "run a PyTorch job without a GPU, on tensors without values, and record what it would request")
	flags.StringVar(&o.Card, "card", "H100-80GB", "with --dry-run: the `card` that the job sees: "+strings.Join(accounting.CardNames(), ", "))
	flags.StringVar(&o.Assume, "assume", fmt.Sprintf("nonzero=%g", assumedNonzero),
		"with --dry-run: the `share` of nonzero elements where sizes depend on values; triton=in-place: Triton kernels only write into tensors that are there")
	flags.IntVar(&o.Iterations, "iterations", 4, "with --dry-run: end the job after so many iterations, once they repeat; 0: never")
	flags.IntVar(&o.Ranks, "ranks", 0, "with --dry-run: run one rank of a distributed job of so many")
	flags.IntVar(&o.Rank, "rank", 0, "with --ranks: the rank to run")
	flags.StringSliceVar(&o.Checkpoint, "checkpoint", nil, "with --dry-run: run as if `modules` of these names, such as layer1 or blocks.*, were checkpointed")
	flags.StringVar(&o.Offload, "offload", "", "with --dry-run: run as if `what` were on the host: optimizer")
}

// validateDryRun refuses what a dry run has no use for, and reads its options.
func (o *recordOptions) validateDryRun() error {
	d := &o.Dry
	if !d.On {
		for _, name := range []string{"card", "assume", "iterations", "ranks", "rank", "checkpoint", "offload"} {
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
	case d.Ranks < 0 || d.Ranks == 0 && o.flags.Changed("ranks"):
		return exit.Usagef("--ranks %d: want 1 or more", d.Ranks)
	case d.Ranks == 0 && d.Rank != 0:
		return exit.Usagef("--rank %d needs --ranks", d.Rank)
	case d.Rank < 0 || d.Rank >= max(d.Ranks, 1):
		return exit.Usagef("--rank %d: want one of the --ranks %d, from 0", d.Rank, d.Ranks)
	case d.Offload != "" && d.Offload != "optimizer":
		return exit.Usagef("--offload %q: want optimizer", d.Offload)
	}
	var known bool
	if d.card, known = accounting.CardNamed(d.Card); !known {
		return exit.Usagef("--card %q: want %s%s", d.Card, plain.Alternatives(accounting.CardNames()), plain.DidYouMean(d.Card, accounting.CardNames()...))
	}
	return d.readAssumed()
}

// assumedNonzero is the share of --assume where it does not say another.
const assumedNonzero = 0.1

// readAssumed reads --assume.
func (d *dryRunOptions) readAssumed() error {
	d.nonzero, d.triton = assumedNonzero, false
	for word := range strings.SplitSeq(d.Assume, ",") {
		name, value, _ := strings.Cut(word, "=")
		switch share, err := strconv.ParseFloat(value, 64); {
		case name == "nonzero" && err == nil && share >= 0 && share <= 1:
			d.nonzero = share
		case word == "triton=in-place":
			d.triton = true
		default:
			return exit.Usagef("--assume %q: want nonzero=SHARE, from 0 to 1, or triton=in-place", word)
		}
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
	device.GPUs = nil
	for i := range o.Dry.options().Devices() {
		device.GPUs = append(device.GPUs, dataset.GPU{Index: i, Name: o.Dry.card.Name, Memory: o.Dry.card.Memory})
	}
	return device, nil
}

// options are what the Python package is passed; nil without --dry-run.
func (o *dryRunOptions) options() *hooks.DryRun {
	if !o.On {
		return nil
	}
	return &hooks.DryRun{
		Card: o.card.Name, Memory: o.card.Memory, Capability: o.card.Capability, Multiprocessors: o.card.Multiprocessors, Nonzero: o.nonzero, Triton: o.triton,
		Iterations: o.Iterations, Ranks: o.Ranks, Rank: o.Rank, Checkpoint: strings.Join(o.Checkpoint, ","), Offload: o.Offload,
	}
}

func (o *dryRunOptions) addSettings(settings map[string]string) {
	if !o.On {
		return
	}
	settings["card"], settings["assume"], settings["iterations"] = o.card.Name, o.Assume, fmt.Sprint(o.Iterations)
	if o.Ranks > 0 {
		settings["ranks"], settings["rank"] = fmt.Sprint(o.Ranks), fmt.Sprint(o.Rank)
	}
	for name, value := range map[string]string{"checkpoint": strings.Join(o.Checkpoint, ","), "offload": o.Offload} {
		if value != "" {
			settings[name] = value
		}
	}
}
