package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/export"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

const exportExits = "0 written; 2 wrong usage, or a missing or damaged recording; 3 memprof failed"

type exportOptions struct {
	Output string
	Of     processFlags
	Frames framesFlag
	At     string
	By     string
}

// exportFormat is a verb below export.
type exportFormat struct {
	name, short, example string
	binary               bool // not for a terminal
	flags                func(*exportOptions, *pflag.FlagSet)
	passes               func(*dataset.Run) int64 // events that are read, over all passes
	write                func(*exportOptions, io.Writer, *export.Recording) error
}

func exportFormats() []exportFormat {
	return []exportFormat{
		{
			name: "pprof", short: "A profile for `go tool pprof`: memory by stack or module", binary: true,
			example: "  memprof export pprof run -o run.pb.gz && go tool pprof -top run.pb.gz\n  memprof export pprof run --at end --by module -o end.pb.gz",
			flags:   (*exportOptions).addPprofFlags, passes: eventsOf,
			write: func(o *exportOptions, w io.Writer, r *export.Recording) error {
				return export.Pprof(w, r, export.PprofOptions{At: o.At, By: o.By, AllFrames: o.Frames.all()})
			},
		},
		{
			name: "csv", short: "All events as comma-separated values", passes: eventsOf,
			example: "  memprof export csv run -o run.csv\n  memprof export csv run --process rank0 | head",
			write:   func(_ *exportOptions, w io.Writer, r *export.Recording) error { return export.CSV(w, r) },
		},
		{
			name: "torch-snapshot", short: "A PyTorch snapshot, for pytorch.org/memory_viz and mosaic", binary: true,
			example: "  memprof export torch-snapshot run -o run.pickle\n  memprof export torch-snapshot run --process rank3 -o rank3.pickle",
			passes: func(run *dataset.Run) int64 {
				return eventsOf(run) * int64(export.SnapshotPasses(1))
			},
			write: writeSnapshot,
		},
	}
}

func writeSnapshot(_ *exportOptions, w io.Writer, r *export.Recording) error {
	if n := len(r.Run.Processes); n != 1 {
		return exit.Usagef("a snapshot holds one process, and %s has %d: choose one with --process (%s)", r.Run.Dir, n, processNames(r.Run))
	}
	return export.TorchSnapshot(w, r, r.Run.Processes[0])
}

func newExportCommand() *cobra.Command {
	var opts exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a recording in the format of another tool",
		Long: `Writes a recording in the format of another tool. Events are streamed: host
memory is bounded by what was live on the device. The recording itself is
Parquet, which DuckDB, pandas and Polars read without any export.`,
		Annotations: exitCodes(exportExits),
		Example: `  memprof export torch-snapshot run -o run.pickle
  memprof export pprof run --at end -o end.pb.gz`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, format := range exportFormats() {
		cmd.AddCommand(format.command(&opts))
	}
	opts.addFlags(cmd.PersistentFlags())
	mustComplete(cmd, "process", completeProcesses)
	mustComplete(cmd, "at", words(exportInstants...))
	return cmd
}

func (f exportFormat) command(opts *exportOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use: f.name + " PATH", Short: f.short, Long: f.short + ".",
		Annotations: exitCodes(exportExits), Example: f.example,
		Args: exactArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), f, args[0])
		},
	}
	if f.flags != nil {
		f.flags(opts, cmd.Flags())
	}
	cmd.ValidArgsFunction = completeDirectories
	if cmd.Flags().Lookup("by") != nil {
		mustComplete(cmd, "by", words(export.ByStack, export.ByModule))
		mustComplete(cmd, "frames", words(frameChoices...))
	}
	return cmd
}

func (o *exportOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Output, "output", "o", "", "write to this `file` (default: standard output)")
	o.Of.add(flags)
	flags.StringVar(&o.At, "at", "", "export up to this `instant`: end, peak, oom (the first failed request), or the number of an event (default: end; of pprof, whose profile is of that instant, peak)")
}

