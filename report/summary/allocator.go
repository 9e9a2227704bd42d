package summary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Allocator is what it takes to hold the process's memory under one allocator, by replays of the recording.
type Allocator struct {
	Allocator string `json:"allocator"` // "torch" or "memprof"
	// Setting is the flags of `memprof record` for memprof's; for torch's "native", or the text of its variable.
	Setting   string `json:"setting"`
	Reserved  *int64 `json:"reserved"`   // the greatest
	LeastCard *int64 `json:"least_card"` // free before the job begins
	// The bands are of a dry run that does not know all sizes; else null.
	ReservedBand *plain.Band `json:"reserved_band"`
	CardBand     *plain.Band `json:"least_card_band"`
	Step         *float64    `json:"step"`     // predicted time of an iteration divided by the recorded one
	Recorded     bool        `json:"recorded"` // the job ran under it
	LeftOut      *string     `json:"left_out"` // why it was not replayed
	Refused      int64       `json:"refused"`  // requests that the recorded device would refuse
	Command      string      `json:"command"`  // runs the job so; of a row that is left out, finds its numbers

	simulated bool
	words     string // the part of Command to type before or instead of the job's own
}

func allocatorsOf(r *analysis.Result, d *analysis.DeviceResult) []Allocator {
	out := []Allocator{}
	for i := range d.Replays {
		p := &d.Replays[i]
		a := Allocator{simulated: p.Simulated, Allocator: p.Allocator, Setting: p.Setting, Recorded: p.Recorded, LeftOut: plain.NotEmpty(p.LeftOut), Refused: p.Refused}
		a.words = words(r, p.Allocator, p.Setting)
		a.Command = strings.TrimSpace(a.words + " " + jobCommand(r))
		if p.LeftOut != "" {
			a.Command = "memprof fit " + pathOf(r)
		} else {
			a.Reserved, a.LeastCard, a.ReservedBand, a.CardBand = &p.Reserved, &p.LeastCard, wide(p.ReservedBand), wide(p.CardBand)
			if p.Step > 0 {
				a.Step = &p.Step
			}
		}
		out = append(out, a)
	}
	return out
}

// words are what is typed before the job's command to run it under an allocator.
func words(r *analysis.Result, allocator, setting string) string {
	switch {
	case allocator == "memprof":
		return "memprof record " + setting + " --"
	case setting == "native":
		return ""
	}
	return Variable(r) + "=" + plain.ShellQuote(setting)
}

// Variable is what torch's settings are called: PYTORCH_ALLOC_CONF from 2.9 on, which has PYTORCH_CUDA_ALLOC_CONF as its old name.
func Variable(r *analysis.Result) string {
	if r.Job == nil {
		return "PYTORCH_CUDA_ALLOC_CONF"
	}
	for _, f := range r.Job.Frameworks {
		var major, minor int
		if _, err := fmt.Sscanf(f, "torch %d.%d", &major, &minor); err == nil && (major > 2 || major == 2 && minor >= 9) {
			return "PYTORCH_ALLOC_CONF"
		}
	}
	return "PYTORCH_CUDA_ALLOC_CONF"
}

// jobCommand is the command of the job, to be typed. What was imported does not have it.
func jobCommand(r *analysis.Result) string {
	switch {
	case r.Job == nil:
		return ""
	case r.Job.Imported != nil:
		return "COMMAND"
	}
	quoted := make([]string, len(r.Job.Command))
	for i, word := range r.Job.Command {
		quoted[i] = plain.ShellQuote(word)
	}
	return strings.Join(quoted, " ")
}

// pathOf is the path of the recording, to be typed.
func pathOf(r *analysis.Result) string {
	if r.Job == nil {
		return "RUN"
	}
	return plain.ShellQuote(r.Job.Path)
}

// title is what a table calls an allocator.
func (a *Allocator) title(all []Allocator) string {
	name := "memprof " + strings.TrimPrefix(a.Setting, "--preset ")
	if a.Allocator == "torch" {
		switch {
		case a.Setting == "expandable_segments:True":
			name = "PyTorch, expandable"
		case a.Recorded || a.Setting == "native" && !recordedTorch(all):
			name = "PyTorch, as configured"
		default:
			name = "PyTorch, no setting"
		}
	}
	return name
}

