package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/importer"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
)

const importExits = `0 imported; 2 wrong usage, or a file that is missing, damaged or empty;
  3 memprof failed`

type importOptions struct {
	Output string
	Force  bool
	JSON   bool
}

func newImportCommand() *cobra.Command {
	var opts importOptions
	cmd := &cobra.Command{
		Use:   "import FORMAT FILE...",
		Short: "Make a recording from a PyTorch snapshot or an RMM log",
		Long: `Makes a recording from a file of another tool. report, view, check, diff, tune,
fit and export read it as any other, and import such a file themselves where
they are given one instead of a recording. Several files are ranks, in their
order.

Formats:
  torch-snapshot  a file of torch.cuda.memory._dump_snapshot, gzipped or not, of
                  pickle protocol 2 to 5. No code in a file is run.
  rmm-csv         a log of the RAPIDS Memory Manager (rmm.enable_logging): only
                  allocations, no pools and no free memory in them.

PyTorch keeps only its newest events. Memory that was allocated before the first
of them is in the recording from its beginning; import prints how much, and the
report from which event on all sizes are exact.`,
		Annotations: exitCodes(importExits),
		Example: `  memprof import torch-snapshot snapshot.pickle -o run && memprof report run
  memprof import torch-snapshot rank0.pickle rank1.pickle -o run
  memprof import rmm-csv rmm_log.dev0.csv -o run`,
		Args: someArgs("a format and a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), args[0], args[1:])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return formatNames(), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	return cmd
}

func (o *importOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Output, "output", "o", "", "write the recording to this `directory` (required)")
	flags.BoolVar(&o.Force, "force", false, "replace the recording in the output directory")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *importOptions) run(stdout io.Writer, format string, files []string) error {
	from, known := importer.Named(format)
	switch {
	case !known:
		return exit.Usagef("import format %q: want %s%s", format, plain.Alternatives(formatNames()), plain.DidYouMean(format, formatNames()...))
	case len(files) == 0:
		return exit.Usagef("import %s needs a file", format)
	case o.Output == "":
		return exit.Usagef("import needs -o DIRECTORY, for the recording")
	}
	for _, file := range files { // before anything is made or removed
		if _, err := existingFile(file); err != nil {
			return exit.Input(err)
		}
	}
	place, err := recorder.MakePlace(o.Output, o.Force)
	if err != nil {
		return err
	}
	made, err := from.Import(place.Dir, files, version)
	if err != nil {
		place.Abandon()
		return importError(err)
	}
	if o.JSON {
		return screen.JSON(stdout, imported{Run: o.Output, Processes: importedProcesses(made)})
	}
	return o.print(stdout, made)
}

func formatNames() []string {
	var names []string
	for _, f := range importer.Formats {
		names = append(names, f.Name)
	}
	return names
}

// importError makes an error one of the input, except for a full disk and other failures of files.
func importError(err error) error {
	var about *fs.PathError
	if errors.Is(err, trace.ErrDiskFull) || errors.As(err, &about) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return exit.Input(err)
}

func (o *importOptions) print(stdout io.Writer, made []importer.Process) error {
	for _, p := range made {
		text := fmt.Sprintf("%s: device %d of %s, %s", p.Name, p.Device, p.File, plain.Counted(p.Entries, "event"))
		if p.Bytes > 0 {
			text += fmt.Sprintf("; before the first one %s were reserved, with %s in them", plain.FormatSize(p.Bytes), plain.Counted(p.Blocks, "block"))
		}
		if p.Odd > 0 {
			text += fmt.Sprintf("; %s contradict others and were left out", plain.Counted(p.Odd, "event"))
		}
		if err := screen.PrintLine(stdout, "%s", text); err != nil {
			return err
		}
	}
	return screen.PrintLine(stdout, "next: memprof report %s", plain.ShellQuote(o.Output))
}

// imported is what --json prints.
type imported struct {
	Run       string            `json:"run"`
	Processes []importedProcess `json:"processes"`
}

type importedProcess struct {
	Name    string `json:"process"`
	File    string `json:"file"`
	Device  int    `json:"device"`
	Entries int64  `json:"events"`
	Blocks  int64  `json:"blocks_before"`
	Bytes   int64  `json:"reserved_before"`
	Odd     int64  `json:"contradictions"`
}

func importedProcesses(made []importer.Process) []importedProcess {
	out := make([]importedProcess, len(made))
	for i, p := range made {
		out[i] = importedProcess(p)
	}
	return out
}
