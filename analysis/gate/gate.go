// Package gate judges recordings by limits on their metrics: "reserved.peak{tag=kv} < 10GiB".
//
// [Parse] reads one gate and [ReadFile] a file of them; [Judge] holds gates against jobs, whose
// limits may be relative to a [Baseline] of accepted values. Nothing is printed here, and every error is one of
// the input: a gate, a file, a baseline, or a recording that cannot be judged.
package gate

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
)

// Gate is a condition on a metric: "waste.external < 5%".
type Gate struct {
	Text     string // as it was written
	Metric   analysis.Metric
	Op       string    // < <= > >= or ==
	Limit    float64   // in the metric's unit: bytes, share (1 is all) or count; 0 where it is relative
	Relative *Relative // makes the limit of a value in the baseline; nil for an absolute limit
	Selector Selector
	Severity string // SeverityError or SeverityWarn
	Always   bool   // it was not given, but is judged in every check

	File   string // of gates that it stands in; "" for one of the command line
	Line   int    // in that file, from 1
	column int

	ranks  func(*compare.Ranks) compare.Imbalance // of a metric about all ranks together, which has no Value; else nil
	job    *jobMetric                             // of a metric about the recorded command, which has no Value; else nil
	choice *RankChoice                            // of a gate that says which ranks it is about; nil takes the Judge's
}

// What a gate that does not hold does to a check.
const (
	SeverityError = "error" // the check fails
	SeverityWarn  = "warn"  // the check says so
)

func checkSeverity(text string) error {
	if text != SeverityError && text != SeverityWarn {
		return fmt.Errorf("severity %q: want error or warn%s", text, plain.DidYouMean(text, SeverityError, SeverityWarn))
	}
	return nil
}

var form = regexp.MustCompile(`^\s*([A-Za-z0-9_.]+)\s*(?:\{([^}]*)\})?\s*(<=|>=|==|<|>)\s*(\S.*?)\s*$`)

// Parse reads METRIC OP LIMIT or METRIC{SELECTOR} OP LIMIT, where OP is one of < <= > >= == and the
// limit has the unit of the metric or is relative to the baseline.
func Parse(text string) (Gate, error) {
	g, err := parse(text)
	if err == nil {
		if err := g.finish(); err != nil {
			return Gate{}, fmt.Errorf("gate %q: %w", text, err)
		}
	}
	return g, err
}

// parse reads a gate without [Gate.finish]: its selector may get further keys from a file.
func parse(text string) (Gate, error) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return Gate{}, fmt.Errorf("gate %q: want METRIC OP LIMIT, like 'reserved.peak < 40GiB', with OP one of < <= > >= ==", text)
	}
	name, selector, op, limit := parts[1], parts[2], parts[3], parts[4]
	g, ok := gateOn(name)
	if !ok {
		return Gate{}, fmt.Errorf("gate %q: %w", text, unknownMetric(name))
	}
	g.Text, g.Op, g.Severity = strings.TrimSpace(text), op, SeverityError
	err := g.parseLimit(limit)
	if err == nil && strings.Contains(text, "{") {
		g.Selector, err = parseSelector(selector)
	}
	if err != nil {
		return Gate{}, fmt.Errorf("gate %q: %w", text, err)
	}
	return g, nil
}

// parseLimit reads the limit of a gate whose metric and operator are known.
func (g *Gate) parseLimit(text string) error {
	relative, ok, err := parseRelative(text, g.Metric.Unit)
	switch {
	case ok && err == nil && g.Op == "==":
		return fmt.Errorf("a limit relative to the baseline needs one of < <= > >=")
	case ok:
		g.Relative = relative
		return err
	}
	g.Limit, err = parseAmount(text, g.Metric.Unit)
	return err
}

// parseAmount reads a number in a metric's unit: 25%, 40GiB, 3.
func parseAmount(text string, unit analysis.Unit) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	switch unit {
	case analysis.Share:
		if !percent {
			return 0, fmt.Errorf("the metric is a share: %q needs a %%", text)
		}
		share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(share) || math.IsInf(share, 0) {
			return 0, fmt.Errorf("%q is not a percentage", text)
		}
		return share / 100, nil
	case analysis.Bytes:
		if percent {
			return 0, fmt.Errorf("the metric is a size, not a share: %q", text)
		}
		bytes, err := plain.ParseSize(text)
		return float64(bytes), err
	}
	count, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the metric is a count: %q is not a whole number", text)
	}
	return float64(count), nil
}

// finish checks the selector against the metric and the rest of the gate, once all of it is known.
func (g *Gate) finish() error {
	s := &g.Selector
	if err := s.suits(&g.Metric, g.ranks != nil); err != nil || s.Rank == "" {
		return err
	}
	if g.job != nil {
		return fmt.Errorf("%s is about the whole job: it has no value of a rank", g.Metric.Name)
	}
	choice, err := ParseRanks(s.Rank)
	if err != nil {
		return err
	}
	if g.ranks != nil && choice.kind == "one" {
		return fmt.Errorf("gate %q: %s compares all ranks: it has no value of one rank", g.Text, g.Metric.Name)
	}
	g.choice = &choice
	return nil
}

// holds says whether a value keeps the gate.
func (g *Gate) holds(value float64) bool {
	switch g.Op {
	case "<":
		return value < g.Limit
	case "<=":
		return value <= g.Limit
	case ">":
		return value > g.Limit
	case ">=":
		return value >= g.Limit
	}
	return value == g.Limit
}

// Margin returns how far a value is from the limit, negative on the bad side. For == it is never positive.
func (g *Gate) Margin(value float64) float64 {
	switch g.Op {
	case "<", "<=":
		return g.Limit - value
	case ">", ">=":
		return value - g.Limit
	}
	return 0 - math.Abs(value-g.Limit) // the 0 keeps -0 away
}

// WorstEnd returns which of several values is the bad one: "max", or "min" for > and >=.
func (g *Gate) WorstEnd() string {
	if strings.HasPrefix(g.Op, "<") {
		return "max"
	}
	return "min"
}

// mistake returns an error of whoever wrote the gate, with the gate's place in its file.
func (g *Gate) mistake(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if g.File == "" {
		return err
	}
	return fmt.Errorf("%s:%d:%d: %w", g.File, g.Line, g.column, err)
}
