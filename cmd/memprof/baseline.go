package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/spell"
	"github.com/memprof/memprof/report/units"
)

// baselineVersion is the version of the file that this memprof writes and the only one it
// reads.
const baselineVersion = 1

// baseline is the values that gates relative to it are held against: `reserved.peak <
// baseline + 2%`. It is a small JSON file to be reviewed and committed.
type baseline struct {
	path   string
	values []baselineValue
}

// Bounds of a baseline: of the file, of its values, and how large a number in it may be: up to there a
// float64 has every integer.
const (
	mostBaselineBytes  = 4 << 20
	mostBaselineValues = 10_000
	mostBaseline       = 1 << 53
)

// baselineValue is one number that was once accepted.
type baselineValue struct {
	Metric    string  `json:"metric"`
	Rank      string  `json:"rank"`      // worst, mean, a number, or of "all" the name of each
	Worst     string  `json:"worst"`     // which end is the bad one: "max" of gates with < and <=, "min" of others
	Aggregate string  `json:"aggregate"` // of several runs: median, max or min
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"` // a share of 1, bytes, or a count
	Spread    float64 `json:"spread"`
	Runs      int     `json:"runs"`
	Selector  string  `json:"selector,omitempty"` // of the gate, like {tag=kv}
}

// sameKey says whether two values are of the same question.
func (v *baselineValue) sameKey(other *baselineValue) bool {
	return v.Metric == other.Metric && v.Selector == other.Selector && v.Rank == other.Rank && v.Worst == other.Worst && v.Aggregate == other.Aggregate
}

// key names the question for people.
func (v *baselineValue) key() string {
	return fmt.Sprintf("%s%s (rank %s, worst %s, %s)", v.Metric, v.Selector, v.Rank, v.Worst, v.Aggregate)
}

// readBaseline reads and checks a whole file.
func readBaseline(path string) (*baseline, error) {
	text, err := readBounded(path, mostBaselineBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, exit.Usagef("%w; write it with memprof check --update-baseline", err)
	}
	if err != nil {
		return nil, err
	}
	b := &baseline{path: path}
	at, err := b.parse(text)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		line := 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
		return nil, exit.Usagef("%s:%d: damaged baseline: %w; restore it, or remove it and run memprof check --update-baseline", path, line, err)
	}
	return b, nil
}

// parse fills b from text. The offset is that of the mistake.
func (b *baseline) parse(text []byte) (int64, error) {
	var file struct {
		Version *int              `json:"version"`
		Values  []json.RawMessage `json:"values"`
	}
	if at, err := strictJSON(text, &file); err != nil {
		return at, err
	}
	if file.Version == nil || *file.Version != baselineVersion {
		return 0, fmt.Errorf("want \"version\": %d", baselineVersion)
	}
	if n := len(file.Values); n > mostBaselineValues {
		return 0, fmt.Errorf("%s values: want at most %s", units.FormatCount(int64(n)), units.FormatCount(mostBaselineValues))
	}
	at := int64(0)
	for _, raw := range file.Values {
		// The elements lie in the text as they are, one behind the other.
		start := at + int64(bytes.Index(text[at:], raw))
		var value baselineValue
		if inner, err := strictJSON(raw, &value); err != nil {
			return start + inner, err
		}
		if err := b.add(value); err != nil {
			return start, err
		}
		at = start + int64(len(raw))
	}
	return 0, nil
}

// strictJSON reads one JSON value without unknown keys and with nothing behind it. The offset
// is that of the mistake, as near as the decoder tells.
func strictJSON(text []byte, into any) (int64, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return max(syntax.Offset-1, 0), err
	case errors.As(err, &kind):
		return max(kind.Offset-1, 0), err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return int64(len(bytes.TrimRight(text, "\n"))), err
	case err != nil:
		return 0, err
	}
	if rest := bytes.TrimSpace(text[decoder.InputOffset():]); len(rest) > 0 {
		return int64(len(text) - len(rest)), fmt.Errorf("more text behind its end")
	}
	return 0, nil
}

