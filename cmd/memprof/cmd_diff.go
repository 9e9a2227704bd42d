package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
)

const diffExits = `0 compared, whatever changed; 2 wrong usage, no such recording, or nothing to
  compare; 3 memprof failed`

type diffOptions struct {
	Base, New []string
	formatFlags
	HTML   bool
	Output string
	Top    int
	Of     processFlags
}

func newDiffCommand() *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:   "diff [BASE NEW]",
		Short: "Compare two runs, or two sets of repeated runs",
		Long: `Compares recordings: their metrics (defined by memprof check --list),
iterations, phases, modules, source lines, call stacks, categories and sizes of
requests, and what of that is better or worse. BASE and NEW are a recording
each, or a folder of repeated runs; --base and --new name these one by one. The
median of repeated runs is compared, and a change no greater than the spread
within either set is marked as noise. In a recording the worst process and
device count. Recordings that hold different ranks of one world count as one
run.`,
		Annotations: exitCodes(diffExits),
		Example: `  memprof diff before after
  memprof diff --base main1 --base main2 --base main3 --new mine1 --new mine2
  memprof diff --markdown before after > diff.md
  memprof diff --html -o diff.html before after`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "process", completeProcesses)
	for _, flag := range []string{"base", "new"} {
		mustComplete(cmd, flag, completeDirectories)
	}
	return cmd
}

func (o *diffOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Base, "base", nil, "`recording` to compare with; may be given several times")
	flags.StringArrayVar(&o.New, "new", nil, "`recording` to compare; may be given several times")
	o.formatFlags.add(flags)
	flags.BoolVar(&o.HTML, "html", false, "write one page instead")
	flags.StringVarP(&o.Output, "output", "o", "", "with --html: write the page into this `directory`, or to a file that ends in .html (default: standard output)")
	o.Of.add(flags)
	flags.IntVar(&o.Top, "top", 10, "print the `N` largest changes of each table but that of metrics; JSON has all")
}

func (o *diffOptions) run(stdout, stderr io.Writer, args []string) error {
	if err := o.validate(args); err != nil {
		return err
	}
	if o.HTML && o.Output == "" && screen.Terminal(stdout) {
		return exit.Usagef("--html prints a page, not for a terminal: write it to a file, as in -o diff.html")
	}
	base, err := o.analyzeSet(stderr, o.Base)
	if err != nil {
		return err
	}
	with, err := o.analyzeSet(stderr, o.New)
	if err != nil {
		return err
	}
	compared := report.Compared{Diff: compare.Compare(base, with), BaseNames: o.Base, NewNames: o.New, Top: o.Top}
	if o.HTML {
		compared.BaseCourse, compared.NewCourse = report.CourseOf(base[0]), report.CourseOf(with[0])
		if o.Output == "" {
			return report.DiffHTML(stdout, compared)
		}
		return writePage(stderr, o.Output, "diff.html", "", func(w io.Writer) error { return report.DiffHTML(w, compared) })
	}
	return printAs(stdout, o.Format, compared, report.DiffSections, report.DiffJSON)
}

// validate sets Base, New and Format from the arguments and flags. An error is one of wrong usage.
func (o *diffOptions) validate(args []string) error {
	flags := len(o.Base) + len(o.New)
	switch {
	case flags == 0 && len(args) == 2:
		o.Base, o.New = args[:1], args[1:]
	case flags > 0 && len(args) > 0:
		return exit.Usagef("diff takes BASE and NEW, or --base and --new, not both: got also %q (repeat a flag for each recording: --base A --base B)", args[0])
	case flags == 0:
		return exit.Usagef("diff takes BASE and NEW, got %s; for repeated runs use --base and --new (see `memprof diff --help`)", plain.Counted(int64(len(args)), "argument"))
	case len(o.New) == 0:
		return exit.Usagef("--base needs --new: a recording to compare")
	case len(o.Base) == 0:
		return exit.Usagef("--new needs --base: a recording to compare with")
	}
	if err := o.formatFlags.validate(); err != nil {
		return err
	}
	switch {
	case o.HTML && o.Format != "text":
		return exit.Usagef("--html and --%s: choose one", o.Format)
	case o.Output != "" && !o.HTML:
		return exit.Usagef("-o says where the page of --html goes: add --html")
	}
	if o.Top < 1 {
		return exit.Usagef("--top %d: want 1 or more", o.Top)
	}
	return nil
}

// analyzeSet returns the results of each run of a set. A run without allocations is an error.
func (o *diffOptions) analyzeSet(stderr io.Writer, paths []string) ([][]*analysis.Result, error) {
	recordings, err := analyzeWith(paths, analysis.Options{})
	if err != nil {
		return nil, err
	}
	if recordings, err = o.Of.choose(recordings); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(paths, " "), err)
	}
	var runs [][]*analysis.Result
	for _, nodes := range recording.Jobs(recordings) {
		var run []*analysis.Result
		allocs := int64(0)
		for _, node := range nodes {
			for _, warning := range node.Run.Warnings {
				screen.Remark(stderr, "warning", fmt.Sprintf("%s: %s", node.Path, warning))
			}
			for _, result := range node.Results {
				run = append(run, result)
				for i := range result.Devices {
					allocs += result.Devices[i].Allocs
				}
			}
		}
		if allocs == 0 {
			return nil, exit.Usagef("%s: the recording has no allocation: there is nothing to compare", nodes[0].Path)
		}
		runs = append(runs, run)
	}
	return runs, nil
}
