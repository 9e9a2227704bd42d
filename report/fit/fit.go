// Package fit reports on which cards a recorded job completes.
package fit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Result is the answer for a job.
type Result struct {
	*fit.Answer
	Card     string // as the caller named it; "" where none was asked about
	Bytes    int64  // of Card
	Headroom int64
	Scale    *Scale // nil, or how the numbers follow from recordings at other sizes
}

// Scale is the answer at another size of a job.
type Scale struct {
	Name       string
	Factor     float64
	Sizes      []float64 // of the recordings
	Size       float64   // of the answer
	Categories []fit.Scaled
	Rows       []fit.Scaled // of each row of the answer
	// Replayed says that the requests of all recordings come in the same order, so that they were replayed with the
	// bytes that they have at Size. Otherwise the answer is on the lines of Rows.
	Replayed bool
	Unsure   fit.Unsure // of the requests that were replayed
}

// Fits says whether the job fits under some allocator; true where no card was asked about.
func (r *Result) Fits() bool {
	if r.Card == "" {
		return true
	}
	for i := range r.Rows {
		if r.Rows[i].Fits {
			return true
		}
	}
	return false
}

// workspaces says whether a least card would be smaller by 1 % or more without workspaces: less is not worth showing.
func (r *Result) workspaces() bool {
	return slices.ContainsFunc(r.Rows, func(row fit.Row) bool { return row.Without > 0 && row.Without < row.Bytes-row.Bytes/100 })
}

// recorded is the smallest device that the job was recorded on, in bytes; 0 if one is not known.
func (r *Result) recorded() (least int64) {
	for i := range r.Processes {
		for _, d := range r.Processes[i].Devices {
			switch {
			case d.Total == 0:
				return 0
			case least == 0 || d.Total < least:
				least = d.Total
			}
		}
	}
	return least
}

// Text writes the answer for a terminal. It fails only if w does.
func Text(w io.Writer, r *Result, o layout.Options) error {
	return layout.WriteText(w, o, sections(r)...)
}

// Markdown writes what Text does as Markdown. It fails only if w does.
func Markdown(w io.Writer, r *Result) error {
	return layout.WriteMarkdown(w, sections(r)...)
}

func sections(r *Result) []layout.Section {
	all := []layout.Section{cardSection(r)}
	if r.Scale != nil {
		all = append(all, scaleSection(r.Scale))
	}
	return all
}

func cardSection(r *Result) layout.Section {
	s := layout.Section{Title: "Least card", Before: before(r)}
	s.Columns = []layout.Column{layout.Words("allocator"), layout.Words("setting"), layout.Numbers("least card"), layout.Numbers("requested + others"), layout.Numbers("reserved, no limit")}
	if len(r.Processes) > 1 {
		s.Columns = append(s.Columns, layout.Words("process"))
	}
	if r.Scale != nil {
		s.Columns = append(s.Columns[:3], layout.Numbers("at least"), layout.Numbers("at most"))
	}
	if r.workspaces() {
		s.Columns = slices.Insert(s.Columns, 3, layout.Numbers("without workspaces"))
	}
	if r.Card != "" {
		s.Columns = append(s.Columns, layout.Words("on "+plain.Shorten(r.Card, 24)), layout.Numbers("margin"))
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		cells := layout.Row(row.Allocator.Allocator, row.Setting+row.Policy, plain.FormatSize(row.Bytes))
		if r.workspaces() {
			without := ""
			if row.Without > 0 {
				without = plain.FormatSize(row.Without)
			}
			cells = append(cells, layout.Row(without)...)
		}
		switch {
		case r.Scale != nil:
			cells = append(cells, bounds(&r.Scale.Rows[i])...)
		default:
			cells = append(cells, layout.Row(plain.FormatSize(row.Requested), plain.FormatSize(row.Reserved))...)
			if len(r.Processes) > 1 {
				cells = append(cells, layout.Row(plain.Shorten(row.Process, 32))...)
			}
		}
		if r.Card != "" {
			verdict, tone := "fits", layout.Strong
			switch {
			case r.mayFit(i):
				verdict, tone = "may fit", layout.Warned
			case !row.Fits:
				verdict, tone = "does not fit", layout.Failed
			}
			cells = append(cells, layout.Cell{Text: verdict, Tone: tone}, layout.Cell{Text: margin(r.Bytes - row.Bytes)})
		}
		s.Rows = append(s.Rows, cells)
	}
	s.After = after(r)
	return s
}

