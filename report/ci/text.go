package ci

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/fatih/color"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Text prints a table of verdicts, then those that are not trustworthy, then the gates that were skipped.
func Text(w io.Writer, results *gate.Results, opt layout.Options) error {
	good, warned, bad := color.New(color.FgGreen), color.New(color.FgYellow), color.New(color.FgRed)
	for _, c := range []*color.Color{good, warned, bad} {
		if opt.Color {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
	}
	several := slices.ContainsFunc(results.Verdicts, func(v gate.Verdict) bool { return v.Runs > 1 })
	lines := [][]string{{"METRIC", "EXPECTED", "FOUND", "MARGIN", "SPREAD", "WHERE", "VERDICT"}}
	for i := range results.Verdicts {
		v := &results.Verdicts[i]
		tone := good
		switch {
		case v.Violated():
			tone = bad
		case !v.Holds:
			tone = warned
		}
		lines = append(lines, cells(v, tone.Sprint(word(v))))
	}
	if err := printTable(w, lines, several, opt.Width); err != nil {
		return err
	}
	for i := range results.Verdicts {
		v := &results.Verdicts[i]
		if note := distrust(v); note != "" {
			fmt.Fprintln(w, note)
		}
		if note := grown(v); note != "" {
			fmt.Fprintln(w, title(v)+": "+note)
		}
	}
	for i := range results.Skips {
		fmt.Fprintln(w, plain.Text(results.Skips[i].String()))
	}
	return nil
}

// printTable prints verdicts, one a line. If the terminal has too few columns, the place of each value goes to
// a line below, and if that is not enough also the spread (of several runs).
func printTable(w io.Writer, lines [][]string, several bool, columns int) error {
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
		return writeTable(w, rendered, func(i int) string {
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

// writeTable prints lines, each followed by its text below.
func writeTable(w io.Writer, lines []string, below func(i int) string) error {
	for i, line := range lines {
		if _, err := fmt.Fprintln(w, line+below(i)); err != nil {
			return err
		}
	}
	return nil
}