// add takes a value that was read.
func (b *baseline) add(value baselineValue) error {
	metric, _, ok := lookupMetric(value.Metric)
	switch {
	case !ok:
		return fmt.Errorf("there is no metric %q%s (memprof check --list names them)", value.Metric, spell.DidYouMean(value.Metric, metricNames()...))
	case value.Unit != metric.Unit.String():
		return fmt.Errorf("%s is in %s, not %q", value.Metric, metric.Unit, value.Unit)
	case math.Abs(value.Value) > mostBaseline || value.Spread < 0 || value.Spread > mostBaseline:
		return fmt.Errorf("%s is %v with a spread of %v: want numbers of at most 2^53 (9 PB), and no negative spread", value.Metric, value.Value, value.Spread)
	case value.Worst != "max" && value.Worst != "min":
		return fmt.Errorf("worst %q: want max or min", value.Worst)
	case value.Rank == "":
		return fmt.Errorf("a value of %s without its rank", value.Metric)
	case slices.ContainsFunc(b.values, func(v baselineValue) bool { return v.sameKey(&value) }):
		return fmt.Errorf("a second value of %s", value.key())
	}
	if _, err := parseAggregate(value.Aggregate); err != nil {
		return err
	}
	b.values = append(b.values, value)
	return nil
}

// set puts a value in the place of that of the same question, or adds it in order.
func (b *baseline) set(value baselineValue) {
	b.values = slices.DeleteFunc(b.values, func(v baselineValue) bool { return v.sameKey(&value) })
	b.values = append(b.values, value)
	slices.SortFunc(b.values, func(v, w baselineValue) int { return strings.Compare(v.key(), w.key()) })
}

// limit is what a gate means with the value of its question.
func (b *baseline) limit(g *gate, question *baselineValue) (float64, error) {
	for i := range b.values {
		if b.values[i].sameKey(question) {
			return g.relative.of(b.values[i].Value), nil
		}
	}
	return 0, g.mistake("gate %q: %s has no value of %s; write it with memprof check --update-baseline", g.text, b.path, question.key())
}

// write replaces the file at once: a reader sees the old one or the new one, whole.
func (b *baseline) write() error {
	var text bytes.Buffer
	err := screen.JSON(&text, struct {
		Version int             `json:"version"`
		Values  []baselineValue `json:"values"`
	}{baselineVersion, b.values})
	if err != nil {
		return err
	}
	return replaceFile(b.path, text.Bytes())
}

// relativeLimit is a limit that depends on the baseline: its value, and so much more.
type relativeLimit struct {
	text   string  // as it was written: "baseline + 2%"
	share  float64 // of the value, 0.02 for `baseline + 2%`
	offset float64 // in the metric's unit
	whole  bool    // the limit is whole, as bytes are: what a percentage leaves is rounded
}

func (r *relativeLimit) of(value float64) float64 {
	limit := value + value*r.share + r.offset
	if r.whole {
		return math.Round(limit)
	}
	return limit
}

// parseRelative understands `baseline`, `baseline + 2%` and `baseline - 100MiB`. A percentage
// is one of the baseline's value for bytes and counts, and percentage points for shares: of a
// share that is 0, a percentage would leave no room at all. ok is false for a limit that is
// not relative.
func parseRelative(text string, unit analysis.Unit) (relative *relativeLimit, ok bool, err error) {
	rest, ok := strings.CutPrefix(text, "baseline")
	if !ok {
		return nil, false, nil
	}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return &relativeLimit{text: text}, true, nil
	}
	sign, amount := rest[0], strings.TrimSpace(rest[1:])
	if sign != '+' && sign != '-' || amount == "" {
		return nil, true, fmt.Errorf("%q: want baseline, baseline + AMOUNT or baseline - AMOUNT", text)
	}
	inUnit := unit
	if strings.HasSuffix(amount, "%") {
		inUnit = analysis.Share
	}
	value, err := parseLimit(amount, inUnit)
	if err != nil {
		return nil, true, err
	}
	if value < 0 {
		return nil, true, fmt.Errorf("%q: the amount has a sign of its own", text)
	}
	if sign == '-' {
		value = 0 - value
	}
	if inUnit == analysis.Share && unit != analysis.Share {
		return &relativeLimit{text: text, share: value, whole: unit == analysis.Bytes}, true, nil
	}
	return &relativeLimit{text: text, offset: value}, true, nil
}

// worstEnd is which of several values is the bad one for a gate.
func (g *gate) worstEnd() string {
	if strings.HasPrefix(g.op, "<") {
		return "max"
	}
	return "min"
}

// question is what a gate asks of recordings, without a value. name is that of the rank
// where each is judged by itself.
func (g *gate) question(choice rankChoice, name, aggregate string) *baselineValue {
	rank := choice.kind
	switch {
	case name != "":
		rank = name
	case choice.kind == "one":
		rank = fmt.Sprint(choice.rank)
	case g.ranks != nil:
		rank = "all"
	}
	return &baselineValue{Metric: g.metric.Name, Selector: g.selector.String(), Rank: rank, Worst: g.worstEnd(), Aggregate: aggregate, Unit: g.metric.Unit.String()}
}
