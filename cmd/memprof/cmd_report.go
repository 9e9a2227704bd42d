package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/trace/dataset"
)

const reportExits = "0 reported; 2 wrong usage, or a missing or damaged recording; 3 memprof failed"

type reportOptions struct {
	formatFlags
	Plots   string
	Output  string
	Table   string
	Card    sizeFlag
	HTML    bool
	Open    openFlag
	At      eventFlag
	All     bool
	Section []string
	Of      processFlags
	Frames  framesFlag

	unrelated bool // the recordings come from a folder, and are of several jobs
}

func newReportCommand() *cobra.Command {
	var opts reportOptions
	cmd := &cobra.Command{
		Use:   "report [PATH...]",
		Short: "Print where the memory of a recording went",
		Long: `Prints, for each process and device of a recording, where its memory went at the
peak, by category; what it takes to hold that, under PyTorch's own allocator and
memprof's, by replays of the recording (reserved memory, and the least card:
bytes that must be free before the job begins); at most six changes that need
less by a replay, those that save most first; and whether it leaks or requests
failed. A recording of more than a million events is not replayed here: that is
what memprof fit does. --all prints every table: live allocations by category,
phase, module and stack, iterations, growths, leaks and more; --section prints
some. --json has everything. --plots DIR also draws plots (PNG and SVG). --html
writes one page instead, which shows memory at any instant and needs no network
and no other file. --open serves the page. PATH is a recording or a folder of
recordings, by default the newest recording here; one in progress is reported up
to now, and one that a crash left is completed first. Of more than 64 processes,
their summaries are read, and one screen compares the ranks: memprof help fleet.`,
		Annotations: exitCodes(reportExits),
		Example: `  memprof report run
  memprof report --section live,growths run
  memprof report --markdown run > summary.md
  memprof report --process rank3 run
  memprof report --html run
  memprof report --open run
  memprof report --at 48213 run
  memprof report --table paper zoo/*`,
		Args: func(cmd *cobra.Command, args []string) error {
			if opts.Open.given && len(args) > 1 {
				return exit.Usagef("--open serves the page of one recording, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !slices.Contains(opts.Section, "list") {
				newest, err := newestRecording(".")
				if err != nil {
					return err
				}
				screen.Complain(cmd.ErrOrStderr(), "the newest recording here: "+plain.Text(newest))
				args = []string{newest}
			}
			for _, path := range args {
				completeIfLeft(cmd.Context(), cmd.ErrOrStderr(), path)
			}
			if opts.Open.given {
				return opts.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
			}
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "table", words("paper"))
	mustComplete(cmd, "frames", words(frameChoices...))
	mustComplete(cmd, "section", words(sectionNames()...))
	mustComplete(cmd, "plots", completeDirectories)
	mustComplete(cmd, "process", completeProcesses)
	return cmd
}

func (o *reportOptions) addFlags(flags *pflag.FlagSet) {
	o.formatFlags.add(flags)
	flags.Var(&o.Card, "card", "plan pauses and resumes for a GPU of this size (default: the recorded one)")
	flags.StringVar(&o.Plots, "plots", "", "also draw the memory over time, as PNG and SVG, into this `directory`")
	flags.StringVarP(&o.Output, "output", "o", "", "with --html: write the page into this `directory`, or to a file that ends in .html (default: into the recording)")
	flags.BoolVar(&o.HTML, "html", false, "write the report as one page, report.html, instead of text")
	flags.Var(&o.Open, "open", "serve that page on this machine and print its address: any event of any recording can be pinned; --open=PORT takes that `port` of 127.0.0.1")
	flags.Lookup("open").NoOptDefVal = "0"
	flags.Var(&o.At, "at", "report memory as it was right after event `SEQ` of each process")
	flags.BoolVar(&o.All, "all", false, "print every section, not only the first screen")
	flags.StringSliceVar(&o.Section, "section", nil, "print these sections only, separated by commas; `list` names all")
	o.Of.add(flags)
	o.Frames.add(flags)
	flags.StringVar(&o.Table, "table", "", "print one table over all recordings instead: `paper` is the BFC paper's")
}

// validate sets the format and refuses flags that contradict each other.
func (o *reportOptions) validate() error {
	if err := cmp.Or(o.formatFlags.validate(), o.Frames.validate()); err != nil {
		return err
	}
	switch {
	case o.Open.given && (o.HTML || o.At.given || o.Table != "" || o.Format != "text" || o.All || len(o.Section) > 0 || o.Plots != "" || o.Of.given()):
		return exit.Usagef("--open serves the whole page: remove all flags but it")
	case o.HTML && o.Format != "text":
		return exit.Usagef("--html and --%s: choose one", o.Format)
	case o.At.given && (o.HTML || o.Table != ""):
		return exit.Usagef("--at prints text, markdown or JSON: remove --html or --table")
	case o.HTML && o.Table != "":
		return exit.Usagef("--table prints text, markdown or JSON: remove --html")
	case o.Card != 0 && (o.At.given || o.Table != ""):
		return exit.Usagef("--card: --at and --table print no resume plan: remove one")
	case (o.All || len(o.Section) > 0) && (o.HTML || o.At.given || o.Table != "" || o.Format == "json"):
		return exit.Usagef("--all and --section choose sections of text or markdown: remove --html, --at, --table or --json")
	case o.All && len(o.Section) > 0:
		return exit.Usagef("--all and --section: choose one")
	case o.Plots != "" && (o.HTML || o.At.given || o.Table != ""):
		return exit.Usagef("--plots: --html, --at and --table draw no plots: remove one")
	case o.Output != "" && !o.HTML:
		return exit.Usagef("-o says where the page of --html goes: add --html, or draw plots with --plots %s", plain.ShellQuote(o.Output))
	}
	return nil
}

// sectionNames are what --section takes.
func sectionNames() []string {
	names, _ := report.SectionNames()
	return append(names, "list")
}

// validateSections checks the names of sections. list says that the user asks for them.
func (o *reportOptions) validateSections() (list bool, err error) {
	names := sectionNames()
	for _, name := range o.Section {
		if !slices.Contains(names, name) {
			return false, oneOf("section", name, names...)
		}
		list = list || name == "list"
	}
	return list, nil
}

// printSections lists the sections with what they show.
func printSections(stdout io.Writer) error {
	names, about := report.SectionNames()
	for i := range names {
		if err := screen.PrintLine(stdout, "%-12s %s", names[i], about[i]); err != nil {
			return err
		}
	}
	return nil
}

// makePlotsDir creates the directory that the user named for plots.
func (o *reportOptions) makePlotsDir() error {
	if o.Plots == "" {
		return nil
	}
	if err := os.MkdirAll(o.Plots, 0o755); err != nil {
		return exit.Usagef("--plots: directory %s cannot be created: %w", o.Plots, err)
	}
	return nil
}

func (o *reportOptions) run(stdout, stderr io.Writer, paths []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// What a report keeps is small beside the batches of events that pass through it: collecting half as often
		// takes a fifth less processor time for 4 M events, and at most 40 MB more memory.
		defer debug.SetGCPercent(debug.SetGCPercent(200))
	}
	if list, err := o.validateSections(); err != nil {
		return err
	} else if list {
		return printSections(stdout)
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
	if !o.All && len(o.Section) == 0 && !o.Of.given() {
		if many, err := fleetOf(paths); err != nil {
			return err
		} else if many != nil {
			return o.fleet(stdout, stderr, many)
		}
	}
	return o.processes(stdout, stderr, paths)
}

// processes reports each process of the recordings in paths by itself.
func (o *reportOptions) processes(stdout, stderr io.Writer, paths []string) error {
	runs, err := o.analyze(paths, analysis.Options{Lives: true})
	if err != nil {
		return err
	}
	var results []*analysis.Result
	for i := range runs {
		run := &runs[i]
		warn(stderr, run.Run)
		if err := run.Replay(context.Background(), report.PolicyFlags); err != nil {
			return exit.Input(err)
		}
		results = append(results, run.Results...)
	}
	o.unrelated = len(runs) > len(paths) && len(recording.Jobs(runs)) > 1
	o.chooseCard(stderr, results)
	if err := simulateKV(results); err != nil {
		return err
	}
	if err := o.print(stdout, results); err != nil {
		return err
	}
	return o.draw(stderr, runs)
}

// draw writes the plots of every process into the directory of --plots, if there is one, and says on stderr which files those
// are. With several recordings, file names begin with the recording's name.
func (o *reportOptions) draw(stderr io.Writer, runs []recording.Recording) error {
	if o.Plots == "" {
		return nil
	}
	for _, run := range runs {
		for _, result := range run.Results {
			prefix := result.Process
			if len(runs) > 1 {
				prefix = filepath.Base(filepath.Clean(run.Path)) + "-" + prefix
			}
			files, err := report.WritePlots(o.Plots, prefix, result)
			for _, file := range files {
				screen.Complain(stderr, "wrote "+file)
			}
			if err != nil {
				return exit.Input(fmt.Errorf("plots: %w", err))
			}
		}
	}
	return nil
}

// analyze analyzes recordings and returns the chosen processes.
func (o *reportOptions) analyze(paths []string, opt analysis.Options) ([]recording.Recording, error) {
	opt.AllFrames = o.Frames.all()
	runs, err := analyzeWith(paths, opt)
	if err != nil {
		return nil, err
	}
	return o.Of.choose(runs)
}

// chooseCard sets the size of the GPU that resume plans are for, and warns if there is no plan.
func (o *reportOptions) chooseCard(stderr io.Writer, results []*analysis.Result) {
	if o.Card == 0 {
		return
	}
	plans := 0
	for _, result := range results {
		for i := range result.Devices {
			if pauses := result.Devices[i].Pauses; pauses != nil {
				pauses.Card = int64(o.Card)
				plans++
			}
		}
	}
	if plans == 0 {
		fmt.Fprintln(stderr, "memprof: warning: --card has no effect: these recordings have no tagged memory that could be paused")
	}
}

// warn prints the warnings about a recording, and the problems while it was recorded.
func warn(stderr io.Writer, run *dataset.Run) {
	for _, warning := range run.Warnings {
		screen.Remark(stderr, "warning", warning)
	}
	for _, problem := range run.Info.Problems {
		screen.Remark(stderr, "problem while recording", problem)
	}
}

func (o *reportOptions) print(stdout io.Writer, results []*analysis.Result) error {
	scope := report.Scope{All: o.All, Sections: o.Section, Unrelated: o.unrelated}
	switch o.Format {
	case "json":
		return report.JSON(stdout, results, scope)
	case "markdown":
		return report.Markdown(stdout, results, scope)
	}
	return report.Text(stdout, results, scope, screen.Options(stdout))
}

// at reports what the devices of each process looked like right after an event of it.
func (o *reportOptions) at(stdout, stderr io.Writer, paths []string) error {
	var moments []*analysis.Moment
	var missing error
	runs, err := openRuns(paths)
	if err != nil {
		return err
	}
	if runs, err = o.Of.chooseOf(runs); err != nil {
		return err
	}
	for _, run := range runs {
		warn(stderr, run)
		for _, process := range run.Processes {
			of, err := recording.At(process, o.At.seq)
			var none *analysis.NoEventError
			if errors.As(err, &none) {
				missing = exit.Usagef("--at: %w", err)
				continue
			}
			if err != nil {
				return exit.Input(err)
			}
			moments = append(moments, of...)
		}
	}
	if len(moments) == 0 && missing != nil {
		return missing
	}
	return printAs(stdout, o.Format, moments, report.MomentsSections, report.MomentsJSON)
}

// eventFlag is the number of an event, from 0, if one is given.
type eventFlag struct {
	seq   int64
	given bool
}

func (f *eventFlag) Set(text string) error {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		return fmt.Errorf("want the number of an event, 0 or more")
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

const (
	pagePoints = 16384     // intervals of time that a page divides a device's curves into
	pageEvents = 1_000_000 // of a recording, each of which the page shows exactly
)

// pageOptions are those of the pass for a page, which may have so many events exactly.
func pageOptions(events int64) analysis.Options {
	return analysis.Options{Explore: true, Lives: true, ExactEvents: events, MaxPoints: pagePoints, Top: 64}
}

// page writes the page of one or several recordings and prints its name.
func (o *reportOptions) page(stderr io.Writer, paths []string) error {
	defer debug.SetGCPercent(debug.SetGCPercent(50)) // the results of thousands of processes stay: half as much garbage beside them will do
	runs, err := o.analyze(paths, pageOptions(pageEvents))
	if err != nil {
		return err
	}
	p, err := o.pageOf(stderr, strings.Join(paths, " "), runs)
	if err != nil {
		return err
	}
	beside := filepath.Join(runs[0].Run.Dir, "report.html")
	if runs[0].Run.Detached { // from a file
		beside = runs[0].Run.Dir + ".html"
	}
	return writePage(stderr, o.Output, "report.html", beside, func(w io.Writer) error { return report.HTML(w, p) })
}

// viewPage analyzes a recording for memprof report --open. Where a model gave the chunks of an observed allocator, which it can only
// do from the first event on, the page has the exact events itself and asks no server.
func viewPage(stderr io.Writer, path string, run *dataset.Run) (page.Page, error) {
	analyzed, err := recording.Analyze(path, run, pageOptions(0))
	if err != nil {
		return page.Page{}, exit.Input(err)
	}
	modeled := slices.ContainsFunc(analyzed.Results, func(r *analysis.Result) bool {
		return slices.ContainsFunc(r.Devices, func(d analysis.DeviceResult) bool { return d.Native != nil && d.Native.Followed != nil })
	})
	if modeled {
		if analyzed, err = recording.Analyze(path, run, pageOptions(pageEvents)); err != nil {
			return page.Page{}, exit.Input(err)
		}
	}
	p, err := new(reportOptions).pageOf(stderr, path, []recording.Recording{analyzed})
	if !modeled {
		p.Server = &page.Server{}
	}
	return p, err
}

// pageOf is what a page shows of recordings.
func (o *reportOptions) pageOf(stderr io.Writer, path string, runs []recording.Recording) (page.Page, error) {
	p := page.Page{Used: map[*analysis.DeviceResult]accounting.Course{}, Path: path, Paths: map[*analysis.Result]string{}}
	for i := range runs {
		run := &runs[i]
		warn(stderr, run.Run)
		if err := run.Replay(context.Background(), report.PolicyFlags); err != nil {
			return p, exit.Input(err)
		}
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
	return p, simulateKV(p.Results)
}