func recordedTorch(all []Allocator) bool {
	return slices.ContainsFunc(all, func(a Allocator) bool { return a.Recorded && a.Allocator == "torch" })
}

// allocatorSection says what it takes to hold the memory.
func (s *Screen) allocatorSection(width int) layout.Section {
	out := layout.Section{
		Title: "What it takes to hold that", Open: true,
		Columns: []layout.Column{layout.Words("allocator"), layout.Numbers("reserved"), layout.Numbers("least card"), layout.Numbers("step"), layout.Words("what to type")},
	}
	names, reserved, card := 0, len("reserved"), len("least card")
	for i := range s.Allocators {
		a := &s.Allocators[i]
		names = max(names, plain.Width(a.title(s.Allocators)))
		if a.CardBand != nil {
			reserved, card = max(reserved, plain.Width(size(*a.Reserved, a.ReservedBand))), max(card, plain.Width(a.CardBand.String()))
		}
	}
	room := 0
	if width > 0 {
		room = max(max(width, 80)-names-reserved-card-len("1.00x")-4*2, len("expandable_segments:True"))
	}
	for i := range s.Allocators {
		a := &s.Allocators[i]
		typed := broken(a.typed(), room)
		row := layout.Row(a.title(s.Allocators), plain.Absent, plain.Absent, plain.Absent, typed[0])
		if a.LeftOut == nil {
			row[1].Text, row[2].Text = size(*a.Reserved, a.ReservedBand), size(*a.LeastCard, a.CardBand)
		}
		if a.Step != nil {
			row[3].Text = fmt.Sprintf("%.2fx", *a.Step)
		}
		if a.Recorded {
			layout.Toned(layout.Strong, row)
		}
		out.Rows = append(out.Rows, row)
		for _, more := range typed[1:] {
			out.Rows = append(out.Rows, layout.Row("", "", "", "", more))
		}
	}
	for _, text := range s.allocatorNotes() {
		for _, line := range broken(text, width) {
			out.After = append(out.After, layout.Toned(layout.Faint, layout.Note(line))...)
		}
	}
	return out
}

// typed is what to type to run the job so, in front of its command.
func (a *Allocator) typed() string {
	switch {
	case a.LeftOut != nil:
		return a.Command
	case a.Recorded:
		return "(recorded)"
	case a.words == "":
		return "(the job alone)"
	}
	return a.words
}

// allocatorNotes say what the table leaves open.
func (s *Screen) allocatorNotes() (notes []string) {
	if why := s.Allocators[0].LeftOut; why != nil {
		notes = append(notes, "not replayed, since "+*why+": the command finds the numbers")
	}
	if s.Allocators[0].simulated && s.Allocators[0].LeftOut == nil {
		notes = append(notes, "no step times: the device was simulated")
	}
	if s.Band != nil {
		notes = append(notes, GuessNote)
	}
	var classic, compact int64
	for i := range s.Allocators {
		a := &s.Allocators[i]
		if a.Refused > 0 && s.device.OOMCount == 0 { // else they all are of a job that did not go on
			notes = append(notes, fmt.Sprintf("%s: %s of the recording fail on this GPU", a.title(s.Allocators), plain.Counted(a.Refused, "request")))
		}
		switch {
		case a.LeftOut != nil || a.Allocator != "memprof":
		case strings.HasPrefix(a.Setting, "--preset classic") && a.Recorded:
			classic = *a.Reserved
		case strings.HasPrefix(a.Setting, "--preset compact"):
			compact = *a.Reserved
		}
	}
	if compact > 0 && classic > compact+compact/50 {
		notes = append(notes, fmt.Sprintf("memprof classic doubles its arenas: %s more reserved than compact needs (--section split)", plain.FormatSize(classic-compact)))
	}
	return notes
}

// GuessNote says why numbers of a dry run are bands.
const GuessNote = "from A to B: the sizes of some workspaces of convolutions are not known: from 0 to the most that such ones were seen to have"
