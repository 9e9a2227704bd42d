package gate

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

	"github.com/memprof/memprof/analysis/plain"
)

// baselineVersion is the version of the file.
const baselineVersion = 2

// Baseline is the values that relative gates are compared with: `reserved.peak < baseline + 2%`. Its file is
// small JSON, to be reviewed and committed.
type Baseline struct {
	Path   string
	values []Value
}

// Bounds of a baseline: of the file, of its values, and how large a number in it may be: up to there a
// float64 has every integer.
const (
	mostBaselineBytes  = 4 << 20
	mostBaselineValues = 10_000
	mostBaseline       = 1 << 53
)

// Value is one accepted number. Its other fields say what was measured: two values with the same are of one
// question.
type Value struct {
	Metric    string  `json:"metric"`
	Rank      string  `json:"rank"`      // worst, mean, a number, or of "all" the name of each
	Worst     string  `json:"worst"`     // which end is the bad one: "max" of gates with < and <=, "min" of others
	Aggregate string  `json:"aggregate"` // of several runs: median, max or min
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"` // a share of 1, bytes, or a count
	Spread    float64 `json:"spread"`
	Runs      int     `json:"runs"`
	Selector  string  `json:"selector,omitempty"` // of the gate, like {tag=kv}
	Parts     []Part  `json:"parts,omitempty"`    // of a metric in bytes
}

// sameKey says whether two values answer the same question.
func (v *Value) sameKey(other *Value) bool {
	return v.Metric == other.Metric && v.Selector == other.Selector && v.Rank == other.Rank && v.Worst == other.Worst && v.Aggregate == other.Aggregate
}

// key names the question for people.
func (v *Value) key() string {
	return fmt.Sprintf("%s%s (rank %s, worst %s, %s)", v.Metric, v.Selector, v.Rank, v.Worst, v.Aggregate)
}

// OpenBaseline reads the baseline if a gate is relative to it, and else returns nil. With update it is to be
// written: then a gate has to be relative to it, and the file need not exist.
func OpenBaseline(path string, gates []Gate, update bool) (*Baseline, error) {
	at := slices.IndexFunc(gates, func(g Gate) bool { return g.Relative != nil })
	switch {
	case at < 0 && update:
		return nil, fmt.Errorf("--update-baseline: no gate has a limit relative to the baseline, like 'reserved.peak < baseline + 2%%'")
	case at < 0:
		return nil, nil
	case path == "":
		return nil, gates[at].mistake("gate %q needs a baseline: name its file with --baseline, or with the key baseline in %s", gates[at].Text, FileName)
	}
	if found, err := exists(path); err != nil || !found && update {
		return &Baseline{Path: path}, err
	}
	return ReadBaseline(path)
}

// ReadBaseline reads and checks a whole file.
func ReadBaseline(path string) (*Baseline, error) {
	text, err := readBounded(path, mostBaselineBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w; write it with memprof check --update-baseline", err)
	}
	if err != nil {
		return nil, err
	}
	b := &Baseline{Path: path}
	at, err := b.parse(text)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		line := 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
		return nil, fmt.Errorf("%s:%d: damaged baseline: %w; restore it, or remove it and run memprof check --update-baseline", path, line, err)
	}
	return b, nil
}

// parse fills b from text. On an error it returns the offset of the mistake.
func (b *Baseline) parse(text []byte) (int64, error) {
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
		return 0, fmt.Errorf("%s values: want at most %s", plain.FormatCount(int64(n)), plain.FormatCount(mostBaselineValues))
	}
	at := int64(0)
	for _, raw := range file.Values {
		// The elements lie in the text as they are, one behind the other.
		start := at + int64(bytes.Index(text[at:], raw))
		var value Value
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

// strictJSON reads one JSON value without unknown keys and without text after it. On an error it returns the
// offset of the mistake, as exactly as the decoder knows it.
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
		return int64(len(text) - len(rest)), fmt.Errorf("text after the end of the document")
	}
	return 0, nil
}

// add checks a value that was read, and keeps it.
func (b *Baseline) add(value Value) error {
	metric, ok := LookupMetric(value.Metric)
	switch {
	case !ok:
		return unknownMetric(value.Metric)
	case value.Unit != metric.Unit.String():
		return fmt.Errorf("%s is in %s, not %q", value.Metric, metric.Unit, value.Unit)
	case math.Abs(value.Value) > mostBaseline || value.Spread < 0 || value.Spread > mostBaseline:
		return fmt.Errorf("%s is %v with a spread of %v: want numbers of at most 2^53 (9 PB), and no negative spread", value.Metric, value.Value, value.Spread)
	case value.Worst != "max" && value.Worst != "min":
		return fmt.Errorf("worst %q: want max or min", value.Worst)
	case value.Rank == "":
		return fmt.Errorf("a value of %s without its rank", value.Metric)
	case slices.ContainsFunc(b.values, func(v Value) bool { return v.sameKey(&value) }):
		return fmt.Errorf("a second value of %s", value.key())
	}
	if _, err := ParseAggregate(value.Aggregate); err != nil {
		return err
	}
	b.values = append(b.values, value)
	return nil
}

// set replaces the value of the same question, or adds one, in order of keys.
func (b *Baseline) set(value Value) {
	b.values = slices.DeleteFunc(b.values, func(v Value) bool { return v.sameKey(&value) })
	b.values = append(b.values, value)
	slices.SortFunc(b.values, func(v, w Value) int { return strings.Compare(v.key(), w.key()) })
}

// value returns the baseline's value of a relative gate.
func (b *Baseline) value(g *Gate, question *Value) (*Value, error) {
	for i := range b.values {
		if b.values[i].sameKey(question) {
			return &b.values[i], nil
		}
	}
	return nil, g.mistake("gate %q: %s has no value of %s; write it with memprof check --update-baseline", g.Text, b.Path, question.key())
}

// Document returns what the file is to have, as JSON.
func (b *Baseline) Document() any {
	return struct {
		Version int     `json:"version"`
		Values  []Value `json:"values"`
	}{baselineVersion, b.values}
}

// question is the key of a gate's value in the baseline. name is the rank's where each rank is judged by
// itself, and else "".
func (g *Gate) question(choice RankChoice, name, aggregate string) *Value {
	rank := choice.kind
	switch {
	case name != "":
		rank = name
	case choice.kind == "one":
		rank = fmt.Sprint(choice.rank)
	case g.ranks != nil:
		rank = "all"
	}
	return &Value{Metric: g.Metric.Name, Selector: g.Selector.String(), Rank: rank, Worst: g.WorstEnd(), Aggregate: aggregate, Unit: g.Metric.Unit.String()}
}