// mayFit says that the recordings do not decide whether the job completes on the card under an allocator.
func (r *Result) mayFit(at int) bool {
	row := &r.Rows[at]
	if r.Scale != nil && r.Scale.Rows[at].Greatest > 0 && r.Scale.Rows[at].Least <= r.Bytes && r.Bytes < r.Scale.Rows[at].Greatest {
		return true
	}
	return !row.Fits && 0 < row.Without && row.Without <= r.Bytes
}

// bounds are what a least card at another size may also be.
func bounds(s *fit.Scaled) []layout.Cell {
	if s.Greatest == 0 {
		return layout.Row("not known", "not known")
	}
	return layout.Row(plain.FormatSize(s.Least), plain.FormatSize(s.Greatest))
}

// before says what is in the numbers.
func before(r *Result) []layout.Cell {
	notes := layout.Note("bytes that the card must have free before the job begins")
	for i := range r.Processes {
		if len(r.Processes) > 3 && i == 3 {
			notes = append(notes, layout.Note(fmt.Sprintf("… %d processes more", len(r.Processes)-3))...)
			break
		}
		p := &r.Processes[i]
		if p.Failed > 0 {
			notes = append(notes, layout.Cell{Text: fmt.Sprintf("%s: %s failed in the recording: what the job would have requested after them is not in it, so that the least card may be greater",
				plain.Shorten(p.Name, 32), plain.Counted(p.Failed, "request")), Tone: layout.Warned})
		}
		for _, number := range devices(p) {
			d := p.Devices[number]
			text := fmt.Sprintf("%s, device %d: driver overhead %s", plain.Shorten(p.Name, 32), number, plain.FormatSize(d.Driver))
			if d.Measured && d.Unexplained != 0 {
				text += fmt.Sprintf(" (unexplained %s of it)", margin(d.Unexplained))
			}
			text += ", other libraries " + plain.FormatSize(d.Libraries)
			notes = append(notes, layout.Note(text)...)
			if !d.Measured {
				notes = append(notes, layout.Cell{Text: "no reading of the device's used memory: driver overhead may be greater", Tone: layout.Warned})
			}
		}
	}
	if r.Headroom > 0 {
		notes = append(notes, layout.Note("headroom: "+plain.FormatSize(r.Headroom)+" stay free")...)
	}
	if size := plain.FormatSize(r.Bytes); r.Card != "" && r.Card != strings.ReplaceAll(size, " ", "") {
		notes = append(notes, layout.Note(plain.Shorten(r.Card, 32)+": "+size)...)
	}
	return notes
}

// margin is how much of a card is left, with its sign.
func margin(bytes int64) string {
	if bytes < 0 {
		return "-" + plain.FormatSize(-bytes)
	}
	return plain.FormatSize(bytes)
}

// after says where requests fail, and what would help.
func after(r *Result) []layout.Cell {
	var notes []layout.Cell
	for i := range r.Rows {
		if why := r.Rows[i].Why; why != nil {
			notes = append(notes, layout.Cell{Text: name(&r.Rows[i]) + ": " + failure(why), Tone: layout.Failed})
		}
	}
	if r.workspaces() {
		notes = append(notes, layout.Note("without workspaces: what fails first below the least card was freed at once, as cuDNN's workspaces are; cuDNN takes a smaller one then")...)
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; r.Scale == nil && row.Lowest < row.Bytes-row.Bytes/100 {
			notes = append(notes, layout.Note(fmt.Sprintf("%s: completes on %s too, and fails on cards between that and its least card", name(row), plain.FormatSize(row.Lowest)))...)
		}
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; r.Scale == nil && row.Highest > row.Bytes+row.Bytes/100 {
			notes = append(notes, layout.Note(fmt.Sprintf("%s: fails on single cards below %s; which ones differs between two recordings of one job", name(row), plain.FormatSize(row.Highest)))...)
		}
	}
	for _, help := range Helps(r) {
		notes = append(notes, layout.Cell{Text: help, Tone: layout.Strong})
	}
	if len(r.Rows) > 0 && r.Scale == nil {
		text := "least card: to within " + plain.FormatSize(fit.Step(r.Rows[0].Bytes)) + ", and the job completes on the larger cards that were tried"
		if r.Card == "" {
			text += ". --card SIZE replays one"
		}
		notes = append(notes, layout.Cell{Text: text, Tone: layout.Faint})
	}
	return notes
}

