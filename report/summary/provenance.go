package summary

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
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
		lines = layout.Note(strings.Join([]string{Title(j, commandColumns), exitText(j), events}, " | "))
		lines = append(lines, layout.Note(gpuText(d, j))...)
	} else {
		lines = layout.Note(events)
	}
	if allocator != "" {
		lines = append(lines, layout.Note(allocator)...)
	}
	lines = append(lines, callsNote(&r.Calls)...)
	if r.Job != nil && r.Job.Imported != nil {
		lines = append(lines, importNotes(r.Job.Imported)...)
	}
	if r.Job != nil {
		lines = append(lines, dryRunNotes(r.Job)...)
		lines = append(lines, partNotes(r.Job)...)
	}
	return lines
}

// dryRunNotes say that nothing was computed, and what was assumed for it.
func dryRunNotes(j *analysis.Job) []layout.Cell {
	if !j.DryRun {
		return nil
	}
	text := "Dry run: the requests that the job would make; nothing was computed, and times are the host's"
	if j.Exit == nil || *j.Exit != 0 {
		text = "Dry run that ended early: the requests up to there"
	}
	notes := layout.Note(text)
	for _, assumption := range j.Assumptions {
		notes = append(notes, layout.Note(strings.TrimPrefix(assumption, dataset.DryRun+": "))...)
	}
	return notes
}

// callsNote is what memprof's allocator asked of the driver, if anything: a mean over steady iterations, or the sum where none was marked.
func callsNote(log *iterations.CallLog) []layout.Cell {
	calls, n := log.Steady()
	an := " an iteration"
	if n == 0 {
		calls, n, an = log.Total, 1, ""
	}
	if calls.Count == 0 {
		return nil
	}
	count := strings.TrimSuffix(strconv.FormatFloat(float64(calls.Count)/float64(n), 'f', 1, 64), ".0")
	return layout.Note(fmt.Sprintf("allocator: %s calls, %s, waited %s%s", count, plain.FormatDuration(int64(calls.Time)/n), plain.FormatDuration(int64(calls.Waited)/n), an))
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
	if i.Exact > i.Opening {
		text = fmt.Sprintf("Imported from %s: exact from event %s on, after %s; before, a block may be up to 1 MiB larger",
			plain.Shorten(i.Format, 24), plain.FormatCount(i.Exact), plain.FormatDuration(i.ExactNS))
	}
	notes := layout.Note(text)
	if i.Reserved > 0 {
		notes = append(notes, layout.Note(fmt.Sprintf("The history begins with %s reserved, in it %s; earlier peaks are unknown",
			plain.FormatSize(i.Reserved), plain.Counted(i.Blocks, "block")))...)
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
	fields := []string{Title(j, footerColumns), gpuText(d, j)}
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

// Title is a job and when it began: its command line in at most so many columns, and the date.
func Title(j *analysis.Job, columns int) string {
	title := "(command not known)"
	if len(j.Command) > 0 {
		title = plain.Shorten(strings.Join(j.Command, " "), columns)
	}
	if !j.Start.IsZero() {
		title += j.Start.UTC().Format(" | 2006-01-02 15:04 UTC")
	}
	return title
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

// broken breaks text at spaces into lines of at most width columns, and shortens words that are longer.
func broken(text string, width int) []string {
	text = plain.Text(text) // its escapes are wider than what they stand for
	if width <= 0 || plain.Width(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if name, setting, ok := strings.Cut(word, "="); ok && plain.Width(word) > width { // a variable
			line = strings.TrimSpace(line + " " + name + "=")
			word = setting
		}
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
