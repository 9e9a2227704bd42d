package report

import (
	"io"
	"math"

	"github.com/memprof/memprof/analysis"
)

// DiffJSON writes what changed between two sets of runs as one JSON object, indented: the
// sets, and each part of the comparison as a list with all its lines, unchanged ones too.
// Bytes and counts are integers, rounded where they are a trend or a mean; shares are numbers
// of which 1 is all; what does not exist is null; lists are never null. It fails only where w
// does.
func DiffJSON(w io.Writer, c Compared) error {
	out := jsonDiff{Base: jsonSet{c.Base, names(c.BaseNames)}, New: jsonSet{c.New, names(c.NewNames)}}
	for _, part := range []struct {
		to      *[]jsonChange
		changes []analysis.Change
	}{
		{&out.Metrics, c.Metrics}, {&out.Modules, c.Modules}, {&out.Categories, c.Categories}, {&out.Sizes, c.Sizes},
		{&out.Phases, c.Phases}, {&out.Requested, c.Requested}, {&out.Reserved, c.Reserved},
	} {
		*part.to = newJSONChanges(part.changes)
	}
	return WriteJSON(w, out)
}

type jsonDiff struct {
	Base       jsonSet      `json:"base"`
	New        jsonSet      `json:"new"`
	Metrics    []jsonChange `json:"metrics"`
	Modules    []jsonChange `json:"modules"`
	Categories []jsonChange `json:"categories"`
	Sizes      []jsonChange `json:"sizes"` // the name is the size in bytes
	Phases     []jsonChange `json:"phases"`
	Requested  []jsonChange `json:"iterations_requested"` // the name is the place, from 0, or the first and last place of a run of neighbours
	Reserved   []jsonChange `json:"iterations_reserved"`
}

type jsonSet struct {
	Runs  int      `json:"runs"`
	Paths []string `json:"paths"`
}

type jsonChange struct {
	Name    string      `json:"name"`
	Unit    string      `json:"unit"`
	Outcome string      `json:"outcome"`
	Change  any         `json:"change"`
	Noise   any         `json:"noise"`
	Base    *jsonSpread `json:"base"`
	New     *jsonSpread `json:"new"`
}

type jsonSpread struct {
	Runs   int `json:"runs"`
	Min    any `json:"min"`
	Median any `json:"median"`
	Max    any `json:"max"`
}

func names(of []string) []string { return append([]string{}, of...) }

func newJSONChanges(changes []analysis.Change) []jsonChange {
	out := []jsonChange{}
	for i := range changes {
		c := &changes[i]
		j := jsonChange{Name: c.Name, Unit: c.Unit.String(), Outcome: c.Outcome().String(), Base: newJSONSpread(c.Unit, c.Base), New: newJSONSpread(c.Unit, c.New)}
		if delta, ok := c.Delta(); ok {
			j.Change = jsonNumber(c.Unit, delta)
		}
		if noise, ok := c.Noise(); ok {
			j.Noise = jsonNumber(c.Unit, noise)
		}
		out = append(out, j)
	}
	return out
}

func newJSONSpread(unit analysis.Unit, s analysis.Spread) *jsonSpread {
	if s.Runs == 0 {
		return nil
	}
	return &jsonSpread{s.Runs, jsonNumber(unit, s.Min), jsonNumber(unit, s.Median), jsonNumber(unit, s.Max)}
}

// jsonNumber is an integer for bytes and counts.
func jsonNumber(unit analysis.Unit, value float64) any {
	if unit == analysis.Share {
		return finite(value)
	}
	return int64(math.Round(value))
}
