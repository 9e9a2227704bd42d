package main

import (
	"bufio"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/replay"
)

const replayExits = `0 replayed, even if requests failed; 2 wrong usage, or an invalid operation;
  3 memprof failed`

type replayOptions struct {
	Ops         string
	Limit       sizeFlag
	Policy      policyFlags
	Growth      growthFlag
	GC          bool
	Fraction    float64
	Memory      string
	Physical    sizeFlag // 0: no end
	Granularity sizeFlag
	JSON        bool
}

// growthFlag is TensorFlow's allow_growth: without it the first request takes the whole limit.
type growthFlag bool

func (f *growthFlag) String() string { return strconv.FormatBool(bool(*f)) }

func (f *growthFlag) Set(text string) error {
	if text != "true" && text != "false" {
		return errors.New("want true or false")
	}
	*f = text == "true"
	return nil
}

// Type is the word that stands for the value in the help.
func (f *growthFlag) Type() string { return "bool" }

// growthWithValue gives a --growth of replay that no value follows the value true, as TensorFlow's
// allow_growth has it. It is for whole command lines: pflag cannot have a flag whose value may be
// left out and may be a word of its own.
func growthWithValue(args []string) []string {
	lab := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	verb := lab + 1
	if lab < 0 || args[lab] != "lab" || verb == len(args) || args[verb] != "replay" {
		return args
	}
	args = slices.Clone(args)
	for i := verb + 1; i < len(args) && args[i] != "--"; i++ {
		if args[i] == "--growth" && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			args[i] = "--growth=true"
		}
	}
	return args
}

func newReplayCommand() *cobra.Command {
	opts := replayOptions{Memory: "vmm", Granularity: 2 << 20, Growth: true}
	cmd := &cobra.Command{
		Use:   "replay --ops FILE --limit SIZE",
		Short: "Run hand-written requests through the allocator's model",
		Long: `Runs a sequence of requests through the model of the allocator, without a GPU,
and prints where each block lies. One operation a line:

  alloc NAME SIZE   request SIZE bytes, like 2.5M (K, M, G: powers of 1024)
  free NAME         free that block
  gc                release all idle regions
  iteration         end an iteration, for --trim
  # comment         to the end of the line

The model has one arena. Memory grows with the blocks in use, whose names may
take 256 MiB; results are kept in a temporary file until the last operation is
read.`,
		Annotations: exitCodes(replayExits),
		Example: `  memprof lab replay --ops requests.ops --limit 80GiB
  printf 'alloc a 3M\nfree a\n' | memprof lab replay --ops - --limit 1GiB --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exit.Usagef("replay takes no arguments, got %q (see `memprof lab replay --help`)", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"ops", "limit"} {
				if !cmd.Flags().Changed(name) {
					return exit.Usagef("replay needs --%s (see `memprof lab replay --help`)", name)
				}
			}
			if cmd.Flags().Changed("physical") && opts.Physical == 0 {
				return exit.Usagef("--physical 0: want more than 0 bytes; without the flag the device is unlimited")
			}
			return runReplay(cmd.OutOrStdout(), cmd.InOrStdin(), opts)
		},
	}
	opts.addFlags(cmd.Flags())
	return completedReplay(cmd)
}

func (o *replayOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Ops, "ops", "", "`file` of operations; - for stdin")
	flags.Var(&o.Limit, "limit", "most bytes that the allocator may reserve (required)")
	o.Policy.addReplayed(flags)
	flags.Var(&o.Growth, "growth", "as TensorFlow's allow_growth: false takes the whole limit at the first request")
	flags.BoolVar(&o.GC, "gc", false, "release idle regions before a request fails")
	flags.Float64Var(&o.Fraction, "fragmentation-fraction", 0, "split a chunk if at least this `share` of the limit would be left over (default: 128 MiB)")
	flags.StringVar(&o.Memory, "memory", o.Memory, "`kind` of memory: vmm, where growths join, or separate, where each growth is a region")
	flags.Var(&o.Physical, "physical", "memory of the device (default: unlimited)")
	flags.Var(&o.Granularity, "granularity", "unit that vmm rounds growths up to")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *replayOptions) allocator() (*bfc.Allocator, error) {
	device := bfc.DeviceOptions{Physical: uint64(o.Physical)}
	if err := oneOf("memory", o.Memory, "vmm", "separate"); err != nil {
		return nil, err
	}
	if o.Memory == "vmm" {
		device.VMM = true
		device.Granularity = uint64(o.Granularity)
		if g := device.Granularity; g < bfc.Granule || g&(g-1) != 0 {
			return nil, exit.Usagef("--granularity %d: want a power of two from 256", g)
		}
	}
	if math.IsNaN(o.Fraction) {
		return nil, exit.Usagef("--fragmentation-fraction %v: want a number", o.Fraction)
	}
	policy := o.Policy.policy()
	if policy.Trim.When == bfc.TrimIdle {
		return nil, exit.Usagef("--trim %s: operations have no times", &o.Policy.Trim)
	}
	policy.Headroom = 0 // --physical is all the allocator's
	options := policy.ForArena(bfc.Arena{Total: bfc.NoLimit, Granularity: max(device.Granularity, bfc.Granule)}).Options
	options.Limit, options.FragmentationFraction, options.GarbageCollection = uint64(o.Limit), o.Fraction, o.GC
	if !o.Growth {
		options.Growth = bfc.Whole
	}
	return bfc.New(options, bfc.NewDevice(device))
}

// runReplay prints nothing before the whole file made sense.
func runReplay(stdout io.Writer, stdin io.Reader, o replayOptions) error {
	allocator, err := o.allocator()
	if err != nil {
		return err
	}
	file, name := stdin, "stdin"
	if o.Ops != "-" {
		opened, err := os.Open(o.Ops)
		if err != nil {
			return exit.Input(err)
		}
		defer opened.Close()
		file, name = opened, o.Ops
	}
	results := &replay.Results{}
	defer results.Close()
	var kept error
	err = replay.Run(allocator, replay.NewReader(file, name), func(r *replay.Result) error {
		kept = results.Add(r)
		return kept
	})
	if kept != nil {
		return kept
	}
	if err != nil {
		return exit.Input(err)
	}
	out := bufio.NewWriter(stdout)
	if o.JSON {
		err = replay.JSON(out, allocator, results)
	} else {
		err = replay.Text(out, allocator, results)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// completedReplay adds what the flags of replay can be.
func completedReplay(cmd *cobra.Command) *cobra.Command {
	mustComplete(cmd, "memory", words("vmm", "separate"))
	mustComplete(cmd, "growth", words("true", "false"))
	completePolicy(cmd, false)
	return cmd
}
