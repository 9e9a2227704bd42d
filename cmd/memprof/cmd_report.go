package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/output"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/trace"
)

const reportExits = "0 reported; 2 no such trace, or a damaged one; 3 memprof failed"

type reportOptions struct {
	formatFlags
	NoPlots bool
	Plots   string
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
peak, who held it, growths, iterations, leaks. With the text come plots as PNG
and SVG beside the trace, where it can be written. JSON, Markdown and --table
come without, unless --plots says where plots go. With --html it writes one page
instead, to look at any instant; it needs no network and nothing beside itself.
Of a recording in progress it reports what there is so far.`,
		Annotations: exitCodes(reportExits),
		Example: `  memprof report run
  memprof report --format markdown run > summary.md
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
	mustComplete(cmd, "table", words("paper"))
	mustComplete(cmd, "plots", completeDirectories)
	return cmd
}

func (o *reportOptions) addFlags(flags *pflag.FlagSet) {
	o.formatFlags.add(flags)
	flags.BoolVar(&o.NoPlots, "no-plots", false, "draw no plots")
	flags.Var(&o.Card, "card", "hold plans of sleep and wake against a card of this size (default: the recorded one)")
	flags.StringVar(&o.Plots, "plots", "", "draw plots into this `directory` (default: with text beside the trace, else none)")
	flags.StringVarP(&o.Output, "output", "o", "", "as --plots; or write the page into this `directory`, or to a file that ends in .html (default: beside the trace)")
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
		return exit.Usagef("--html and %s: choose one", o.Format)
	case o.At.given && (o.HTML || o.Table != ""):
		return exit.Usagef("--at goes with text, markdown and JSON")
	case o.HTML && o.Table != "":
		return exit.Usagef("--table goes with text, markdown and JSON")
	case o.Card != 0 && (o.At.given || o.Table != ""):
		return exit.Usagef("--card: --at and --table have no plans to hold against a card")
	case o.Plots != "" && (o.HTML || o.At.given):
		return exit.Usagef("--plots: --html and --at draw none")
	case o.Plots != "" && o.NoPlots:
		return exit.Usagef("--plots and --no-plots: choose one")
	case o.Plots != "" && o.Output != "":
		return exit.Usagef("--plots and -o both say where plots go: choose one")
	}
	return nil
}

// plotsDir is where the user wants plots; "" is nowhere said.
func (o *reportOptions) plotsDir() string { return cmp.Or(o.Plots, o.Output) }

// makePlotsDir makes the directory that plots are wanted in.
func (o *reportOptions) makePlotsDir() error {
	dir := o.plotsDir()
	if dir == "" || o.NoPlots {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exit.Usagef("%s, for plots, cannot be created: %w", dir, err)
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
	if err := o.makePlotsDir(); err != nil {
		return err
	}
	switch o.Table {
	case "":
	case "paper":
		return o.paper(stdout, stderr, paths)
	default:
		return oneOf("table", o.Table, "paper")
	}
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	var results []*analysis.Result
	for _, run := range runs {
		warn(stderr, run.Run)
		results = append(results, run.Results...)
	}
	o.chooseCard(stderr, results)
	if err := simulateKV(results); err != nil {
		return err
	}
	if err := o.print(stdout, results); err != nil {
		return err
	}
	switch {
	case o.NoPlots:
		return nil
	case o.plotsDir() != "":
		return o.draw(stderr, runs)
	case o.Format == "text":
		drawBeside(stderr, runs)
	}
	return nil
}

// chooseCard has plans held against the card that was asked for, and says where there is no plan.
func (o *reportOptions) chooseCard(stderr io.Writer, results []*analysis.Result) {
	if o.Card == 0 {
		return
	}
	plans := 0
	for _, result := range results {
		for i := range result.Devices {
			if sleep := result.Devices[i].Pauses; sleep != nil {
				sleep.Card = int64(o.Card)
				plans++
			}
		}
	}
	if plans == 0 {
		fmt.Fprintln(stderr, "memprof: warning: --card has no effect: no memory of these recordings has a tag that can be paused")
	}
}

// warn says what is odd about a recording.
func warn(stderr io.Writer, run *trace.Run) {
	for _, warning := range run.Warnings {
		screen.Remark(stderr, "warning", warning)
	}
	for _, problem := range run.Info.Problems {
		screen.Remark(stderr, "problem of the recording", problem)
	}
}

func (o *reportOptions) print(stdout io.Writer, results []*analysis.Result) error {
	switch o.Format {
	case "json":
		return report.JSON(stdout, results)
	case "markdown":
		return report.Markdown(stdout, results)
	}
	return report.Text(stdout, results, screen.Options(stdout))
}

// draw makes the plots of every process where they are wanted. Of several recordings the names
// start with the recording's.
func (o *reportOptions) draw(stderr io.Writer, runs []recording.Recording) error {
	for _, run := range runs {
		for _, result := range run.Results {
			prefix := result.Process
			if len(runs) > 1 {
				prefix = filepath.Base(filepath.Clean(run.Path)) + "-" + prefix
			}
			if err := drawProcess(stderr, o.plotsDir(), prefix, result); err != nil {
				return exit.Input(fmt.Errorf("plots: %w", err))
			}
		}
	}
	return nil
}

// drawBeside makes the plots of every process beside its trace. Nobody asked for them: where they
// cannot be written, it says so and the report stands.
func drawBeside(stderr io.Writer, runs []recording.Recording) {
	for _, run := range runs {
		for _, result := range run.Results {
			if err := drawProcess(stderr, run.Run.Dir, result.Process, result); err != nil {
				screen.Complain(stderr, fmt.Sprintf("no plots of %s: %v (--plots DIR draws them elsewhere)", run.Path, err))
				break
			}
		}
	}
}

// drawProcess makes the plots of a process and names the files.
func drawProcess(stderr io.Writer, dir, prefix string, result *analysis.Result) error {
	files, err := report.WritePlots(dir, prefix, result)
	for _, file := range files {
		screen.Complain(stderr, "wrote "+file)
	}
	return err
}

// at reports what the devices of each process looked like right after an event of it.
func (o *reportOptions) at(stdout, stderr io.Writer, paths []string) error {
	var moments []*analysis.Moment
	var missing error
	for _, path := range paths {
		run, err := openRun(path)
		if err != nil {
			return err
		}
		warn(stderr, run)
		for _, process := range run.Processes {
			moment, err := momentOf(process, o.At.seq)
			var none *analysis.NoEventError
			if errors.As(err, &none) {
				missing = exit.Usagef("--at: %w", err)
				continue
			}
			if err != nil {
				return exit.Input(err)
			}
			moments = append(moments, moment)
		}
	}
	if len(moments) == 0 && missing != nil {
		return missing
	}
	switch o.Format {
	case "json":
		return report.MomentsJSON(stdout, moments)
	case "markdown":
		return report.MomentsMarkdown(stdout, moments)
	}
	return report.MomentsText(stdout, moments, screen.Options(stdout))
}

func momentOf(process *trace.Process, seq int64) (*analysis.Moment, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	moment, err := analysis.RunTo(reader, recording.OptionsOf(process), seq)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return moment, nil
}

// eventFlag is the number of an event, from 0, if one is given.
type eventFlag struct {
	seq   int64
	given bool
}

func (f *eventFlag) Set(text string) error {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		return fmt.Errorf("want the number of an event, from 0")
	}
	f.seq, f.given = seq, true
	return nil
}

