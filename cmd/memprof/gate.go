package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// gate is a condition on a metric: "waste.external < 25%".
type gate struct {
	text   string
	metric analysis.Metric
	op     string
	limit  float64 // in the metric's unit: bytes, share (1 is all) or count; 0 where it is relative
	// relative is what makes the limit of a value in the baseline; nil of an absolute one.
	relative *relativeLimit
	// ranks is of a metric about all ranks together, which has no Value; nil for others.
	ranks func(*analysis.Ranks) analysis.Imbalance
	// job is of a metric about the recorded command, which has no Value; nil for others.
	job    *jobMetric
	always bool // it was not given: it is judged in every check

	selector selector
	severity string      // severityError or severityWarn
	choice   *rankChoice // of a gate that says which ranks it is about; nil for that of --rank
	file     string      // the file of gates it stands in; "" for one of --gate
	line     int         // in that file, from 1
	column   int
}

// What becomes of check when a gate does not hold: with severityWarn it is said, and no more.
const (
	severityError = "error"
	severityWarn  = "warn"
)

func checkSeverity(text string) error {
	if text != severityError && text != severityWarn {
		return exit.Usagef("severity %q: want error or warn%s", text, spell.DidYouMean(text, severityError, severityWarn))
	}
	return nil
}

var gateForm = regexp.MustCompile(`^\s*([A-Za-z0-9_.]+)\s*(?:\{([^}]*)\})?\s*(<=|>=|==|<|>)\s*(\S.*?)\s*$`)

// parseGate understands `metric op limit`, where op is one of < <= > >= == and the limit
// has the unit of the metric or is relative to the baseline. After the metric may stand a selector.
func parseGate(text string) (gate, error) {
	g, err := gateOf(text)
	if err == nil {
		if err := g.settle(); err != nil {
			return gate{}, exit.Usagef("gate %q: %w", text, err)
		}
	}
	return g, err
}

// gateOf parses a gate whose selector is not settled: more of it may come.
func gateOf(text string) (gate, error) {
	form := gateForm.FindStringSubmatch(text)
	if form == nil {
		return gate{}, exit.Usagef("gate %q: want METRIC OP LIMIT, like 'reserved.peak < 40GiB', with OP one of < <= > >= ==", text)
	}
	metric, ranks, ok := lookupMetric(form[1])
	if !ok {
		return gate{}, exit.Usagef("gate %q: there is no metric %q%s (memprof check --list names them)", text, form[1], spell.DidYouMean(form[1], metricNames()...))
	}
	g := gate{text: strings.TrimSpace(text), metric: metric, op: form[3], ranks: ranks, severity: severityError}
	g.job, _ = lookupJobMetric(form[1])
	relative, ok, err := parseRelative(form[4], metric.Unit)
	switch {
	case ok && err == nil && g.op == "==":
		err = fmt.Errorf("a limit relative to the baseline needs one of < <= > >=")
	case ok:
		g.relative = relative
	default:
		g.limit, err = parseLimit(form[4], metric.Unit)
	}
	if err == nil && strings.Contains(text, "{") {
		g.selector, err = parseSelector(form[2])
	}
	if err != nil {
		return gate{}, exit.Usagef("gate %q: %w", text, err)
	}
	return g, nil
}

// lookupMetric finds a metric of a device, of all ranks together, or of the recorded command.
func lookupMetric(name string) (analysis.Metric, func(*analysis.Ranks) analysis.Imbalance, bool) {
	for _, m := range analysis.RankMetrics() {
		if m.Name == name {
			return analysis.Metric{Name: m.Name, Unit: m.Unit, Help: m.Help}, m.Of, true
		}
	}
	if m, ok := lookupJobMetric(name); ok {
		return m.Metric, nil, true
	}
	metric, ok := analysis.LookupMetric(name)
	return metric, nil, ok
}

func parseLimit(text string, unit analysis.Unit) (float64, error) {
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
		if number := strings.TrimSpace(text); number != "0" && strings.Trim(number, "0123456789.") == "" {
			return 0, fmt.Errorf("the metric is a size: %q needs a unit, like %sGiB or %sB", text, number, number)
		}
		bytes, err := units.ParseSize(text)
		return float64(bytes), err
	}
	count, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the metric is a count: %q is not a whole number", text)
	}
	return float64(count), nil
}

// holds says whether a value keeps the gate.
func (g *gate) holds(value float64) bool {
	switch g.op {
	case "<":
		return value < g.limit
	case "<=":
		return value <= g.limit
	case ">":
		return value > g.limit
	case ">=":
		return value >= g.limit
	}
	return value == g.limit
}

// margin is the distance to the limit, negative on the bad side; of == it is never positive.
func (g *gate) margin(value float64) float64 {
	switch g.op {
	case "<", "<=":
		return g.limit - value
	case ">", ">=":
		return value - g.limit
	}
	return 0 - math.Abs(value-g.limit) // the 0 keeps -0 away
}

// expected is what the gate demands: "< 40.8 GiB (baseline + 2%)".
func (g *gate) expected() string {
	text := g.op + " " + g.format(g.limit)
	if g.relative != nil {
		text += " (" + g.relative.text + ")"
	}
	return text
}

// format writes a value in the metric's unit.
func (g *gate) format(value float64) string {
	switch g.metric.Unit {
	case analysis.Share:
		return units.FormatPercent(value)
	case analysis.Bytes:
		return units.FormatSize(saturated(value))
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// number is a value for JSON: bytes and counts are integers.
func (g *gate) number(value float64) any {
	if g.metric.Unit == analysis.Share {
		return value
	}
	return saturated(value)
}

// saturated is a value as an integer, the nearest one if it is beyond all.
func saturated(value float64) int64 {
	switch {
	case value >= math.MaxInt64:
		return math.MaxInt64
	case value <= math.MinInt64:
		return math.MinInt64
	}
	return int64(value)
}

// mistake is an error of whoever wrote the gate, with its place in a file.
func (g *gate) mistake(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if g.file != "" {
		return exit.Usagef("%s:%d:%d: %w", g.file, g.line, g.column, err)
	}
	return exit.Usagef("%w", err)
}
