package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/summary"
)

// Fit is what a job needs under each allocator. The rows of both parts are of the same allocators.
type Fit struct {
	*fit.Answer
	Compared *fit.Comparison // of the process that reserves most
	Card     string          // as the caller named it; "" where none was asked about
	Bytes    int64           // of Card
	Variable string          // that takes PyTorch's settings
}

// Whether a job fits on a card.
const fits, fitsNot, withinBand = "fits", "does not fit", "within the band"

// Fits says whether the job fits under some allocator; true where no card was asked about.
func (r *Fit) Fits() bool {
	return r.Card == "" || slices.ContainsFunc(r.Rows, func(row fit.Row) bool { return row.Fits })
}

// workspaces says whether a least card would be smaller by 1 % or more without workspaces: less is not worth showing.
func (r *Fit) workspaces() bool {
	return slices.ContainsFunc(r.Rows, func(row fit.Row) bool { return row.Without > 0 && row.Without < row.Bytes-row.Bytes/100 })
}

// band is what the placement of segments and unknown sizes of a dry run leave open of what a row reserves.
func (r *Fit) band(row int) plain.Band {
	of, band := &r.Compared.Rows[row], r.Rows[row].Bands.Reserved
	if r.Rows[row].Process != r.Compared.Process {
		return plain.BandOf(of.Least, of.Greatest)
	}
	if !band.Wide() { // it is of the card that was recorded on
		band = plain.BandOf(of.Reserved)
	}
	return plain.BandOf(of.Least, of.Greatest, band.Least, band.Greatest)
}

// reserved is what a row is said to reserve: of a dry run that does not know all, the most.
func (r *Fit) reserved(row int) int64 {
	reserved := r.Compared.Rows[row].Reserved
	if of := &r.Rows[row]; of.Process == r.Compared.Process && of.Bands.Reserved.Wide() {
		reserved = max(reserved, of.Bands.Reserved.Greatest)
	}
	return reserved
}

// requested is the greatest sum of requested bytes of the process that was compared.
func (r *Fit) requested() plain.Band {
	for i := range r.Processes {
		if p := &r.Processes[i]; p.Name == r.Compared.Process && p.Requested.Wide() {
			return p.Requested
		}
	}
	return plain.BandOf(r.Compared.Requested)
}

// guesses says whether the job is a dry run that does not know all sizes.
func (r *Fit) guesses() bool {
	return slices.ContainsFunc(r.Processes, func(p fit.Measured) bool { return p.Requested.Wide() })
}

