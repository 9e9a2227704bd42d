package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/snapshot"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
)

const importExits = `0 imported; 2 wrong usage, or a file that is missing, damaged or empty;
  3 memprof failed`

// snapshotFormat is what the recording calls the kind of file that can be imported.
const snapshotFormat = "torch-snapshot"

type importOptions struct {
	Output string
	Force  bool
	JSON   bool
}

func newImportCommand() *cobra.Command {
	var opts importOptions
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Make a recording from a PyTorch snapshot",
		Long: `Makes a recording from a file of another tool, whose format is found by what
it begins with: a file of torch.cuda.memory._dump_snapshot, gzipped or not, of
pickle protocol 2 to 5. No code in a file is run. report, check, diff, fit and
export read the recording as any other, and import such a file themselves where
they are given one instead of a recording. Several files are ranks, in their
order.

PyTorch keeps only its newest events. Memory that was allocated before the first
of them is in the recording from its beginning; import prints how much, and the
report from which event on all sizes are exact.`,
		Annotations: exitCodes(importExits),
		Example: `  memprof import snapshot.pickle -o run && memprof report run
  memprof import rank0.pickle rank1.pickle -o run`,
		Args: someArgs("a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *importOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Output, "output", "o", "", "write the recording to this `directory` (required)")
	flags.BoolVar(&o.Force, "force", false, "replace the recording in the output directory")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *importOptions) run(stdout io.Writer, files []string) error {
	if files[0] == snapshotFormat { // as earlier versions had it
		files = files[1:]
	}
	switch {
	case len(files) == 0:
		return exit.Usagef("import needs a file")
	case o.Output == "":
		return exit.Usagef("import needs -o DIRECTORY, for the recording")
	}
	for _, file := range files { // before anything is made or removed
		if _, err := existingFile(file); err != nil {
			return exit.Input(err)
		}
	}
	place, err := makePlace(o.Output, o.Force)
	if err != nil {
		return err
	}
	made, err := snapshot.Import(place.Dir, files, version)
	if err != nil {
		place.Abandon()
		return importError(err)
	}
	if o.JSON {
		return screen.JSON(stdout, imported{o.Output, made})
	}
	return o.print(stdout, made)
}

// importError makes an error one of the input, except for a full disk and other failures of files.
func importError(err error) error {
	var about *fs.PathError
	if errors.Is(err, trace.ErrDiskFull) || errors.As(err, &about) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return exit.Input(err)
}

func (o *importOptions) print(stdout io.Writer, made []snapshot.Process) error {
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
	Run       string             `json:"run"`
	Processes []snapshot.Process `json:"processes"`
}