func (f *eventFlag) String() string {
	if !f.given {
		return ""
	}
	return strconv.FormatInt(f.seq, 10)
}

func (*eventFlag) Type() string { return "event" }

// pagePoints is how finely a page tells the course of a device: so many stretches of time.
const pagePoints = 16384

// page writes the page of one or several recordings and names it.
func (o *reportOptions) page(stderr io.Writer, paths []string) error {
	runs, err := analyzeWith(paths, analysis.Options{Explore: true, MaxPoints: pagePoints, Top: 64})
	if err != nil {
		return err
	}
	p := page.Page{Used: map[*analysis.DeviceResult]analysis.Course{}, Path: strings.Join(paths, " "), Paths: map[*analysis.Result]string{}}
	for _, run := range runs {
		warn(stderr, run.Run)
		p.Results = append(p.Results, run.Results...)
		for _, result := range run.Results {
			p.Paths[result] = run.Path
		}
		if run.Readings == nil {
			continue
		}
		for _, result := range run.Results {
			for i := range result.Devices {
				d := &result.Devices[i]
				if card := recording.CardOf(result, d.Device, &run.Run.Info); card >= 0 && card < len(run.Readings.GPUs) {
					p.Used[d] = run.Readings.GPUs[card].All
				}
			}
		}
	}
	o.chooseCard(stderr, p.Results)
	if err := simulateKV(p.Results); err != nil {
		return err
	}
	file, named, err := o.pageFile(runs)
	if err != nil {
		return err
	}
	write := output.Beside
	if named {
		write = output.Whole
	}
	if err := write(file, output.Private, func(w io.Writer) error { return report.HTML(w, p) }); err != nil {
		return fmt.Errorf("%w (-o names another place)", err)
	}
	screen.Complain(stderr, "wrote "+file)
	return nil
}

// pageFile is where the page goes: -o, a file if it ends like one, or else into the directory it
// names; otherwise beside the first recording. Named says that the user gave the file's whole name.
func (o *reportOptions) pageFile(runs []recording.Recording) (path string, named bool, err error) {
	if strings.HasSuffix(o.Output, ".html") || strings.HasSuffix(o.Output, ".htm") {
		return o.Output, true, nil
	}
	if o.Output == "" {
		return filepath.Join(runs[0].Run.Dir, "report.html"), false, nil
	}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return "", false, exit.Usagef("-o %s cannot be created: %w", o.Output, err)
	}
	return filepath.Join(o.Output, "report.html"), false, nil
}
