package summary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/dataset"
)

// Provenance is where a result comes from: the lines that the report on a device begins with. allocator is the
// line about the device's allocator, or "".
func Provenance(r *analysis.Result, d *analysis.DeviceResult, allocator string) []layout.Cell {
	var lines []layout.Cell
	events := fmt.Sprintf("%s, %s, %s", plain.FormatDuration(r.Duration), plain.Counted(d.IterationCount(), "iteration"), plain.Counted(r.Events, "event"))
	if j := r.Job; j != nil {
		fields := []string{command(j.Command, commandColumns)}
		if !j.Start.IsZero() {
			fields = append(fields, j.Start.UTC().Format("2006-01-02 15:04 UTC"))
		}
		fields = append(fields, exitText(j), events)
		lines = layout.Note(strings.Join(fields, " | "))
		lines = append(lines, layout.Note(gpuText(d, j))...)
	} else {
		lines = layout.Note(events)
	}
	if allocator != "" {
		lines = append(lines, layout.Note(allocator)...)
	}
	if r.Job != nil && r.Job.Imported != nil {
		lines = append(lines, importNotes(r.Job.Imported)...)
	}
	if r.Job != nil {
		lines = append(lines, partNotes(r.Job)...)
	}
	return lines
}

// partNotes say that a recording is a part of its job: a snapshot, or what a ring kept, and from where on it is exact.
func partNotes(j *analysis.Job) []layout.Cell {
	var notes []layout.Cell
	if s := j.Snapshot; s != nil {
		notes = append(notes, layout.Note(fmt.Sprintf("Snapshot of a running job at %s (%s): later events are not in it", s.Time.UTC().Format("2006-01-02 15:04:05 UTC"), plain.Shorten(s.Why, 60)))...)
	}
	if j.Dropped > 0 {
		notes = append(notes, layout.Note(fmt.Sprintf("Ring: %s before event %s were dropped. Exact from there on; earlier peaks and iterations are unknown,",
			plain.Counted(j.Dropped, "event"), plain.FormatCount(j.Dropped)))...)
		notes = append(notes, layout.Note("and memory that was free then counts as reserve until it is handed out again")...)
	}
	return notes
}

// importNotes say from where on an imported recording is exact, and what was there before.
func importNotes(i *dataset.Imported) []layout.Cell {
	text := "Imported from " + plain.Shorten(i.Format, 24) + ": exact from its first event on"
	if i.Opening > 0 {
		text = "Imported from " + plain.Shorten(i.Format, 24) + ": exact from event " + plain.FormatCount(i.Opening) + " on"
	}
	if i.Exact > i.Opening {
		text = fmt.Sprintf("Imported from %s: exact from event %s on, after %s; before, a block may be up to 1 MiB larger",
			plain.Shorten(i.Format, 24), plain.FormatCount(i.Exact), plain.FormatDuration(i.ExactNS))
	}
	notes := layout.Note(text)
	if i.Reserved > 0 {
		notes = append(notes, layout.Note(fmt.Sprintf("Before event %s: %s reserved, with %s; earlier peaks are unknown",
			plain.FormatCount(i.Opening), plain.FormatSize(i.Reserved), plain.Counted(i.Blocks, "block")))...)
	}
	if i.Odd > 0 {
		notes = append(notes, layout.Note(plain.Counted(i.Odd, "event")+" of the file contradict others and were left out")...)
	}
	return notes
}

// Footer is where a result comes from in one line, for the bottom of a plot; "" where nothing says.
func Footer(r *analysis.Result, d *analysis.DeviceResult, allocator string) string {
	j := r.Job
	if j == nil {
		return ""
	}
	fields := []string{command(j.Command, footerColumns)}
	if !j.Start.IsZero() {
		fields = append(fields, j.Start.UTC().Format("2006-01-02 15:04 UTC"))
	}
	fields = append(fields, gpuText(d, j))
	if allocator != "" {
		allocator, _, _ = strings.Cut(allocator, " (") // its policy is in the report
		allocator = strings.Replace(allocator, ", not PyTorch's;", ",", 1)
		fields = append(fields, strings.ToLower(allocator[:1])+allocator[1:])
	}
	return strings.Join(fields, " | ")
}

// The most columns of a command in a heading, and at the bottom of a plot.
const (
	commandColumns = 100
	footerColumns  = 60
)

