//go:build !js

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/ci"
)

const checkExits = `0 all gates hold; 1 a gate is violated; 2 a gate or recording that cannot be
  judged; 3 memprof failed; with --run, the code of a job that failed`

type checkOptions struct {
	Gates     []string
	Without   []string
	Config    string
	Baseline  string
	Update    bool
	Rank      string
	Aggregate string
	Of        processFlags

	Markdown    string
	JUnit       string
	Annotations bool
	List        bool
	JSON        bool

	Run         bool
	Record      recordOptions // of --run
	recordFlags []string      // the names of its flags
}

func newCheckCommand() *cobra.Command {
	var opts checkOptions
	cmd := &cobra.Command{
		Use: "check [flags] PATH...\n  memprof check --run [flags] [flags of record] -- COMMAND [ARGUMENT]...",

		DisableFlagsInUseLine: true,

		Short: "Compare metrics with limits, for CI",
		Long: `Compares metrics of recordings with limits and exits with 1 if one is violated.
A gate is METRIC OP LIMIT, like 'requested.peak < baseline + 2%',
'torch.reserved.peak < 40GiB' (what PyTorch as configured reserves, replayed)
or 'least_card < 44GiB'; a selector narrows it to a tag, phase, rank
or job, like 'reserved.peak{tag=kv} < 10GiB'. ` + "`memprof help gates`" + ` describes the
language, baselines and memprof.yaml; --list defines the metrics.

In a recording the worst rank counts, and of several recordings, or a folder of
them, which are taken as repetitions of one job, the median. Without --gate, the
gates are those of --config, or of the nearest memprof.yaml from the working
directory upward. Every check also judges job.exit == 0 and oom.count == 0;
--without leaves them out.

With --run the command after -- is recorded first and its recording checked.
Gate errors are reported, with line and column, before the job starts. If the
job fails, its exit code is the result, after the gates.`,
		Annotations: exitCodes(checkExits),
		Example: `  memprof check run1 run2 run3
  memprof check run -g 'torch.reserved.peak < 40GiB' -g 'least_card < 44GiB'
  memprof check --run --gate 'reserved.peak{tag=kv} < 10GiB' -- python3 train.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.checkRunUsage(cmd.Flags(), args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return completedCheck(cmd)
}

func (o *checkOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.Gates, "gate", "g", nil, "check that `'METRIC OP LIMIT'` holds; may be given several times")
	flags.StringSliceVar(&o.Without, "without", nil, "leave out the gate job.exit == 0 or oom.count == 0, by the `name` of its metric; or, with ranks, the demand that no process is missing")
	flags.StringVar(&o.Config, "config", "", "also take gates from this `file` (default: the nearest memprof.yaml, if there is no --gate)")
	flags.StringVar(&o.Baseline, "baseline", "", "`file` of accepted values, for limits relative to the baseline")
	flags.BoolVar(&o.Update, "update-baseline", false, "accept the values found: write them to the baseline first")
	flags.StringVar(&o.Aggregate, "aggregate", "", "`value` of several recordings that a gate judges: median, max or min (default median); == judges each recording")
	flags.StringVar(&o.Rank, "rank", "worst", "which `ranks` count: worst, all (each by itself), mean, or the number of one")
	o.Of.add(flags)
	flags.StringVar(&o.Markdown, "markdown", "", "write a summary as Markdown to this `file`; where $GITHUB_STEP_SUMMARY is set, the summary is also added to that file")
	flags.StringVar(&o.JUnit, "junit", "", "write JUnit XML to this `file`, a test case for each gate")
	flags.BoolVar(&o.Annotations, "annotations", false, "print annotations for GitHub Actions, at most 10, worst first")
	flags.BoolVar(&o.List, "list", false, "print all metrics: name, unit and meaning")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
	flags.BoolVar(&o.Run, "run", false, "record the command after -- first, with the flags of record, and check that recording")
	o.addRecordFlags(flags)
	flags.SetInterspersed(true)
}

// run judges the recordings in paths, or with --run the recording of the command in paths. Mistakes in
// gates and baselines are reported before a job is started.
func (o *checkOptions) run(stdout, stderr io.Writer, paths []string) error {
	if o.List {
		return o.list(stdout)
	}
	if len(paths) == 0 {
		return exit.Usagef("check needs a recording (see `memprof check --help`)")
	}
	if o.JSON && o.Annotations {
		return exit.Usagef("--json and --annotations both print on standard output: choose one")
	}
	gates, judge, err := o.prepare()
	if err != nil {
		return err
	}
	if o.Run {
		return o.withJob(stdout, stderr, judge, gates, paths)
	}
	return o.judge(stdout, stderr, judge, gates, paths)
}

// prepare reads the gates and the baseline, and fails where a result could not be written.
func (o *checkOptions) prepare() ([]gate.Gate, *gate.Judge, error) {
	ranks, err := gate.ParseRanks(o.Rank)
	if err != nil {
		return nil, nil, exit.Input(err)
	}
	gates, file, err := o.gates()
	if err != nil {
		return nil, nil, err
	}
	judge := &gate.Judge{Ranks: ranks, Update: o.Update}
	if judge.Aggregate, err = gate.ParseAggregate(cmp.Or(o.Aggregate, file.Aggregate, "median")); err != nil {
		return nil, nil, exit.Input(err)
	}
	if judge.Baseline, err = o.baseline(gates, file); err != nil {
		return nil, nil, exit.Input(err)
	}
	if err := judge.Precheck(gates); err != nil {
		return nil, nil, exit.Input(err)
	}
	paths := []string{o.Markdown, o.JUnit}
	if o.Update {
		paths = append(paths, judge.Baseline.Path)
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := writable(path); err != nil {
			return nil, nil, err
		}
	}
	return gates, judge, nil
}

// judge holds recordings against the gates, and prints and writes the results.
func (o *checkOptions) judge(stdout, stderr io.Writer, judge *gate.Judge, gates []gate.Gate, paths []string) error {
	replayed := slices.ContainsFunc(gates, func(g gate.Gate) bool { return g.Metric.Replayed })
	recordings, err := recordingsOf(paths, replayed)
	if err != nil {
		return err
	}
	if recordings, err = o.Of.choose(recordings); err != nil {
		return err
	}
	jobs := recording.Jobs(recordings)
	if err := o.missing(stderr, jobs); err != nil {
		return err
	}
	results, err := judge.All(gates, jobs)
	if err != nil {
		return exit.Input(err)
	}
	if o.Update {
		if err := replaceWithJSON(judge.Baseline.Path, judge.Baseline.Document()); err != nil {
			return err
		}
	}
	if err := o.print(stdout, results); err != nil {
		return err
	}
	if err := o.publish(stdout, results); err != nil {
		return err
	}
	if _, violated := results.Count(); violated == 0 {
		return nil
	}
	return &exit.Error{Code: exit.Violated, Err: errors.New(ci.Headline(results))}
}

// recordingsOf analyzes recordings, and replays them if that is asked for, or reads the summaries of more than a few processes.
func recordingsOf(paths []string, replayed bool) ([]recording.Recording, error) {
	many, err := fleetOf(paths)
	if err != nil {
		return nil, err
	}
	if many == nil || replayed {
		recordings, err := analyzeAll(paths)
		for i := 0; i < len(recordings) && replayed && err == nil; i++ {
			err = exit.Input(recordings[i].Replay(context.Background(), report.PolicyFlags))
		}
		return recordings, err
	}
	recordings, err := summary.Recordings(many)
	return recordings, exit.Input(err)
}

// missing fails where processes are missing from a recording, since the worst of them would not be judged;
// with --without ranks it only warns. It also warns of ranks that are in none of the recordings.
func (o *checkOptions) missing(stderr io.Writer, jobs []recording.Job) error {
	for _, job := range jobs {
		for i := range job {
			for _, m := range job[i].Run.Missing() {
				if !slices.Contains(o.Without, missingRanks) {
					return exit.Usagef("%s: %s (--without ranks judges without it)", job[i].Path, m)
				}
				screen.Remark(stderr, "warning", fmt.Sprintf("%s: %s", job[i].Path, m))
			}
		}
		if absent := job.Absent(); len(absent) > 0 {
			screen.Remark(stderr, "warning", fmt.Sprintf("%s: %s", job[0].Path, absentRanks(absent)))
		}
	}
	return nil
}

// missingRanks is what --without calls the demand that no process is missing from a recording.
const missingRanks = "ranks"

// gates returns those of the flags, those of the file, and those that are judged in every check. The file is
// empty where there is none.
func (o *checkOptions) gates() ([]gate.Gate, *gate.File, error) {
	var gates []gate.Gate
	for _, text := range o.Gates {
		g, err := gate.Parse(text)
		if err != nil {
			return nil, nil, exit.Input(err)
		}
		gates = append(gates, g)
	}
	file, err := o.gateFile()
	if err != nil {
		return nil, nil, err
	}
	var without []string
	for _, name := range o.Without {
		if name == missingRanks {
			continue
		}
		without = append(without, name)
		if err := gate.CheckWithout(name); err != nil {
			return nil, nil, exit.Input(err)
		}
	}
	gates, err = gate.WithAlways(append(gates, file.Gates...), slices.Concat(without, file.Without))
	if err != nil {
		return nil, nil, err
	}
	if len(gates) == 0 {
		return nil, nil, exit.Usagef("check needs a --gate or a %s (memprof check --list names the metrics)", gate.FileName)
	}
	return gates, file, nil
}

// baseline reads the baseline if a gate needs it.
func (o *checkOptions) baseline(gates []gate.Gate, file *gate.File) (*gate.Baseline, error) {
	b, err := gate.OpenBaseline(cmp.Or(o.Baseline, file.Baseline), gates, o.Update)
	if errors.Is(err, fs.ErrNotExist) && o.Baseline == "" {
		return nil, fmt.Errorf("%s: %w", file.BaselineAt, err)
	}
	return b, err
}

// gateFile reads the file of gates that is to be used; without one it is empty.
func (o *checkOptions) gateFile() (*gate.File, error) {
	path := o.Config
	if path == "" && len(o.Gates) == 0 {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		if path, err = gate.FindFile(dir); err != nil {
			return nil, exit.Input(err)
		}
		if err := o.trustGateFile(path); err != nil {
			return nil, err
		}
	}
	if path == "" {
		return &gate.File{}, nil
	}
	file, err := gate.ReadFile(path)
	return file, exit.Input(err)
}

// trustGateFile refuses a file of gates that the user did not name, if another user could have put it there and
// --run is to start a job because of it. The user's own group may write to it, as in a shared repository.
// In CI the check is left out: checkouts there often have other owners and modes, and no other users.
func (o *checkOptions) trustGateFile(path string) error {
	if path == "" || !o.Run || os.Getenv("CI") != "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return exit.Input(err)
	}
	if err := hooks.Trusted(real, os.Getegid()); err != nil {
		return exit.Usagef("%s is not used: %w (--config %s uses it)", path, err, plain.ShellQuote(path))
	}
	return nil
}

// print prints the verdicts on standard output.
func (o *checkOptions) print(stdout io.Writer, results *gate.Results) error {
	if o.JSON {
		return screen.JSON(stdout, ci.Document(results))
	}
	return ci.Text(stdout, results, screen.Options(stdout))
}

// publish writes the results to where a CI shows them.
func (o *checkOptions) publish(stdout io.Writer, results *gate.Results) error {
	if o.Markdown != "" {
		if err := replaceFile(o.Markdown, ci.Markdown(results)); err != nil {
			return err
		}
	}
	if path := os.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		if err := appendFile(path, ci.Markdown(results)); err != nil {
			return err
		}
	}
	if o.JUnit != "" {
		text, err := ci.JUnit(results)
		if err != nil {
			return err
		}
		if err := replaceFile(o.JUnit, text); err != nil {
			return err
		}
	}
	if o.Annotations {
		_, err := stdout.Write(ci.Annotations(results))
		return err
	}
	return nil
}

// listedMetric is what --list prints of a metric.
type listedMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Help string `json:"help"`
}

func (o *checkOptions) list(stdout io.Writer) error {
	var metrics []listedMetric
	for _, m := range gate.Metrics() {
		metrics = append(metrics, listedMetric{m.Name, m.Unit.String(), m.Help})
	}
	if o.JSON {
		return screen.JSON(stdout, metrics)
	}
	return printMetrics(stdout, metrics, screen.Width(stdout))
}

// printMetrics writes metrics, one a line. On a terminal what a metric is goes on below itself where it
// has no room.
func printMetrics(stdout io.Writer, metrics []listedMetric, columns int) error {
	name, unit := 0, 0
	for _, m := range metrics {
		name, unit = max(name, len(m.Name)), max(unit, len(m.Unit))
	}
	room := max(columns, 80) - name - unit - 4
	for _, m := range metrics {
		help := []string{m.Help}
		if columns > 0 {
			help = broken(m.Help, room)
		}
		for i, line := range help {
			if i > 0 {
				m.Name, m.Unit = "", ""
			}
			if _, err := fmt.Fprintf(stdout, "%-*s  %-*s  %s\n", name, m.Name, unit, m.Unit, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// broken is text in lines of so many columns, except where a word is longer.
func broken(text string, columns int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if n := len(lines); n > 0 && utf8.RuneCountInString(lines[n-1])+1+utf8.RuneCountInString(word) <= columns {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// completedCheck adds what the flags of check can be.
func completedCheck(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"gate":      completeGate,
		"aggregate": words("median", "max", "min"),
		"process":   completeProcesses,
		"rank":      words("worst", "all", "mean"),
		"config":    files("yaml", "yml"),
		"baseline":  files("json"),
		"without":   words(gate.AlwaysNames()...),
	})
	return completedRecord(cmd)
}

// completeGate offers metrics, each with what it is, and behind a metric the operators.
func completeGate(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const stay = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	name := strings.TrimRight(begun, " ")
	if metric, ok := gate.LookupMetric(name); ok && name != begun {
		return operators(begun, metric.Unit), stay
	}
	var offers []cobra.Completion
	offer := func(name, help string) {
		if strings.HasPrefix(name, begun) {
			offers = append(offers, cobra.CompletionWithDesc(name, help))
		}
	}
	for _, m := range gate.Metrics() {
		offer(m.Name, m.Help)
	}
	return offers, stay
}

// operators are gates to go on with behind a metric.
func operators(begun string, unit analysis.Unit) []cobra.Completion {
	example := map[analysis.Unit]string{analysis.Bytes: "40GiB", analysis.Share: "25%", analysis.Count: "0"}[unit]
	var offers []cobra.Completion
	for _, op := range []string{"<", "<=", ">", ">=", "=="} {
		offers = append(offers, cobra.CompletionWithDesc(begun+op+" ", "a limit like "+example))
	}
	return append(offers, cobra.CompletionWithDesc(begun+"< baseline + 2%", "no more than the baseline has, and so much"))
}
