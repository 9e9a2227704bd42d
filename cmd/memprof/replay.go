package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/bfc/ops"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

const replayExits = `0 replayed, whatever was refused; 2 wrong usage, or an operation that makes no
  sense; 3 memprof failed`

type replayOptions struct {
	Ops         string
	Limit       sizeFlag
	Headroom    sizeFlag
	Policy      policyFlags
	GC          bool
	Fraction    float64
	Memory      string
	Physical    sizeFlag // 0: no end
	Granularity sizeFlag
	JSON        bool
}

// growthWithValue gives a --growth of replay that no value follows the value true, as TensorFlow's
// allow_growth has it. It is for whole command lines: pflag cannot have a flag whose value may be
// left out and may be a word of its own.
func growthWithValue(args []string) []string {
	verb := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if verb < 0 || args[verb] != "replay" {
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
	opts := replayOptions{Memory: "vmm", Granularity: 2 << 20}
	cmd := &cobra.Command{
		Use:   "replay --ops FILE --limit SIZE",
		Short: "Run hand-written requests through the model of the allocator",
		Long: `Runs a sequence of requests through the model of the allocator, without any GPU,
and shows where each block would lie. The operations are one a line:

  alloc NAME SIZE   ask for SIZE bytes, like 2.5M (K, M, G: powers of 1024)
  free NAME         free that block
  gc                release all idle regions
  iteration         end an iteration, for --trim and --placement
  # comment         to the end of the line

Memory is bounded by the blocks in use, whose names may take 256 MiB; results
wait among temporary files until the last operation made sense.

It models one heap. Arenas for small requests are for the hook and tune: see
--small-arenas of record and of tune.`,
		Annotations: exitCodes(replayExits),
		Example: `  memprof replay --ops requests.ops --limit 80GiB
  printf 'alloc a 3M\nfree a\n' | memprof replay --ops - --limit 1GiB --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exit.Usagef("replay takes no arguments, got %q (see `memprof replay --help`)", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"ops", "limit"} {
				if !cmd.Flags().Changed(name) {
					return exit.Usagef("replay needs --%s (see `memprof replay --help`)", name)
				}
			}
			if cmd.Flags().Changed("physical") && opts.Physical == 0 {
				return exit.Usagef("--physical 0: a device without memory refuses all; leave it out for one without end")
			}
			return runReplay(cmd.OutOrStdout(), cmd.InOrStdin(), opts)
		},
	}
	opts.addFlags(cmd.Flags())
	return completedReplay(cmd)
}

func (o *replayOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Ops, "ops", "", "`file` of operations; - for stdin")
	flags.Var(&o.Limit, "limit", "most that the allocator reserves (required)")
	o.Policy.addReplayed(flags)
	flags.BoolVar(&o.GC, "gc", false, "release idle regions before a request fails")
	flags.Float64Var(&o.Fraction, "fragmentation-fraction", 0, "split where more than this share of the limit would be left, not 128 MiB")
	flags.Var(&o.Headroom, "headroom", "growth beyond a request leaves this much of --physical free")
	flags.StringVar(&o.Memory, "memory", o.Memory, "vmm (growths coalesce) or separate (each growth a region of its own)")
	flags.Var(&o.Physical, "physical", "what the device has, and refuses beyond (default no end)")
	flags.Var(&o.Granularity, "granularity", "what vmm pads growths to")
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
	policy, err := o.Policy.policy()
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	policy.Limit, policy.Headroom = uint64(o.Limit), uint64(o.Headroom)
	options := policy.Heap()
	options.FragmentationFraction, options.GarbageCollection = o.Fraction, o.GC
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
	results := &replayResults{}
	defer results.close()
	var kept error
	err = ops.Run(allocator, ops.NewReader(file, name), func(r *ops.Result) error {
		kept = results.add(r)
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
		err = printReplayJSON(out, allocator, results)
	} else {
		err = printReplay(out, allocator, results)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// resultJSON is one operation; which of its fields are there depends on what came of it.
type resultJSON struct {
	Op        ops.Verb `json:"op"`
	Name      *string  `json:"name,omitempty"`
	OK        bool     `json:"ok"`
	Region    *int     `json:"region,omitempty"`
	Offset    *uint64  `json:"offset,omitempty"`
	Requested *uint64  `json:"requested,omitempty"`
	Provided  *uint64  `json:"provided,omitempty"`
	Released  *uint64  `json:"released,omitempty"`
	Mapped    *uint64  `json:"mapped,omitempty"`
}

func toJSON(r *ops.Result) resultJSON {
	out := resultJSON{Op: r.Verb, OK: r.OK}
	switch r.Verb {
	case ops.GC:
		out.Released = &r.Released
		return out
	case ops.Iteration:
		out.Released, out.Mapped = &r.Released, &r.Mapped
		return out
	}
	out.Name = &r.Name
	if r.OK {
		out.Region, out.Offset, out.Provided = &r.Region, &r.Offset, &r.Provided
	}
	if r.OK || r.Verb == ops.Alloc {
		out.Requested = &r.Requested
	}
	return out
}

type chunkJSON struct {
	Offset    uint64 `json:"offset"`
	Size      uint64 `json:"size"`
	Free      bool   `json:"free"`
	Requested uint64 `json:"requested"` // 0 if free
	ID        int64  `json:"id"`        // -1 if free
}

type regionJSON struct {
	Size   uint64      `json:"size"`
	Chunks []chunkJSON `json:"chunks"`
}

type replayStatsJSON struct {
	NumAllocs      uint64  `json:"num_allocs"`
	BytesInUse     uint64  `json:"bytes_in_use"`
	PeakBytesInUse uint64  `json:"peak_bytes_in_use"`
	LargestAlloc   uint64  `json:"largest_alloc"`
	Reserved       uint64  `json:"reserved"`
	PeakReserved   uint64  `json:"peak_reserved"`
	LargestFree    uint64  `json:"largest_free"`
	Fragmentation  float64 `json:"fragmentation"`
}

// printReplayJSON writes one operation, and one region, a line: results of millions of
// operations are never encoded as a whole.
func printReplayJSON(w *bufio.Writer, a *bfc.Allocator, results *replayResults) error {
	w.WriteString(`{"ops":[`)
	err := results.each(func(i int, r *ops.Result) error { return writeElement(w, i, toJSON(r)) })
	if err != nil {
		return err
	}
	w.WriteString("],\n\"regions\":[")
	for i, region := range a.Regions() {
		out := regionJSON{Size: region.Size}
		for _, c := range region.Chunks {
			out.Chunks = append(out.Chunks, chunkJSON{c.Offset, c.Size, c.Free(), c.Requested, c.ID})
		}
		if err := writeElement(w, i, out); err != nil {
			return err
		}
	}
	s := a.Stats()
	stats, err := plain.JSON(replayStatsJSON{
		s.NumAllocs, s.BytesInUse, s.PeakBytesInUse, s.LargestAlloc, s.Reserved, s.PeakReserved, a.LargestFree(), a.Fragmentation(),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "],\n\"stats\":%s,\n\"next_region\":%d}\n", stats, a.NextRegion())
	return err
}

func writeElement(w *bufio.Writer, i int, value any) error {
	separator := "\n"
	if i > 0 {
		separator = ",\n"
	}
	w.WriteString(separator)
	text, err := plain.JSON(value)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// replaySize is formatSize for sizes up to 2^64-1.
func replaySize(bytes uint64) string {
	if bytes > math.MaxInt64 {
		return fmt.Sprintf("%.1f EiB", math.Ldexp(float64(bytes), -60))
	}
	return units.FormatSize(int64(bytes))
}

// widestName is up to where names widen their column, in characters.
const widestName = 32

// printReplay leaves errors of writing to the Flush at the end.
func printReplay(w *bufio.Writer, a *bfc.Allocator, results *replayResults) error {
	names, verbs := min(max(len("NAME"), results.names), widestName), max(len(ops.Alloc), results.verbs)
	fmt.Fprintf(w, "%-*s  %-*s  %10s  %10s  WHERE\n", verbs, "OP", names, "NAME", "REQUESTED", "PROVIDED")
	err := results.each(func(_ int, r *ops.Result) error {
		requested, provided, where := "", "", fmt.Sprintf("region %d + %d", r.Region, r.Offset)
		switch {
		case r.Verb == ops.GC:
			where = "released " + replaySize(r.Released)
		case r.Verb == ops.Iteration:
			where = fmt.Sprintf("gave back %s, mapped %s", replaySize(r.Released), replaySize(r.Mapped))
		case r.OK:
			requested, provided = replaySize(r.Requested), replaySize(r.Provided)
		case r.Verb == ops.Alloc:
			requested, where = replaySize(r.Requested), "refused"
		default:
			where = "nothing: its request was refused"
		}
		_, err := fmt.Fprintf(w, "%-*s  %-*s  %10s  %10s  %s\n", verbs, r.Verb, names, plain.Text(r.Name), requested, provided, where)
		return err
	})
	if err != nil {
		return err
	}
	printOccupancy(w, a)
	s := a.Stats()
	fmt.Fprintf(w, "\nin use         %s, peak %s; %s, the largest of %s\n", replaySize(s.BytesInUse), replaySize(s.PeakBytesInUse),
		units.Counted(int64(s.NumAllocs), "allocation"), replaySize(s.LargestAlloc))
	fmt.Fprintf(w, "reserved       %s, peak %s; next region %s\n", replaySize(s.Reserved), replaySize(s.PeakReserved), replaySize(a.NextRegion()))
	fmt.Fprintf(w, "free           %s, the largest chunk of %s\n", replaySize(a.FreeBytes()), replaySize(a.LargestFree()))
	fmt.Fprintf(w, "fragmentation  %.1f%%\n", 100*a.Fragmentation())
	return nil
}

// printOccupancy draws each region over the whole width, however large it is.
func printOccupancy(w *bufio.Writer, a *bfc.Allocator) {
	const cells = 100
	regions := a.Regions()
	if len(regions) == 0 {
		fmt.Fprintln(w, "\nno regions")
		return
	}
	fmt.Fprintln(w, "\n* requested   x rounding and slack   _ free")
	for i, region := range regions {
		free := 0
		for _, c := range region.Chunks {
			if c.Free() {
				free++
			}
		}
		fmt.Fprintf(w, "region %d: %s, %s, %d of them free\n", i, replaySize(region.Size), units.Counted(int64(len(region.Chunks)), "chunk"), free)
		fmt.Fprintln(w, bfc.Picture(regions[i:i+1], cells))
	}
}
