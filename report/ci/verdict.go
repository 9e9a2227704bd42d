// Package ci writes the verdicts of gates for people and for what reads the results of CI jobs: text, JSON,
// Markdown, JUnit XML, GitHub's annotations, GitLab's code quality and metrics reports.
package ci

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
)

// word is the verdict in a word.
func word(v *gate.Verdict) string {
	switch {
	case v.Holds:
		return "ok"
	case v.Violated():
		return "VIOLATED"
	}
	return "warning"
}

// Headline is "1 of 3 gates violated", or that all hold.
func Headline(results *gate.Results) string {
	gates, violated := results.Count()
	if violated == 0 {
		return "all gates hold"
	}
	return fmt.Sprintf("%d of %d gates violated", violated, gates)
}

// title is the gate's text, with the rank if each rank is judged by itself.
func title(v *gate.Verdict) string {
	text := v.Written.Text
	if v.Rank != "" {
		text += " [" + v.Rank + "]"
	}
	return plain.Text(text)
}

// sentence is the verdict on one line.
func sentence(v *gate.Verdict) string {
	cells := cells(v, "")
	text := fmt.Sprintf("expected %s, found %s, margin %s, in %s", cells[1], cells[2], cells[3], cells[5])
	for _, note := range []string{distrust(v), grown(v)} {
		if note != "" {
			text += "; " + note
		}
	}
	return text
}

// grown says which parts of the memory grew most since the baseline, or "".
func grown(v *gate.Verdict) string {
	var parts []string
	for _, p := range v.Grown {
		parts = append(parts, fmt.Sprintf("%s %s +%s", p.By, plain.Shorten(p.Name, 60), plain.FormatSize(p.Bytes)))
	}
	if parts == nil {
		return ""
	}
	return "at the peak grew most: " + strings.Join(parts, ", ")
}

// cells are the cells of a verdict's row; the last one is word.
func cells(v *gate.Verdict, word string) []string {
	g := v.Gate
	where := plain.Text(v.Found.Where.String())
	if v.Runs > 1 {
		where += fmt.Sprintf(" (%s of %d runs)", v.Aggregate, v.Runs)
	}
	return []string{plain.Text(g.Metric.Name + g.Selector.String()), expected(g), format(g, v.Found.Value), format(g, g.Margin(v.Found.Value)), format(g, v.Spread), where, word}
}

// distrust says why a verdict is not trustworthy, or "".
func distrust(v *gate.Verdict) string {
	if v.Trustworthy() {
		return ""
	}
	g := v.Gate
	return plain.Text(fmt.Sprintf("%s: not trustworthy: %s differ by up to %s, more than the margin of %s; use more runs or another limit",
		g.Text, plain.Counted(int64(v.Runs), "run"), format(g, v.Spread), format(g, math.Abs(g.Margin(v.Found.Value)))))
}

// expected is the gate's condition: "< 40.8 GiB (baseline + 2%)".
func expected(g *gate.Gate) string {
	text := g.Op + " " + format(g, g.Limit)
	if g.Relative != nil {
		text += " (" + g.Relative.Text + ")"
	}
	return text
}

// format writes a value in the metric's unit.
func format(g *gate.Gate, value float64) string {
	switch g.Metric.Unit {
	case analysis.Share:
		return plain.FormatPercent(value)
	case analysis.Bytes:
		return plain.FormatSize(saturated(value))
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// number is a value for JSON: bytes and counts are integers, shares are not.
func number(g *gate.Gate, value float64) any {
	if g.Metric.Unit == analysis.Share {
		return value
	}
	return saturated(value)
}

// saturated is a value as an integer, or the nearest integer there is.
func saturated(value float64) int64 {
	switch {
	case value >= math.MaxInt64:
		return math.MaxInt64
	case value <= math.MinInt64:
		return math.MinInt64
	}
	return int64(value)
}

// worstFirst orders verdicts for readers of the first lines: violated, warnings, not trustworthy, others;
// within each, first those that are furthest beyond their limits.
func worstFirst(verdicts []gate.Verdict) []*gate.Verdict {
	class := func(v *gate.Verdict) int {
		switch {
		case v.Violated():
			return 0
		case !v.Holds:
			return 1
		case !v.Trustworthy():
			return 2
		}
		return 3
	}
	beyond := func(v *gate.Verdict) float64 { // in limits, so that units compare; Inf of a limit of 0
		margin := v.Gate.Margin(v.Found.Value)
		if margin == 0 {
			return 0
		}
		return -margin / math.Abs(v.Gate.Limit)
	}
	var order []*gate.Verdict
	for i := range verdicts {
		order = append(order, &verdicts[i])
	}
	slices.SortStableFunc(order, func(v, w *gate.Verdict) int {
		return cmp.Or(cmp.Compare(class(v), class(w)), cmp.Compare(beyond(w), beyond(v)))
	})
	return order
}
