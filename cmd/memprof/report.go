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
)

type reportOptions struct {
	JSON    bool
	Format  string
	NoPlots bool
	Output  string
	Table   string
	Card    sizeFlag
}

func newReportCommand() *cobra.Command {
	var opts reportOptions
	cmd := &cobra.Command{
		Use:   "report PATH...",
		Short: "Say where the memory of a recording went",
		Long: `Prints, for each process and device of a recording, where its memory went: the peak, who
held it, growths, iterations, leaks. Draws plots as PNG and SVG beside the trace.`,
		Annotations: exitCodes(reportExits),
		Example: `  memprof report run
  memprof report --format markdown --no-plots run > summary.md
  memprof report --table paper zoo/*`,
		Args: someArgs("a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *reportOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.JSON, "json", false, "print JSON, the same as --format json")
	flags.StringVar(&o.Format, "format", "text", "text, markdown or json")
	flags.BoolVar(&o.NoPlots, "no-plots", false, "draw no plots")
	flags.StringVarP(&o.Output, "output", "o", "", "draw plots into this `directory` (default: beside the trace)")
	flags.Var(&o.Card, "card", "hold plans of sleep and wake against a card of this size (default: the recorded one)")
	flags.StringVar(&o.Table, "table", "", "one table over all recordings instead: paper, the BFC paper's; a PATH may be a folder of recordings")
}

func (o *reportOptions) run(stdout, stderr io.Writer, paths []string) error {
	if o.JSON {
		o.Format = "json"
	}
	switch o.Format {
	case "text", "markdown", "json":
	default:
		return usagef("--format %q: want text, markdown or json", o.Format)
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
		for _, warning := range run.run.Warnings {
			fmt.Fprintln(stderr, "memprof: warning:", warning)
		}
		for _, problem := range run.run.Info.Problems {
			fmt.Fprintln(stderr, "memprof: problem of the recording:", problem)
		}
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

func (o *reportOptions) print(stdout io.Writer, results []*analysis.Result) error {
	switch o.Format {
	case "json":
		return report.JSON(stdout, results)
	case "markdown":
		return report.Markdown(stdout, results)
	}
	return report.Text(stdout, results, report.Options{Color: colourful(stdout)})
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
