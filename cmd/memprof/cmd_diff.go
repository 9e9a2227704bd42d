package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/units"
)

const diffExits = `0 compared, whatever changed; 2 wrong usage, no such trace, or nothing to
  compare; 3 memprof failed`

type diffOptions struct {
	Base, New []string
	Format    string
	JSON      bool
	HTML      bool
	Top       int
}

func newDiffCommand() *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:   "diff [BASE NEW]",
		Short: "Say what grew between two runs, or two sets of runs",
		Long: `Compares recordings: metrics (those of memprof check --list), iterations,
phases, modules, categories and sizes of requests. BASE and NEW are one
recording each; for repetitions of the same job, give each recording with --base
or --new. Of repetitions the median counts, and a change no greater than the
spread of either set is shown as within noise. In a recording the worst process
and device counts. Recordings that hold different ranks of one world are the
nodes of one job, and count as one run.`,
		Annotations: exitCodes(diffExits),
		Example: `  memprof diff before after
  memprof diff --base main1 --base main2 --base main3 --new mine1 --new mine2
  memprof diff --format markdown before after > diff.md
  memprof diff --html before after > diff.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "format", words("text", "markdown", "json", "html"))
	for _, flag := range []string{"base", "new"} {
		mustComplete(cmd, flag, completeDirectories)
	}
	return cmd
}

func (o *diffOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Base, "base", nil, "a recording to compare with, `path`; may be given several times")
	flags.StringArrayVar(&o.New, "new", nil, "a recording to compare, `path`; may be given several times")
	flags.StringVar(&o.Format, "format", "text", "text, markdown, json or html")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, the same as --format json")
	flags.BoolVar(&o.HTML, "html", false, "print one page that needs nothing beside itself, the same as --format html")
	flags.IntVar(&o.Top, "top", 10, "print so `many` lines of modules, sizes and the like; JSON has all")
}

func (o *diffOptions) run(stdout, stderr io.Writer, args []string) error {
	if err := o.settle(args); err != nil {
		return err
	}
	if o.Format == "html" && screen.Terminal(stdout) {
		return exit.Usagef("a page is not for a terminal: send it to a file, with > diff.html")
	}
	base, err := o.analyzeSet(stderr, o.Base)
	if err != nil {
		return err
	}
	with, err := o.analyzeSet(stderr, o.New)
	if err != nil {
		return err
	}
	compared := report.Compared{Diff: analysis.Compare(base, with), BaseNames: o.Base, NewNames: o.New, Top: o.Top}
	switch o.Format {
	case "json":
		return report.DiffJSON(stdout, compared)
	case "markdown":
		return report.DiffMarkdown(stdout, compared)
	case "html":
		return report.DiffHTML(stdout, compared)
	}
	return report.DiffText(stdout, compared, screen.Options(stdout))
}

// settle works out the two sets, and refuses what makes no sense.
func (o *diffOptions) settle(args []string) error {
	flags := len(o.Base) + len(o.New)
	switch {
	case flags == 0 && len(args) == 2:
		o.Base, o.New = args[:1], args[1:]
	case flags > 0 && len(args) > 0:
		return exit.Usagef("diff takes BASE and NEW, or --base and --new, not both: %q is neither (several recordings of a set are --base A --base B)", args[0])
	case flags == 0:
		return exit.Usagef("diff takes BASE and NEW, got %s; for sets of runs give --base and --new (see `memprof diff --help`)", units.Counted(int64(len(args)), "argument"))
	case len(o.New) == 0:
		return exit.Usagef("diff has --base and no --new: there is nothing to compare")
	case len(o.Base) == 0:
		return exit.Usagef("diff has --new and no --base: there is nothing to compare with")
	}
	switch {
	case o.JSON && o.HTML:
		return exit.Usagef("--json and --html: choose one")
	case o.JSON:
		o.Format = "json"
	case o.HTML:
		o.Format = "html"
	}
	if err := oneOf("format", o.Format, "text", "markdown", "json", "html"); err != nil {
		return err
	}
	if o.Top < 1 {
		return exit.Usagef("--top %d: want 1 or more", o.Top)
	}
	return nil
}

// analyzeSet gives the results of each run of a set. A run without allocations has nothing
// to compare.
func (o *diffOptions) analyzeSet(stderr io.Writer, paths []string) ([][]*analysis.Result, error) {
	recordings, err := analyzeAll(paths)
	if err != nil {
		return nil, err
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
			return nil, exit.Usagef("%s: no allocation in it: there is nothing to compare", nodes[0].Path)
		}
		runs = append(runs, run)
	}
	return runs, nil
}
