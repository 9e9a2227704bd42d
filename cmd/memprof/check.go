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
	List  bool
	JSON  bool
}

func newCheckCommand() *cobra.Command {
	var opts checkOptions
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Hold recordings against limits, for CI",
		Long: `Compares metrics of recordings with limits and fails when one is violated. In a recording
the worst process and device count; of several recordings, which are taken as repetitions
of one job, the median. A gate is METRIC OP LIMIT, where OP is one of < <= > >= == and the
limit has the metric's unit: 25% for shares, 40GiB for sizes, a whole number for counts.`,
		Annotations: exitCodes(checkExits),
		Example: `  memprof check run --gate 'waste.external < 25%' --gate 'reserved.peak < 40GiB'
  memprof check --list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *checkOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.Gates, "gate", "g", nil, "demand this, `'METRIC OP LIMIT'`; may be given several times")
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
	runs, err := analyzeAll(paths)
	if err != nil {
		return err
	}
	var verdicts []verdict
	for i := range gates {
		v, err := judge(&gates[i], runs)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, v)
	}
	if err := o.print(stdout, verdicts); err != nil {
		return err
	}
	return conclusion(verdicts)
}

func (o *checkOptions) list(stdout io.Writer) error {
	if o.JSON {
		type metric struct {
			Name string `json:"name"`
			Unit string `json:"unit"`
			Help string `json:"help"`
		}
		var metrics []metric
		for _, m := range analysis.Metrics() {
			metrics = append(metrics, metric{m.Name, m.Unit.String(), m.Help})
		}
		return printJSON(stdout, metrics)
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, m := range analysis.Metrics() {
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.Name, m.Unit, m.Help)
	}
	return table.Flush()
}

// location is where in a recording a value was found.
type location struct {
	Path    string `json:"path"`
	Process string `json:"process"`
	Device  int32  `json:"device"`
	Seq     int64  `json:"seq"` // of the event it was true at; -1 for values of the whole run
}

func (l location) String() string {
	text := fmt.Sprintf("%s: %s, device %d", l.Path, l.Process, l.Device)
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

// judge takes the worst value of each run and the median of those. Of two runs, or the
// middle two of an even number, the worse one counts.
func judge(g *gate, runs []analyzedRun) (verdict, error) {
	var worst []measured
	for _, run := range runs {
		m, err := worstOf(g, run)
		if err != nil {
			return verdict{}, err
		}
		worst = append(worst, m)
	}
	slices.SortStableFunc(worst, func(a, b measured) int { return cmp.Compare(g.margin(b.value), g.margin(a.value)) })
	found := worst[len(worst)/2]
	return verdict{gate: g, found: found, runs: len(runs), holds: g.holds(found.value)}, nil
}

// worstOf is the value with the least margin in a run. A metric that no process and
// device of it has is an error, never a pass.
func worstOf(g *gate, run analyzedRun) (measured, error) {
	var worst measured
	found, allocs := false, int64(0)
	for _, result := range run.results {
		for i := range result.Devices {
			device := &result.Devices[i]
			allocs += device.Allocs
			value, seq, ok := g.metric.Value(device)
			if !ok || device.Allocs == 0 || (found && g.margin(value) >= g.margin(worst.value)) {
				continue
			}
			found = true
			worst = measured{value, location{Path: run.path, Process: result.Process, Device: device.Device, Seq: seq}}
		}
	}
	switch {
	case allocs == 0:
		return worst, usagef("%s: no allocation in it: there is nothing to check", run.path)
	case !found:
		return worst, usagef("gate %q: %s has no value for %s (%s)", g.text, run.path, g.metric.Name, g.metric.Help)
	}
	return worst, nil
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
	violated := 0
	for _, v := range verdicts {
		if !v.holds {
			violated++
		}
	}
	if violated == 0 {
		return nil
	}
	return &exitError{code: exitViolated, err: fmt.Errorf("%d of %d gates violated", violated, len(verdicts))}
}