func name(row *fit.Row) string {
	return row.Allocator.Allocator + " " + row.Setting + row.Policy
}

// failure says which request fails.
func failure(f *fit.Failure) string {
	what := "a request of " + plain.FormatSize(f.Bytes)
	if f.Outside {
		what = plain.FormatSize(f.Bytes) + " outside of the allocator"
	}
	if f.Context != "" {
		what += " by " + plain.Shorten(f.Context, 44)
	}
	if f.Iteration >= 0 {
		what += fmt.Sprintf(" in iteration %d", f.Iteration)
	}
	return fmt.Sprintf("%s fails (event %s) with %s reserved and %s used by others", what, plain.FormatCount(f.Seq), plain.FormatSize(f.Reserved), plain.FormatSize(f.Others))
}

// Helps are what would make the job fit where it does not under some allocator: settings under which it does, or
// that no allocator can.
func Helps(r *Result) []string {
	if r.Card == "" {
		return nil
	}
	var fitting []string
	failing, least := false, int64(0)
	for i := range r.Rows {
		row := &r.Rows[i]
		if least == 0 || row.Bytes < least {
			least = row.Bytes
		}
		switch {
		case !row.Fits:
			failing = true
		case r.mayFit(i):
		case row.Allocator.Allocator == "memprof":
			fitting = append(fitting, "memprof record --no-trace --preset "+row.Policy)
		case row.Setting != "native":
			fitting = append(fitting, "PYTORCH_CUDA_ALLOC_CONF="+row.Setting)
		}
	}
	switch {
	case !failing:
		return nil
	case len(fitting) > 0:
		return []string{"it fits with " + strings.Join(fitting, ", or ")}
	}
	return []string{fmt.Sprintf("no allocator makes it fit: the job must request %s less, by a smaller batch (--scale) or by checkpointing what memprof report names first",
		plain.FormatSize(least-r.Bytes))}
}

func scaleSection(c *Scale) layout.Section {
	s := layout.Section{
		Title: "At the peak, by category",
		Before: layout.Note(fmt.Sprintf("%s %s, from recordings at %s: fixed + %s x the part that grows", plain.Shorten(c.Name, 24), number(c.Size),
			numbers(c.Sizes), plain.Shorten(c.Name, 24))),
		Columns: []layout.Column{layout.Words("category"), layout.Numbers("fixed"), layout.Numbers("per unit"), layout.Numbers("at " + number(c.Size)), layout.Numbers("error")},
	}
	for i := range c.Categories {
		line := &c.Categories[i]
		s.Rows = append(s.Rows, layout.Row(line.Name, margin(int64(line.Fixed)), margin(int64(line.PerUnit)), plain.FormatSize(line.Predicted), plain.FormatKnown(line.Error)))
	}
	how, whole := "error: standard error of the lines through the recordings", "least cards: on lines through those of the recordings, which have too few requests in common to replay them; at least and at most: the error of these lines"
	if len(c.Sizes) < 3 {
		how = "error: difference to the nearest recording alone, with activations and inputs in proportion; a third recording gives a standard error"
	}
	if c.Replayed {
		whole = "least cards: by replay of the requests with their bytes at this size. At least and at most: 0.5 %, the difference of two recordings " +
			"of one job, or what the requests of another recording need" + unsure(c)
	}
	s.After = append(layout.Note(how), layout.Note(whole)...)
	return s
}

// unsure says which requests the recordings leave open.
func unsure(c *Scale) string {
	u := &c.Unsure
	if u.Requests == 0 {
		return ""
	}
	what := plain.Counted(u.Requests, "request")
	if u.Workspaces > 0 {
		what += fmt.Sprintf(" (%s freed at once, as workspaces of cuDNN are)", plain.FormatCount(u.Workspaces))
	}
	by := ""
	if u.Origin != "" {
		by = " by " + plain.Shorten(u.Origin, 44)
	}
	return fmt.Sprintf(", or with other bytes of %s, which are neither constant nor in proportion: the least certain%s has between %s and %s. A recording at a size nearer to %s narrows this",
		what, by, plain.FormatSize(u.Least), plain.FormatSize(u.Greatest), number(c.Size))
}

func number(size float64) string { return strconv.FormatFloat(size, 'g', -1, 64) }

func numbers(sizes []float64) string {
	var texts []string
	for _, size := range sizes {
		texts = append(texts, number(size))
	}
	return strings.Join(texts, ", ")
}