// command is a command line in at most so many columns.
func command(words []string, columns int) string {
	if len(words) == 0 {
		return "(command not known)"
	}
	return plain.Shorten(strings.Join(words, " "), columns)
}

// Folded breaks lines that are wider than a terminal of so many columns, between their fields where that is enough; 0
// means any number.
func Folded(lines []layout.Cell, width int) []layout.Cell {
	const between = " | "
	var out []layout.Cell
	for _, l := range lines {
		if width <= 0 || plain.Width(l.Text) <= width {
			out = append(out, l)
			continue
		}
		line := ""
		for _, field := range strings.Split(l.Text, between) {
			if line != "" && plain.Width(line+between+field) <= width {
				line += between + field
				continue
			}
			if line != "" {
				out = append(out, layout.Cell{Text: line, Tone: l.Tone})
			}
			parts := broken(field, width)
			for _, part := range parts[:len(parts)-1] {
				out = append(out, layout.Cell{Text: part, Tone: l.Tone})
			}
			line = parts[len(parts)-1]
		}
		out = append(out, layout.Cell{Text: line, Tone: l.Tone})
	}
	return out
}

func exitText(j *analysis.Job) string {
	switch exit := j.Exit; {
	case exit != nil && *exit > 128:
		return fmt.Sprintf("ended by signal %d", *exit-128)
	case exit != nil:
		return "exit " + strconv.Itoa(*exit)
	case j.Running:
		return "running"
	}
	return "exit not known"
}

// gpuText names the GPU, the driver, the frameworks, and the memprof that recorded.
func gpuText(d *analysis.DeviceResult, j *analysis.Job) string {
	text := fmt.Sprintf("GPU %d", d.Device)
	if d.GPU != "" {
		text += " " + plain.Shorten(d.GPU, 40)
	}
	if d.Total > 0 {
		text += " " + plain.FormatSize(d.Total)
	}
	if d.Driver != "" {
		text += ", driver " + plain.Shorten(d.Driver, 20)
	}
	for _, f := range j.Frameworks {
		text += ", " + plain.Shorten(f, 30)
	}
	if j.Host != "" {
		text += " | host " + plain.Shorten(j.Host, 24)
	}
	if j.Version != "" {
		text += " | memprof " + plain.Shorten(j.Version, 24)
	}
	return text
}

// Peak says what was used at the peak and what of it was reserved.
func Peak(d *analysis.DeviceResult) string {
	at := fmt.Sprintf("%s, event %s", plain.FormatDuration(d.Peak.Time), plain.FormatCount(d.Peak.Seq))
	if number, ok := d.IterationNumber(d.Peak.Iteration); ok {
		at += fmt.Sprintf(", iteration %s", plain.FormatCount(number))
	}
	reserved := fmt.Sprintf("reserved %s (requested %s)", plain.FormatSize(d.Peak.R), plain.FormatSize(d.Peak.T))
	b := balance(d)
	if b == nil || b.UsedUnknown != "" {
		return fmt.Sprintf("Peak at %s: %s", at, reserved)
	}
	text := fmt.Sprintf("Peak %s used, at %s: %s", plain.FormatSize(b.Read.Used), at, reserved)
	if b.Unknown == 0 {
		text += ", driver overhead " + plain.FormatSize(b.Overhead())
	}
	text += ", other libraries " + plain.FormatSize(b.Other())
	if b.UnexplainedUnknown == "" {
		text += fmt.Sprintf(", unexplained %s (%s)", plain.FormatSize(b.Unexplained), plain.FormatPercent(plain.Ratio(b.Unexplained, b.Read.Used)))
	}
	return text
}

