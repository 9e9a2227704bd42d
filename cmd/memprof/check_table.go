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

	"github.com/memprof/memprof/report"
)

func (o *checkOptions) print(stdout io.Writer, verdicts []verdict) error {
	if o.JSON {
		return printVerdictsJSON(stdout, verdicts)
	}
	good, warned, bad := color.New(color.FgGreen), color.New(color.FgYellow), color.New(color.FgRed)
	for _, c := range []*color.Color{good, warned, bad} {
		if colourful(stdout) {
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
	if err := printTable(stdout, lines, several, width(stdout)); err != nil {
		return err
	}
	for i := range verdicts {
		if note := verdicts[i].distrust(); note != "" {
			fmt.Fprintln(stdout, note)
		}
	}
	return nil
}

// cells are those of a verdict's row, with word as the last.
func (v *verdict) cells(word string) []string {
	g := v.gate
	where := report.PlainText(v.found.where.String())
	if v.runs > 1 {
		where += fmt.Sprintf(" (%s of %d runs)", v.aggregate, v.runs)
	}
	return []string{report.PlainText(g.metric.Name + g.selector.String()), g.expected(), g.format(v.found.value), g.format(g.margin(v.found.value)), g.format(v.spread), where, word}
}

// printTable writes verdicts, one a line. On a terminal that has too few columns for all of it,
// where a value was found stands on a line of its own below. The spread is for several runs.
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
	rendered, err := render(left...)
	if err != nil {
		return err
	}
	narrow := columns > 0 && utf8.RuneCountInString(rendered[0])+len(" VIOLATED") > max(columns, 80)
	if narrow {
		if rendered, err = render(append(left, where)...); err != nil {
			return err
		}
	}
	for i, line := range rendered {
		if narrow && i > 0 {
			line += "\n    in " + lines[i][where]
		}
		if _, err := fmt.Fprintln(stdout, line); err != nil {
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
	return fmt.Sprintf("%s: not trustworthy: %s spread over %s, more than the margin of %s; take more runs or another limit",
		g.text, counted(int64(v.runs), "run"), g.format(v.spread), g.format(math.Abs(g.margin(v.found.value))))
}
