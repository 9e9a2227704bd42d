package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace"
)

type reportOptions struct {
	formatFlags
	NoPlots bool
	Output  string
	Table   string
	Card    sizeFlag
	HTML    bool
	At      eventFlag
}

func newReportCommand() *cobra.Command {
	var opts reportOptions
	cmd := &cobra.Command{
		Use:   "report PATH...",
		Short: "Say where the memory of a recording went",
		Long: `Prints, for each process and device of a recording, where its memory went: the
peak, who held it, growths, iterations, leaks. Draws plots as PNG and SVG beside
the trace. With --html it writes one page instead, to look at any instant; it
needs no network and nothing beside itself.`,
		Annotations: exitCodes(reportExits),
		Example: `  memprof report run
  memprof report --format markdown --no-plots run > summary.md
  memprof report --html run
  memprof report --at 48213 run
  memprof report --table paper zoo/*`,
		Args: someArgs("a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "format", words("text", "markdown", "json"))
	return cmd
}

func (o *reportOptions) addFlags(flags *pflag.FlagSet) {
	o.formatFlags.add(flags)
	flags.BoolVar(&o.NoPlots, "no-plots", false, "draw no plots")
	flags.Var(&o.Card, "card", "hold plans of sleep and wake against a card of this size (default: the recorded one)")
	flags.StringVarP(&o.Output, "output", "o", "", "draw plots into this `directory`, or write the page there or to a file that ends in .html (default: beside the trace)")
	flags.BoolVar(&o.HTML, "html", false, "write report.html, a page of its own, in place of text and plots")
	flags.Var(&o.At, "at", "what memory was like right after the event `SEQ` of each process, exactly")
	flags.StringVar(&o.Table, "table", "", "instead, one table over all recordings: paper, the BFC paper's; a PATH may be a folder of recordings")
}

// settle works out the format, and refuses what makes no sense together.
func (o *reportOptions) settle() error {
	if err := o.formatFlags.settle(); err != nil {
		return err
	}
	switch {
	case o.HTML && o.Format != "text":
		return usagef("--html and %s: choose one", o.Format)
	case o.At.given && (o.HTML || o.Table != ""):
		return usagef("--at goes with text, markdown and JSON")
	case o.HTML && o.Table != "":
		return usagef("--table goes with text, markdown and JSON")
	}
	return nil
}

func (o *reportOptions) run(stdout, stderr io.Writer, paths []string) error {
	if err := o.settle(); err != nil {
		return err
	}
	switch {
	case o.At.given:
		return o.at(stdout, stderr, paths)
	case o.HTML:
		return o.page(stderr, paths)
	}
	if o.Output != "" {
		if err := os.MkdirAll(o.Output, 0o755); err != nil {
			return usagef("-o %s cannot be created: %w", o.Output, err)
		}
	}
	switch o.Table {
	case "":
	case "paper":
		return o.paper(stdout, stderr, paths)
	default:
		return usagef("--table %q: want paper", o.Table)
	}
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	var results []*analysis.Result
	for _, run := range runs {
		warn(stderr, run.run)
		o.chooseCard(run.results)
		results = append(results, run.results...)
	}
	if err := simulateKV(results); err != nil {
		return err
	}
	if err := o.print(stdout, results); err != nil {
		return err
	}
	if o.NoPlots {
		return nil
	}
	return o.draw(stderr, runs)
}

// chooseCard has plans held against the card that was asked for.
func (o *reportOptions) chooseCard(results []*analysis.Result) {
	for _, result := range results {
		for i := range result.Devices {
			if sleep := result.Devices[i].Sleep; sleep != nil && o.Card > 0 {
				sleep.Card = int64(o.Card)
			}
		}
	}
}

// warn says what is odd about a recording.
func warn(stderr io.Writer, run *trace.Run) {
	for _, warning := range run.Warnings {
		fmt.Fprintln(stderr, "memprof: warning:", warning)
	}
	for _, problem := range run.Info.Problems {
		fmt.Fprintln(stderr, "memprof: problem of the recording:", problem)
	}
}

func (o *reportOptions) print(stdout io.Writer, results []*analysis.Result) error {
	switch o.Format {
	case "json":
		return report.JSON(stdout, results)
	case "markdown":
		return report.Markdown(stdout, results)
	}
	return report.Text(stdout, results, textOptions(stdout))
}

// draw makes the plots of every process and names them. Of several recordings in one
// directory the names start with the recording's.
func (o *reportOptions) draw(stderr io.Writer, runs []analyzedRun) error {
	for _, run := range runs {
		dir := run.run.Dir
		if o.Output != "" {
			dir = o.Output
		}
		for _, result := range run.results {
			prefix := result.Process
			if o.Output != "" && len(runs) > 1 {
				prefix = filepath.Base(filepath.Clean(run.path)) + "-" + prefix
			}
			files, err := report.WritePlots(dir, prefix, result)
			for _, file := range files {
				fmt.Fprintln(stderr, "memprof: wrote", file)
			}
			if err != nil {
				return fmt.Errorf("plots: %w (--no-plots leaves them out, -o draws them elsewhere)", err)
			}
		}
	}
	return nil
}
