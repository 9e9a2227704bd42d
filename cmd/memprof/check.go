package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/fatih/color"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
)

type checkOptions struct {
	Gates []string
	Rank  string
	List  bool
	JSON  bool
}

func newCheckCommand() *cobra.Command {
	var opts checkOptions
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Hold recordings against limits, for CI",
		Long: `Compares metrics of recordings with limits and fails when one is violated. In a recording
the worst rank counts, over all its processes and devices, unless --rank says otherwise; of
several recordings, which are taken as repetitions of one job, the median. Recordings that
hold different ranks of one world are the nodes of one job, and count as one. A gate is
METRIC OP LIMIT, where OP is one of < <= > >= == and the limit has the metric's unit: 25%
for shares, 40GiB for sizes, a whole number for counts.`,
		Annotations: exitCodes(checkExits),
		Example: `  memprof check run --gate 'waste.external < 25%' --gate 'reserved.peak < 40GiB'
  memprof check run --rank all --gate 'oom.count == 0' --gate 'imbalance.reserved < 110%'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *checkOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.Gates, "gate", "g", nil, "demand this, `'METRIC OP LIMIT'`; may be given several times")
	flags.StringVar(&o.Rank, "rank", "worst", "hold the gates against `which` rank: worst, all (each by itself), mean, or a number")
	flags.BoolVar(&o.List, "list", false, "print the metrics there are")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *checkOptions) run(stdout io.Writer, paths []string) error {
	if o.List {
		return o.list(stdout)
	}
	if len(paths) == 0 {
		return usagef("check needs a trace (see `memprof check --help`)")
	}
	if len(o.Gates) == 0 {
		return usagef("check needs a --gate (memprof check --list names the metrics)")
	}
	var gates []gate
	for _, text := range o.Gates {
		g, err := parseGate(text)
		if err != nil {
			return err
		}
		gates = append(gates, g)
	}
	choice, err := parseRankChoice(o.Rank)
	if err != nil {
		return err
	}
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	jobs := repetitions(runs)
	var verdicts []verdict
	for i := range gates {
		judged, err := judge(&gates[i], choice, jobs)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, judged...)
	}
	if err := o.print(stdout, verdicts); err != nil {
		return err
	}
	return conclusion(verdicts)
}

func (o *checkOptions) list(stdout io.Writer) error {
	type metric struct {
		Name string `json:"name"`
		Unit string `json:"unit"`
		Help string `json:"help"`
	}
	var metrics []metric
	for _, m := range analysis.Metrics() {
		metrics = append(metrics, metric{m.Name, m.Unit.String(), m.Help})
	}
	for _, m := range analysis.RankMetrics() {
		metrics = append(metrics, metric{m.Name, m.Unit.String(), m.Help})
	}
	if o.JSON {
		return printJSON(stdout, metrics)
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, m := range metrics {
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.Name, m.Unit, m.Help)
	}
	return table.Flush()
}

// location is where in a recording a value was found.
type location struct {
	Path    string `json:"path"`
	Process string `json:"process"`
	Device  int32  `json:"device"` // -1 for a mean
	Seq     int64  `json:"seq"`    // of the event it was true at; -1 for values of the whole run
}

func (l location) String() string {
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

// verdict is what became of one gate.
type verdict struct {
	gate  *gate
	found measured
	runs  int
	holds bool
}

// judge takes the values of each repetition and the median of those. Of two repetitions, or
// the middle two of an even number, the worse one counts.
func judge(g *gate, choice rankChoice, jobs []repetition) ([]verdict, error) {
	var names []string // in order of the first repetition, where they come in order of ranks
	byName := map[string][]measured{}
	for _, job := range jobs {
		values, err := choice.measure(g, job)
		if err != nil {
			return nil, err
		}
		for _, m := range values {
			name := "" // one value a repetition, whoever has it
			if choice.kind == "all" && g.ranks == nil {
				name = rankName(m.where.Process)
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			byName[name] = append(byName[name], m)
		}
	}
	var verdicts []verdict
	for _, name := range names {
		values := byName[name]
		slices.SortStableFunc(values, func(a, b measured) int { return cmp.Compare(g.margin(b.value), g.margin(a.value)) })
		found := values[len(values)/2]
		verdicts = append(verdicts, verdict{gate: g, found: found, runs: len(values), holds: g.holds(found.value)})
	}
	return verdicts, nil
}

func (o *checkOptions) print(stdout io.Writer, verdicts []verdict) error {
	if o.JSON {
		return printVerdictsJSON(stdout, verdicts)
	}
	good, bad := color.New(color.FgGreen), color.New(color.FgRed)
	for _, c := range []*color.Color{good, bad} {
		if colourful(stdout) {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	// The verdict stands last: colours have a width for the table and none on the screen.
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "METRIC\tEXPECTED\tFOUND\tMARGIN\tWHERE\tVERDICT")
	for _, v := range verdicts {
		where := v.found.where.String()
		if v.runs > 1 {
			where += fmt.Sprintf(" (median of %d runs)", v.runs)
		}
		word := good.Sprint("ok")
		if !v.holds {
			word = bad.Sprint("VIOLATED")
		}
		g := v.gate
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%s\t%s\t%s\n", g.metric.Name, g.op, g.format(g.limit), g.format(v.found.value), g.format(g.margin(v.found.value)), where, word)
	}
	return table.Flush()
}

func printVerdictsJSON(stdout io.Writer, verdicts []verdict) error {
	type gateJSON struct {
		Gate   string   `json:"gate"`
		Metric string   `json:"metric"`
		Unit   string   `json:"unit"`
		Op     string   `json:"op"`
		Limit  any      `json:"limit"`
		Found  any      `json:"found"`
		Margin any      `json:"margin"`
		OK     bool     `json:"ok"`
		Runs   int      `json:"runs"`
		Where  location `json:"where"`
	}
	out := struct {
		OK    bool       `json:"ok"`
		Gates []gateJSON `json:"gates"`
	}{OK: true}
	for _, v := range verdicts {
		g := v.gate
		out.OK = out.OK && v.holds
		out.Gates = append(out.Gates, gateJSON{
			g.text, g.metric.Name, g.metric.Unit.String(), g.op,
			g.number(g.limit), g.number(v.found.value), g.number(g.margin(v.found.value)), v.holds, v.runs, v.found.where,
		})
	}
	return printJSON(stdout, out)
}

// conclusion is the error that ends check when a gate does not hold.
func conclusion(verdicts []verdict) error {
	gates, violated := map[*gate]bool{}, map[*gate]bool{}
	for _, v := range verdicts {
		gates[v.gate] = true
		if !v.holds {
			violated[v.gate] = true
		}
	}
	if len(violated) == 0 {
		return nil
	}
	return &exitError{code: exitViolated, err: fmt.Errorf("%d of %d gates violated", len(violated), len(gates))}
}
