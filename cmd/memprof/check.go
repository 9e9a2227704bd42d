package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

type checkOptions struct {
	Gates     []string
	Without   []string
	Config    string
	Baseline  string
	Update    bool
	Rank      string
	Aggregate string

	AllowMissing bool

	Markdown    string
	JUnit       string
	CodeQuality string
	OpenMetrics string
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

		Short: "Hold recordings against limits, for CI",
		Long: `Compares metrics of recordings with limits and fails when one is violated. In a
recording the worst rank counts, over all its processes and devices, unless
--rank says otherwise; of several recordings, which are taken as repetitions of
one job, the median, or what --aggregate says. Recordings that hold different
ranks of one world are the nodes of one job, and count as one. A gate is METRIC
OP LIMIT, where OP is one of < <= > >= == and the limit has the metric's unit:
25% for shares, 40GiB for sizes, a whole number for counts. A limit can also be
relative to a value that was accepted before, 'baseline', 'baseline + 2%' or
'baseline + 100MiB': of shares, the percentage is one of points. Those values
stand in the file of --baseline, which --update-baseline writes, to be reviewed
and committed.

Behind a metric may stand a selector: reserved.peak{tag=kv} < 10GiB is about the
arenas of a tag, requested.peak{phase=prefill} about a phase, {rank=3} about a
rank, {job=train*} about the recordings whose directory or command is like that.
What a selector does not find is an error.

Two gates are judged in every check, and every run and rank must keep them:
job.exit == 0 and oom.count == 0. Where a recording does not have the exit
status of its job, since it has not ended or was recovered, check skips job.exit
and says so. --without NAME leaves such a gate out, and a gate about the same
metric replaces it. A gate on a metric without a value cannot be judged.

Without --gate, the gates are those of --config, or of the memprof.yaml that is
nearest upward from the working directory, to the root of the repository:

  without: [job.exit]        # as --without
  aggregate: median          # or max, min
  baseline: baseline.json    # relative to this file
  gates:
    - waste.external < 25%
    - gate: reserved.peak < 40GiB
      severity: warn         # said, but no violation; error is the default
      rank: all              # as --rank, for this gate; or tag, phase, job

With --run the command after -- is recorded first and its recording checked.
Gate errors are reported before the job starts. If the job fails, its exit code
is the result, after the gates.

Where several runs lie further apart than the margin that a gate has, its
verdict is marked as one that is not to be trusted.`,
		Annotations: exitCodes(checkExits),
		Example: `  memprof check run1 run2 run3
  memprof check run --gate 'waste.external < 25%' --gate 'reserved.peak < 40GiB'
  memprof check --run --gate 'reserved.peak{tag=kv} < 10GiB' -- python3 train.py`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.checkRunUsage(cmd.Flags(), args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return opts.completed(cmd)
}

func (o *checkOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.Gates, "gate", "g", nil, "demand that `'METRIC OP LIMIT'` holds; may be given several times")
	flags.StringSliceVar(&o.Without, "without", nil, "do not judge the gate job.exit == 0 or oom.count == 0, by the `name` of its metric")
	flags.StringVar(&o.Config, "config", "", "take gates from this `file` too (default: without --gate, the nearest memprof.yaml)")
	flags.StringVar(&o.Baseline, "baseline", "", "`file` of the values that limits relative to the baseline are about")
	flags.BoolVar(&o.Update, "update-baseline", false, "write the values found to that file first")
	flags.StringVar(&o.Aggregate, "aggregate", "", "of several runs take the `median`, max or min (default median)")
	flags.StringVar(&o.Rank, "rank", "worst", "hold the gates against `which` rank: worst, all (each by itself), mean, or a number")
	flags.BoolVar(&o.AllowMissing, "allow-missing-ranks", false, "judge recordings too that processes are missing from")
	flags.StringVar(&o.Markdown, "markdown", "", "write a summary as Markdown to this `file`; always added to $GITHUB_STEP_SUMMARY where that is set")
	flags.StringVar(&o.JUnit, "junit", "", "write JUnit XML to this `file`, a test case for each gate")
	flags.StringVar(&o.CodeQuality, "code-quality", "", "write GitLab's code-quality JSON to this `file`: what does not hold")
	flags.StringVar(&o.OpenMetrics, "openmetrics", "", "write the values found as OpenMetrics text to this `file`, for GitLab's metrics reports")
	flags.BoolVar(&o.Annotations, "annotations", false, "print annotations for GitHub Actions, at most 10, the worst first")
	flags.BoolVar(&o.List, "list", false, "print the metrics there are")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
	flags.BoolVar(&o.Run, "run", false, "record the command after -- first, with the flags of record, and check that")
	o.addRecordFlags(flags)
	flags.SetInterspersed(true)
}