// recorded is the smallest device that the job was recorded on, in bytes; 0 if one is not known.
func (r *Fit) recorded() (least int64) {
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

// fitSetting is what a row is told by besides its allocator: flags of memprof's, or the text of PyTorch's setting.
func fitSetting(a *fit.Allocator) string {
	if a.Allocator == "torch" {
		return a.Setting
	}
	return strings.TrimPrefix(PolicyFlags(a.Policy), "--preset ")
}

// command is what to type for an allocator; "" for PyTorch's own without settings.
func (r *Fit) command(a *fit.Allocator) string { return fitCommand(a, r.Variable) }

func fitCommand(a *fit.Allocator, variable string) string {
	switch {
	case a.Allocator == "memprof":
		return "memprof record " + PolicyFlags(a.Policy)
	case a.Setting == "native":
		return ""
	}
	return variable + "=" + a.Setting
}

// FitSections are the answer, in one section.
func FitSections(r *Fit) []layout.Section {
	c := r.Compared
	s := layout.Section{Title: "What the job needs", Before: fitBefore(r), Last: true}
	s.Columns = []layout.Column{layout.Words("allocator"), layout.Words("setting"), layout.Numbers("reserved"), {Name: "band", Number: true, Implied: true}, layout.Numbers("least card")}
	if r.workspaces() {
		s.Columns = append(s.Columns, layout.Numbers("without workspaces"))
	}
	s.Columns = append(s.Columns, layout.Numbers("slowdown"), layout.Numbers("calls"))
	if r.Card != "" {
		s.Columns = append(s.Columns, layout.Words("on "+plain.Shorten(r.Card, 24)), layout.Numbers("margin"))
	}
	s.Columns = append(s.Columns, layout.Words(""))
	best := c.Recommend(r.Rows)
	for i := range r.Rows {
		row, replayed := &r.Rows[i], &c.Rows[i]
		peak, band, slowdown := plain.FormatSize(r.reserved(i)), "", plain.Absent
		if replayed.Refused > 0 {
			peak = plain.FormatCount(replayed.Refused) + " failed"
		}
		if b := r.band(i); b.Wide() {
			band = plain.FormatSize(b.Least) + " to " + plain.FormatSize(b.Greatest)
		}
		if share := c.Slowdown(i); share >= 0 {
			slowdown = strconv.FormatFloat(1+share, 'f', 3, 64) + "x"
		}
		cells := layout.Row(row.Allocator.Allocator, fitSetting(&row.Allocator), peak, band, row.Bands.Card.String())
		if r.workspaces() {
			without := ""
			if row.Without > 0 {
				without = plain.FormatSize(row.Without)
			}
			cells = append(cells, layout.Row(without)...)
		}
		cells = append(cells, layout.Row(slowdown, strings.TrimSuffix(strconv.FormatFloat(replayed.Calls, 'f', 1, 64), ".0"))...)
		if r.Card != "" {
			verdict, tone := fits, layout.Strong
			switch {
			case row.Within:
				verdict, tone = withinBand, layout.Warned
			case r.mayFit(i):
				verdict, tone = "may fit", layout.Warned
			case !row.Fits:
				verdict, tone = fitsNot, layout.Failed
			}
			cells = append(cells, layout.Cell{Text: verdict, Tone: tone}, layout.Cell{Text: fitMargin(r.Bytes - row.Bytes)})
		}
		mark := ""
		if replayed.Recorded {
			mark = "recorded"
		}
		if i == best {
			mark = strings.TrimPrefix(mark+", recommended", ", ")
			layout.Toned(layout.Strong, cells[:5])
		} else if replayed.Refused > 0 {
			layout.Toned(layout.Failed, cells[:5])
		}
		s.Rows = append(s.Rows, append(cells, layout.Row(mark)...))
	}
	s.After = fitAfter(r, best)
	return []layout.Section{s}
}

// mayFit says that the recordings do not decide whether the job completes on the card under an allocator.
func (r *Fit) mayFit(at int) bool {
	row := &r.Rows[at]
	return !row.Fits && 0 < row.Without && row.Without <= r.Bytes
}

// fitBefore says what is in the numbers.
func fitBefore(r *Fit) []layout.Cell {
	var notes []layout.Cell
	for i := range r.Processes {
		if len(r.Processes) > 3 && i == 3 {
			notes = append(notes, layout.Note(fmt.Sprintf("… %d processes more", len(r.Processes)-3))...)
			break
		}
		p := &r.Processes[i]
		if p.Failed > 0 {
			notes = append(notes, layout.Cell{Text: fmt.Sprintf("%s: %s failed in the recording: what the job would have requested after them is not in it, so that the least card may be greater; a recording on a larger GPU has it",
				plain.Shorten(p.Name, 32), plain.Counted(p.Failed, "request")), Tone: layout.Warned})
		}
		for _, fitNumber := range fitDevices(p) {
			d := p.Devices[fitNumber]
			if !d.Measured && d.Driver+d.Libraries == 0 {
				notes = append(notes, layout.Cell{
					Text: plain.Shorten(p.Name, 32) + ": what the driver and other libraries take is not recorded, and in no number: 0.5 to 1.1 GiB with PyTorch on H200s (--card NAME assumes it)", Tone: layout.Warned,
				})
				continue
			}
			if d.Assumed {
				notes = append(notes, layout.Note(fmt.Sprintf("%s, device %d: %s are assumed for context, code and cuBLAS, as PyTorch 2.11 takes on an H200; NCCL is not in it",
					plain.Shorten(p.Name, 32), fitNumber, plain.FormatSize(d.Driver)))...)
				continue
			}
			text := fmt.Sprintf("%s, device %d: driver overhead %s", plain.Shorten(p.Name, 32), fitNumber, plain.FormatSize(d.Driver))
			if d.Measured && d.Unexplained != 0 {
				text += fmt.Sprintf(" (unexplained %s of it)", fitMargin(d.Unexplained))
			}
			text += ", other libraries " + plain.FormatSize(d.Libraries)
			notes = append(notes, layout.Note(text)...)
			if !d.Measured {
				notes = append(notes, layout.Cell{Text: "no reading of the device's used memory: driver overhead may be greater", Tone: layout.Warned})
			}
		}
	}
	c := r.Compared
	replayed := fmt.Sprintf("%s, %s requested at once", plain.Counted(c.Requests, "request"), r.requested())
	if c.Iterations > 0 {
		replayed += ", " + plain.Counted(c.Iterations, "iteration")
	}
	if c.Duration > 0 {
		replayed += ", later ones last " + plain.FormatDuration(c.Duration.Nanoseconds())
	}
	if c.Simulated {
		replayed += ", without step times: the device was simulated"
	}
	if c.LeftOut > 0 {
		replayed += "; " + plain.Counted(c.LeftOut, "arena") + " of graph memory left out"
	}
	if len(r.Processes) > 1 {
		replayed = plain.Shorten(c.Process, 32) + ", which decides reserved, slowdown and calls: " + replayed
	}
	notes = append(notes, layout.Note(replayed)...)
	if size := plain.FormatSize(r.Bytes); r.Card != "" && r.Card != strings.ReplaceAll(size, " ", "") {
		notes = append(notes, layout.Note(plain.Shorten(r.Card, 32)+": "+size)...)
	}
	return notes
}

// fitMargin is how much of a card is left, with its sign.
func fitMargin(bytes int64) string {
	if bytes < 0 {
		return "-" + plain.FormatSize(-bytes)
	}
	return plain.FormatSize(bytes)
}

// fitAfter says where requests fail under the first allocators, and what would help.
func fitAfter(r *Fit, best int) []layout.Cell {
	var notes []layout.Cell
	for i := range r.Rows {
		if why := r.Rows[i].Why; why != nil && len(notes) < 4 {
			notes = append(notes, layout.Cell{Text: fitName(&r.Rows[i]) + ": " + fitFailure(why), Tone: layout.Failed})
		}
	}
	if r.workspaces() {
		notes = append(notes, layout.Note("without workspaces: what fails first below the least card was freed at once, as cuDNN's workspaces are; cuDNN takes a smaller one then")...)
	}
	if slices.ContainsFunc(r.Compared.Rows, func(row fit.Replayed) bool { return row.Least < row.Greatest }) {
		notes = append(notes, layout.Note(fmt.Sprintf("band: of %d placements of segments that were tried; which one the driver chooses is not known", 1+fit.Placements))...)
	}
	if r.guesses() {
		notes = append(notes, layout.Note(summary.GuessNote+"; within the band: it fits with some of these sizes")...)
	} else if slices.ContainsFunc(r.Rows, func(row fit.Row) bool { return row.Bands.Card.Wide() }) {
		notes = append(notes, layout.Note("band of the least card: how far the host is ahead of other streams' work is not known in a dry run")...)
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Lowest < row.Bytes-row.Bytes/100 {
			notes = append(notes, layout.Note(fmt.Sprintf("%s: completes on %s too, and fails on cards between that and its least card", fitName(row), plain.FormatSize(row.Lowest)))...)
		}
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Highest > row.Bytes+row.Bytes/100 {
			notes = append(notes, layout.Note(fmt.Sprintf("%s: fails on single cards below %s; which ones differs between two recordings of one job", fitName(row), plain.FormatSize(row.Highest)))...)
		}
	}
	for _, help := range FitHelps(r) {
		notes = append(notes, layout.Cell{Text: help, Tone: layout.Strong})
	}
	if best >= 0 {
		text := "recommended: " + r.command(&r.Rows[best].Allocator)
		if r.Compared.Rows[best].Recorded {
			text = "recommended: as recorded, no other row needs a card smaller by more than 1 %"
		} else if r.Rows[best].Setting == "native" {
			text = "recommended: PyTorch's own allocator, without settings"
		}
		notes = append(notes, layout.Cell{Text: text, Tone: layout.Strong})
	}
	if len(r.Rows) > 0 {
		text := "least card: bytes that it must have free before the job begins, to within 2 MiB, and the job completes on the larger cards that were tried"
		if r.Card == "" {
			text += ". --card SIZE replays one"
		}
		notes = append(notes, layout.Cell{Text: text, Tone: layout.Faint})
	}
	return notes
}

func fitName(row *fit.Row) string {
	return row.Allocator.Allocator + " " + fitSetting(&row.Allocator)
}

// fitFailure says which request fails.
func fitFailure(f *fit.Failure) string {
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

// FitHelps are what would make the job fit where it does not under some allocator: settings under which it does, or
// that no allocator can.
func FitHelps(r *Fit) []string {
	if r.Card == "" {
		return nil
	}
	var fitting []string
	failing, within, least := false, false, int64(0)
	for i := range r.Rows {
		row := &r.Rows[i]
		if least == 0 || row.Bytes < least {
			least = row.Bytes
		}
		switch {
		case row.Within:
			within = true
		case !row.Fits:
			failing = true
		case row.Setting != "native":
			fitting = append(fitting, r.command(&row.Allocator))
		}
	}
	switch {
	case !failing, within && len(fitting) == 0:
		return nil
	case len(fitting) > 0:
		return []string{"it fits with " + strings.Join(fitting, ", or ")}
	}
	return []string{fmt.Sprintf("no allocator makes it fit: the job must request %s less, by a smaller batch or by checkpointing what memprof report names first",
		plain.FormatSize(least-r.Bytes))}
}