// Section is the table of findings, and what was looked for and not found. Text is broken into lines so that
// the table fits a terminal of so many columns; 0 means any number.
func Section(r *analysis.Result, d *analysis.DeviceResult, found []Finding, width int) layout.Section {
	whole, name := Whole(d)
	s := layout.Section{
		Title:   "Findings",
		Before:  layout.Row(broken(Peak(d), width)...),
		Columns: []layout.Column{layout.Numbers("#"), layout.Numbers("bytes"), layout.Numbers("of " + name), layout.Words("finding"), layout.Words("action")},
	}
	textWidth, actionWidth := columnWidths(width, name)
	cures := map[string]int{} // the first finding with an action
	for i, f := range found {
		tone := map[Severity]layout.Tone{Grows: layout.Warned, Lost: layout.Failed}[f.Severity]
		share := plain.FormatPercent(plain.Ratio(f.Bytes, whole))
		if f.Severity != Cost {
			share = plain.Absent // not part of what was used at the peak
		}
		first, repeated := cures[f.Action]
		if !repeated {
			cures[f.Action] = i + 1
		} else if len(f.Action) > len("as for 10") {
			f.Action = fmt.Sprintf("as for %d", first)
		}
		text, action := broken(f.Text, textWidth), broken(f.Action, actionWidth)
		for k := range max(len(text), len(action)) {
			row := make([]layout.Cell, 5)
			if k == 0 {
				row = layout.Row(strconv.Itoa(i+1), plain.FormatSize(f.Bytes), share, "", "")
			}
			if k < len(text) {
				row[3] = layout.Cell{Text: text[k], Tone: tone}
			}
			if k < len(action) {
				row[4] = layout.Cell{Text: action[k]}
			}
			s.Rows = append(s.Rows, row)
		}
	}
	if len(found) == 0 {
		s.Columns = nil
		s.Before = append(s.Before, layout.Note("none")...)
	}
	s.After = append(replayed(d, width), absent(d, found)...)
	if r.Job != nil {
		s.After = append(s.After, next(r, d, found)...)
	}
	return s
}

// next are commands that say more, to be copied.
func next(r *analysis.Result, d *analysis.DeviceResult, found []Finding) []layout.Cell {
	var commands []string
	path := plain.ShellQuote(r.Job.Path)
	for _, more := range []struct{ rule, section string }{{"failed-request", "failures"}, {"leak", "leaks"}} {
		if slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == more.rule }) {
			commands = append(commands, "memprof report --section "+more.section+" "+path)
		}
	}
	if d.Chunks != nil {
		commands = append(commands, "memprof tune "+path)
	}
	if len(commands) == 0 {
		return nil
	}
	commands[0] = "Next: " + commands[0]
	for i := range commands[1:] {
		commands[i+1] = "      " + commands[i+1]
	}
	return layout.Row(commands...)
}

// replayed says what other allocators would have reserved.
func replayed(d *analysis.DeviceResult, width int) []layout.Cell {
	if len(d.Replays) == 0 {
		return nil
	}
	text := fmt.Sprintf("Reserved at most %s. Replayed:", plain.FormatSize(d.MaxR))
	for i, r := range d.Replays {
		name := r.Setting
		switch {
		case r.Allocator == "torch" && r.Setting == "native":
			name = "PyTorch's own allocator"
		case r.Allocator == "torch":
			name = "with " + r.Setting
		}
		if i > 0 {
			if text += ","; r.Allocator != d.Replays[i-1].Allocator {
				text = strings.TrimSuffix(text, ",") + ";"
			}
		}
		text += " " + name + " " + plain.FormatSize(r.Reserved)
	}
	return layout.Row(broken(text+".", width)...)
}

// absent says which of a failure and a leak there was not.
func absent(d *analysis.DeviceResult, found []Finding) []layout.Cell {
	has := func(g Severity) bool {
		for _, f := range found {
			if f.Severity == g {
				return true
			}
		}
		return false
	}
	var parts []string
	if trend, per := d.Leak.Trend(); !has(Grows) && trend.Valid {
		parts = append(parts, fmt.Sprintf("no leak (%s per %s)", plain.FormatSize(int64(trend.Slope)), per))
	}
	if !has(Lost) {
		parts = append(parts, "no failed request")
	}
	if len(parts) == 0 {
		return nil
	}
	text := strings.Join(parts, ", ") + "."
	return layout.Note(strings.ToUpper(text[:1]) + text[1:])
}

// columnWidths divides a terminal between findings and actions, which have what the frame and the columns of
// numbers leave; 0 for any width. whole is what shares are of.
func columnWidths(width int, whole string) (text, action int) {
	if width <= 0 {
		return 0, 0
	}
	const (
		frame   = 6 + 5*2 // lines, and a space on either side of each column
		numbers = len("10") + len("9.99 GiB")
	)
	room := max(width, 80) - frame - numbers - len("of "+whole)
	return room * 11 / 20, room - room*11/20
}

// broken breaks text at spaces into lines of at most width columns, and shortens words that are longer.
func broken(text string, width int) []string {
	text = plain.Text(text) // its escapes are wider than what they stand for
	if width <= 0 || plain.Width(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = plain.Shorten(word, width)
		if line != "" && plain.Width(line)+1+plain.Width(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