// run judges the recordings in paths, or with --run the one that the command in paths makes. All that
// can be wrong with gates and baselines is reported before a job is run.
func (o *checkOptions) run(stdout, stderr io.Writer, paths []string) error {
	if o.List {
		return o.list(stdout)
	}
	if len(paths) == 0 {
		return exit.Usagef("check needs a trace (see `memprof check --help`)")
	}
	if o.JSON && o.Annotations {
		return exit.Usagef("--json and --annotations both want standard output: give one of them")
	}
	choice, err := parseRankChoice(o.Rank)
	if err != nil {
		return err
	}
	gates, file, err := o.gates()
	if err != nil {
		return err
	}
	court := judging{choice: choice, update: o.Update}
	if court.aggregate, err = parseAggregate(cmp.Or(o.Aggregate, file.aggregate, "median")); err != nil {
		return err
	}
	if court.baseline, err = o.baseline(gates, file); err != nil {
		return err
	}
	if err := court.foresee(gates); err != nil {
		return err
	}
	if err := o.foreseeFiles(&court); err != nil {
		return err
	}
	if o.Run {
		return o.withJob(stdout, stderr, &court, gates, paths)
	}
	return o.judgeAndTell(stdout, stderr, &court, gates, paths)
}

// foreseeFiles fails where a file that is to be written cannot be.
func (o *checkOptions) foreseeFiles(court *judging) error {
	paths := []string{o.Markdown, o.JUnit, o.CodeQuality, o.OpenMetrics}
	if o.Update {
		paths = append(paths, court.baseline.path)
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := canWrite(path); err != nil {
			return err
		}
	}
	return nil
}

// judgeAndTell holds recordings against the gates and writes what comes of it everywhere.
func (o *checkOptions) judgeAndTell(stdout, stderr io.Writer, court *judging, gates []gate, paths []string) error {
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	jobs := repetitions(runs)
	if err := o.missing(stderr, jobs); err != nil {
		return err
	}
	var verdicts []verdict
	var skips []skip
	for i := range gates {
		judged, skipped, err := court.judge(&gates[i], jobs)
		if err != nil {
			return err
		}
		verdicts, skips = append(verdicts, judged...), append(skips, skipped...)
	}
	if o.Update {
		if err := court.baseline.write(); err != nil {
			return err
		}
	}
	if err := o.print(stdout, verdicts, skips); err != nil {
		return err
	}
	if err := o.publish(stdout, verdicts, skips); err != nil {
		return err
	}
	return conclusion(verdicts)
}

// gates are those of the flags and of the file, which is empty where there is none, and behind them
// those that are judged in every check.
func (o *checkOptions) gates() ([]gate, *gateFile, error) {
	var gates []gate
	for _, text := range o.Gates {
		g, err := parseGate(text)
		if err != nil {
			return nil, nil, err
		}
		gates = append(gates, g)
	}
	file, err := o.gateFile()
	if err != nil {
		return nil, nil, err
	}
	gates = append(gates, file.gates...)
	for _, name := range o.Without {
		if err := checkWithout(name); err != nil {
			return nil, nil, err
		}
	}
	more, err := always(gates, slices.Concat(o.Without, file.without))
	if err != nil {
		return nil, nil, err
	}
	if gates = append(gates, more...); len(gates) == 0 {
		return nil, nil, exit.Usagef("check needs a --gate or a %s (memprof check --list names the metrics)", gateFileName)
	}
	return gates, file, nil
}

// baseline reads the baseline if a gate needs it. One that is to be written need not exist.
func (o *checkOptions) baseline(gates []gate, file *gateFile) (*baseline, error) {
	path := cmp.Or(o.Baseline, file.baseline)
	at := slices.IndexFunc(gates, func(g gate) bool { return g.relative != nil })
	switch {
	case at < 0 && o.Update:
		return nil, exit.Usagef("--update-baseline: no gate has a limit relative to the baseline, like 'reserved.peak < baseline + 2%%'")
	case at < 0:
		return nil, nil
	case path == "":
		return nil, gates[at].mistake("gate %q: which baseline? give its file with --baseline, or as the key baseline in %s", gates[at].text, gateFileName)
	}
	if found, err := exists(path); err != nil || !found && o.Update {
		return &baseline{path: path}, err
	}
	b, err := readBaseline(path)
	if errors.Is(err, fs.ErrNotExist) && o.Baseline == "" {
		return nil, exit.Usagef("%s: %w", file.baselineAt, err)
	}
	return b, err
}

