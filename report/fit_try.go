package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/summary"
)

// FitTries are dry runs of a job with several values of an argument.
type FitTries struct {
	Argument string // "batch"
	Card     string // as the caller named it
	Bytes    int64  // of Card
	Variable string // that takes PyTorch's settings
	End      string // of the range in which the largest value was looked for; "" without one
	Tries    []FitTry
}

// FitTry is the job with one value. Each has the same rows.
type FitTry struct {
	Value     string
	Requested plain.Band // the greatest sum of requested bytes
	Rows      []fit.Row
}

// Answer says whether the job fits on the card under some allocator, and of the first such one its row; else -1.
func (t *FitTry) Answer() (answer string, row int) {
	if row = slices.IndexFunc(t.Rows, func(r fit.Row) bool { return r.Fits }); row >= 0 {
		return fits, row
	}
	if slices.ContainsFunc(t.Rows, func(r fit.Row) bool { return r.Within }) {
		return withinBand, -1
	}
	return fitsNot, -1
}

// Fits says whether the job fits for sure, under some allocator.
func (t *FitTry) Fits() bool {
	answer, _ := t.Answer()
	return answer == fits
}

// Largest is the last value with which the job fits; nil where it fits with none.
func (r *FitTries) Largest() (largest *FitTry) {
	for i := range r.Tries {
		if r.Tries[i].Fits() {
			largest = &r.Tries[i]
		}
	}
	return largest
}

// FitTrySections are the tries, in one section.
func FitTrySections(r *FitTries) []layout.Section {
	s := layout.Section{Title: "What the job needs by " + plain.Shorten(r.Argument, 24), Last: true}
	s.Columns = []layout.Column{layout.Numbers(plain.Shorten(r.Argument, 24)), layout.Numbers("requested")}
	for i := range r.Tries[0].Rows {
		name := strings.TrimSuffix(fitName(&r.Tries[0].Rows[i]), "_segments:True")
		s.Columns = append(s.Columns, layout.Numbers(plain.Shorten(name, 32)))
	}
	s.Columns = append(s.Columns, layout.Words("on "+plain.Shorten(r.Card, 24)))
	unknown := false
	for i := range r.Tries {
		t := &r.Tries[i]
		cells := layout.Row(plain.Shorten(t.Value, 24), t.Requested.String())
		for k := range t.Rows {
			cells = append(cells, layout.Cell{Text: t.Rows[k].Bands.Card.String(), Tone: fitTone(&t.Rows[k])})
		}
		answer, at := t.Answer()
		if at > 0 {
			answer += " with " + strings.TrimPrefix(s.Columns[2+at].Name, "torch ")
		}
		s.Rows = append(s.Rows, append(cells, layout.Row(answer)...))
		unknown = unknown || t.Requested.Wide()
	}
	s.After = layout.Note("by allocator: the least card, bytes that it must have free before the job begins. Each value is a dry run of its own")
	if unknown {
		s.After = append(s.After, layout.Note(summary.GuessNote)...)
	}
	text := fmt.Sprintf("%s does not fit on %s with any of these values", r.Argument, r.Card)
	if largest := r.Largest(); largest != nil {
		text = fmt.Sprintf("the largest %s that fits on %s: %s", r.Argument, r.Card, largest.Value)
		if largest.Value == r.End {
			text += ", the end of the range"
		}
		if _, at := largest.Answer(); at > 0 {
			text += ", with " + fitCommand(&largest.Rows[at].Allocator, r.Variable)
		}
	}
	s.After = append(s.After, layout.Cell{Text: plain.Text(text), Tone: layout.Strong})
	return []layout.Section{s}
}

func fitTone(row *fit.Row) layout.Tone {
	switch {
	case row.Fits:
		return layout.Strong
	case row.Within:
		return layout.Warned
	}
	return layout.Failed
}

// FitTryJSON writes the tries as one indented JSON object. It fails only if w does.
func FitTryJSON(w io.Writer, r *FitTries) error {
	out := jsonFitTries{Argument: r.Argument, Card: jsonFitAsked{r.Card, r.Bytes}}
	if largest := r.Largest(); largest != nil {
		out.Largest = &largest.Value
	}
	for i := range r.Tries {
		t := &r.Tries[i]
		answer, _ := t.Answer()
		try := jsonFitTry{Value: t.Value, Answer: answer, Requested: t.Requested}
		for k := range t.Rows {
			row := &t.Rows[k]
			try.Rows = append(try.Rows, jsonFitTryRow{
				row.Allocator.Allocator, fitSetting(&row.Allocator), row.Reserved, row.Bands.Reserved, row.Bytes, row.Bands.Card, row.Fits, row.Within, fitCommand(&row.Allocator, r.Variable),
			})
		}
		out.Tries = append(out.Tries, try)
	}
	return plain.WriteJSON(w, out)
}

type jsonFitTries struct {
	Argument string       `json:"argument"`
	Card     jsonFitAsked `json:"card"`
	Largest  *string      `json:"largest_that_fits"` // null: none does
	Tries    []jsonFitTry `json:"tries"`
}

type jsonFitTry struct {
	Value     string          `json:"value"`
	Answer    string          `json:"answer"` // "fits", "does not fit", "within the band"
	Requested plain.Band      `json:"peak_requested_band"`
	Rows      []jsonFitTryRow `json:"rows"`
}

type jsonFitTryRow struct {
	Allocator    string     `json:"allocator"`
	Setting      string     `json:"setting"`
	Reserved     int64      `json:"peak_reserved"`
	ReservedBand plain.Band `json:"peak_reserved_band"`
	Least        int64      `json:"least_card"`
	LeastBand    plain.Band `json:"least_card_band"`
	Fits         bool       `json:"fits"`
	Within       bool       `json:"within_band"`
	Command      string     `json:"command"` // "": nothing to type
}
