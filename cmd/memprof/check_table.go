package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/fatih/color"

	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

func (o *checkOptions) print(stdout io.Writer, verdicts []verdict, skips []skip) error {
	if o.JSON {
		return printVerdictsJSON(stdout, verdicts, skips)
	}
	good, warned, bad := color.New(color.FgGreen), color.New(color.FgYellow), color.New(color.FgRed)
	for _, c := range []*color.Color{good, warned, bad} {
		if screen.Colored(stdout) {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	several := slices.ContainsFunc(verdicts, func(v verdict) bool { return v.runs > 1 })
	lines := [][]string{{"METRIC", "EXPECTED", "FOUND", "MARGIN", "SPREAD", "WHERE", "VERDICT"}}
	for i := range verdicts {
		v := &verdicts[i]
		tone := good
		switch {
		case v.violated():
			tone = bad
		case !v.holds:
			tone = warned
		}
		lines = append(lines, v.cells(tone.Sprint(v.word())))
	}
	if err := printTable(stdout, lines, several, screen.Width(stdout)); err != nil {
		return err
	}
	for i := range verdicts {
		if note := verdicts[i].distrust(); note != "" {
			fmt.Fprintln(stdout, note)
		}
	}
	for i := range skips {
		fmt.Fprintln(stdout, plain.Text(skips[i].String()))
	}
	return nil
}

// cells are those of a verdict's row, with word as the last.
func (v *verdict) cells(word string) []string {
	g := v.gate
	where := plain.Text(v.found.where.String())
	if v.runs > 1 {
		where += fmt.Sprintf(" (%s of %d runs)", v.aggregate, v.runs)
	}
	return []string{plain.Text(g.metric.Name + g.selector.String()), g.expected(), g.format(v.found.value), g.format(g.margin(v.found.value)), g.format(v.spread), where, word}
}

// printTable writes verdicts, one a line. On a terminal that has too few columns for all of it,
// where a value was found stands on a line of its own below, and if that is not enough the spread,
// too, which is for several runs.
func printTable(stdout io.Writer, lines [][]string, several bool, columns int) error {
	const spread, where = 4, 5
	render := func(left ...int) ([]string, error) {
		var out strings.Builder
		table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		for _, cells := range lines {
			// The verdict stands last: colours have a width for the table and none on the screen.
			var kept []string
			for i, cell := range cells {
				if !slices.Contains(left, i) {
					kept = append(kept, cell)
				}
			}
			fmt.Fprintln(table, strings.Join(kept, "\t"))
		}
		err := table.Flush()
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
	}
	var left []int
	if !several {
		left = append(left, spread)
	}
	var below []int // on the line below
	for {
		rendered, err := render(append(left, below...)...)
		if err != nil {
			return err
		}
		fits := columns <= 0 || utf8.RuneCountInString(rendered[0])+len(" VIOLATED") <= max(columns, 80)
		switch {
		case !fits && len(below) == 0:
			below = []int{where}
			continue
		case !fits && len(below) == 1 && several:
			below = append(below, spread)
			continue
		}
		return writeTable(stdout, rendered, func(i int) string {
			switch {
			case i == 0 || len(below) == 0:
				return ""
			case len(below) == 1:
				return "\n    in " + lines[i][where]
			}
			return "\n    spread " + lines[i][spread] + ", in " + lines[i][where]
		})
	}
}

// writeTable writes lines, each with what is to stand below it.
func writeTable(stdout io.Writer, lines []string, below func(i int) string) error {
	for i, line := range lines {
		if _, err := fmt.Fprintln(stdout, line+below(i)); err != nil {
			return err
		}
	}
	return nil
}

// distrust says why a verdict is not to be trusted; it is "" for others.
func (v *verdict) distrust() string {
	if v.trustworthy() {
		return ""
	}
	g := v.gate
	return plain.Text(fmt.Sprintf("%s: not trustworthy: %s spread over %s, more than the margin of %s; take more runs or another limit",
		g.text, units.Counted(int64(v.runs), "run"), g.format(v.spread), g.format(math.Abs(g.margin(v.found.value)))))
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