// gateFile reads the file of gates that is to be used; without one it is empty.
func (o *checkOptions) gateFile() (*gateFile, error) {
	path := o.Config
	if path == "" && len(o.Gates) == 0 {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		if path, err = findGateFile(dir); err != nil {
			return nil, err
		}
		if err := o.trustGateFile(path); err != nil {
			return nil, err
		}
	}
	if path == "" {
		return &gateFile{}, nil
	}
	return readGateFile(path)
}

// listedMetric is what --list tells of a metric.
type listedMetric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Help string `json:"help"`
}

// listedMetrics are all metrics: those of a device, then those of all ranks together.
func listedMetrics() []listedMetric {
	var metrics []listedMetric
	for _, m := range analysis.Metrics() {
		metrics = append(metrics, listedMetric{m.Name, m.Unit.String(), m.Help})
	}
	for _, m := range jobMetrics {
		metrics = append(metrics, listedMetric{m.Name, m.Unit.String(), m.Help})
	}
	for _, m := range analysis.RankMetrics() {
		metrics = append(metrics, listedMetric{m.Name, m.Unit.String(), m.Help})
	}
	return metrics
}

func (o *checkOptions) list(stdout io.Writer) error {
	metrics := listedMetrics()
	if o.JSON {
		return screen.JSON(stdout, metrics)
	}
	return printMetrics(stdout, metrics, screen.Width(stdout))
}

// location is where in a recording a value was found.
type location struct {
	Path    string `json:"path"`
	Process string `json:"process"` // "" for a value of the whole job
	Device  int32  `json:"device"`  // -1 for a mean, and for a value of the whole job
	Seq     int64  `json:"seq"`     // of the event it was true at; -1 for values of the whole run
}

func (l location) String() string {
	if l.Process == "" {
		return l.Path
	}
	text := fmt.Sprintf("%s: %s", l.Path, l.Process)
	if l.Device >= 0 {
		text += fmt.Sprintf(", device %d", l.Device)
	}
	if l.Seq >= 0 {
		text += fmt.Sprintf(", seq %d", l.Seq)
	}
	return text
}

// measured is a metric's value and where it was found.
type measured struct {
	value float64
	where location
}

func printVerdictsJSON(stdout io.Writer, verdicts []verdict, skips []skip) error {
	type gateJSON struct {
		Gate   string   `json:"gate"`
		Metric string   `json:"metric"`
		Select string   `json:"selector"`
		Unit   string   `json:"unit"`
		Op     string   `json:"op"`
		Limit  any      `json:"limit"`
		Found  any      `json:"found"`
		Margin any      `json:"margin"`
		OK     bool     `json:"ok"`
		Runs   int      `json:"runs"`
		Where  location `json:"where"`

		Severity    string `json:"severity"`
		Aggregate   string `json:"aggregate"`
		Spread      any    `json:"spread"`
		Trustworthy bool   `json:"trustworthy"`
		Always      bool   `json:"always"` // it was not given: it is judged in every check
	}
	type skipJSON struct {
		Gate   string `json:"gate"`
		Metric string `json:"metric"`
		Path   string `json:"path"`
		Why    string `json:"why"`
	}
	out := struct {
		OK      bool       `json:"ok"`
		Gates   []gateJSON `json:"gates"`
		Skipped []skipJSON `json:"skipped"`
	}{OK: true, Gates: []gateJSON{}, Skipped: []skipJSON{}}
	for _, v := range verdicts {
		g := v.gate
		out.OK = out.OK && !v.violated()
		out.Gates = append(out.Gates, gateJSON{
			g.text, g.metric.Name, g.selector.String(), g.metric.Unit.String(), g.op,
			g.number(g.limit), g.number(v.found.value), g.number(g.margin(v.found.value)), v.holds, v.runs, v.found.where,
			g.severity, v.aggregate, g.number(v.spread), v.trustworthy(), v.written.always,
		})
	}
	for _, s := range skips {
		out.Skipped = append(out.Skipped, skipJSON{s.gate.text, s.gate.metric.Name, s.path, s.why})
	}
	return screen.JSON(stdout, out)
}

// conclusion is the error that ends check when a gate does not hold.
func conclusion(verdicts []verdict) error {
	gates, violated := map[*gate]bool{}, map[*gate]bool{}
	for _, v := range verdicts {
		gates[v.written] = true
		if v.violated() {
			violated[v.written] = true
		}
	}
	if len(violated) == 0 {
		return nil
	}
	return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d gates violated", len(violated), len(gates))}
}

// metricNames are those of all metrics that a gate can be about.
func metricNames() []string {
	var names []string
	for _, m := range listedMetrics() {
		names = append(names, m.Name)
	}
	return names
}