// exportInstants are instants that --at takes by name.
var exportInstants = []string{export.AtPeak, export.AtOOM, export.AtEnd}

func (o *exportOptions) addPprofFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.By, "by", "", "`frames`: stack or module (default: stack, if stacks were recorded)")
	o.Frames.add(flags)
}

func (o *exportOptions) validate() error {
	if _, err := strconv.ParseUint(o.At, 10, 63); err != nil && !slices.Contains(exportInstants, o.At) {
		return exit.Usagef("--at %q: want peak, oom, end or the number of an event%s", o.At, plain.DidYouMean(o.At, exportInstants...))
	}
	if err := o.Frames.validate(); err != nil || o.By == "" {
		return err
	}
	return oneOf("by", o.By, export.ByStack, export.ByModule)
}

func (o *exportOptions) run(stdout, stderr io.Writer, f exportFormat, path string) error {
	if o.At == "" {
		o.At = export.AtEnd
		if f.name == "pprof" {
			o.At = export.AtPeak
		}
	}
	if err := o.validate(); err != nil {
		return err
	}
	if f.binary && o.Output == "" && screen.Terminal(stdout) {
		return exit.Usagef("%s is a binary format, not for a terminal: name a file with -o", f.name)
	}
	run, err := openRun(path)
	if err != nil {
		return err
	}
	if _, err := o.Of.chooseOf([]*dataset.Run{run}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, warning := range run.Warnings {
		screen.Remark(stderr, "warning", warning)
	}
	screen.NewProgress(stderr, "exporting", f.passes(run)).Follow(run)
	recording := &export.Recording{Run: run}
	if err := o.cut(stderr, f, path, recording); err != nil {
		return exportError(err)
	}
	write := func(w io.Writer) error { return f.write(o, w, recording) }
	if o.Output == "" {
		shown := &screen.PlainWriter{W: stdout}
		if screen.Terminal(stdout) {
			return exportError(cmp.Or(write(shown), shown.Flush())) // after a failure flushing fails likewise
		}
		buffered := bufio.NewWriter(stdout)
		return exportError(cmp.Or(write(buffered), buffered.Flush()))
	}
	return exportError(writeWhole(o.Output, privateMode, write))
}

// cut has the recording end at the instant of --at. Processes that have no such instant are left out, and stderr
// says so. A profile has the peak and the failure of each device, for which nothing is cut.
func (o *exportOptions) cut(stderr io.Writer, f exportFormat, path string, r *export.Recording) error {
	named := slices.Contains(exportInstants, o.At)
	if o.At == export.AtEnd || named && f.name == "pprof" {
		return nil
	}
	var without []string
	cut := map[*dataset.Process]bool{}
	for _, process := range r.Run.Processes {
		ok, err := r.CutAt(process, o.At)
		if err != nil {
			return err
		}
		if cut[process] = ok; !ok {
			without = append(without, process.Name)
		}
	}
	switch {
	case len(without) == len(r.Run.Processes) && o.At == export.AtOOM:
		return export.ErrNoOOM
	case len(without) == len(r.Run.Processes):
		return exit.Usagef("--at %s: %s has no such event", o.At, path)
	case len(without) > 0:
		screen.Remark(stderr, "warning", fmt.Sprintf("left out, since nothing has --at %s there: %s", o.At, strings.Join(without, ", ")))
		r.Run.Choose(func(p *dataset.Process) bool { return cut[p] })
	}
	return nil
}

// exportError makes an error about a damaged recording one of the input.
func exportError(err error) error {
	if errors.Is(err, export.ErrNoOOM) {
		return exit.Input(err)
	}
	var coded *exit.Error
	var place *trace.PathError
	var event *ledger.EventError
	if errors.As(err, &coded) || !errors.As(err, &place) && !errors.As(err, &event) {
		return err
	}
	return exit.Input(err)
}
