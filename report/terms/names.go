// Package terms says what reports call things: names of the job, verdicts, instants, devices.
package terms

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
)

// Context is the context of an allocation as a field of a table, at most width columns wide.
func Context(context string, width int) string {
	if context == "" {
		return "(no context)"
	}
	return plain.Shorten(context, width)
}

// NameWidth is the most columns that a module's path or a frame takes in a table.
const NameWidth = 44

// OtherMeans explains the category "other".
const OtherMeans = "other: no label; neither phase nor lifetime decides"

// Phase is the name of a phase as a field of a table.
func Phase(name string) string { return Named(name, "(no name)") }

// Module is the path of a module as a field of a table.
func Module(name string) string { return Named(name, "(no module)") }

// Named is a name that the job gave as a field of a table; none stands for the empty name.
func Named(name, none string) string {
	if name == "" {
		return none
	}
	return plain.Shorten(name, NameWidth)
}

// verdictWidth is the width of the longest verdict, in columns.
const verdictWidth = len(analysis.Fragmentation)

// FragmentationMeans explains the verdict.
const FragmentationMeans = "fragmentation: enough bytes were free, but no free chunk was large enough"

// Verdict is the reason of a growth or a failed request as a field of a table.
func Verdict(v analysis.Verdict) string {
	if v == "" {
		return plain.Absent
	}
	return plain.Shorten(string(v), verdictWidth)
}

// Instant says which event and time an instant is, and in which iteration it lies.
func Instant(d *analysis.DeviceResult, at ledger.Instant) string {
	line := fmt.Sprintf("event %s, %s after the start, %s live",
		plain.FormatCount(at.Seq), plain.FormatDuration(at.Time), plain.Counted(at.Live, "allocation"))
	if number, ok := d.IterationNumber(at.Iteration); ok {
		line += fmt.Sprintf(", iteration %d", number)
	}
	return line
}

// Iteration is the number of the iteration with an index as a field of a table. Events after the last
// mark belong to no iteration.
func Iteration(d *analysis.DeviceResult, index int) string {
	if number, ok := d.IterationNumber(index); ok {
		return plain.FormatCount(number)
	}
	return plain.Absent
}

// recoveredNote warns of a recording that was cut off.
const recoveredNote = "the recording ends before the process did: the report covers events up to its last one"

// EndNote warns of a recording that does not cover the whole process; "" for one that does.
func EndNote(r *analysis.Result) string {
	switch {
	case r.Live:
		return fmt.Sprintf("the recording is in progress: the report covers events up to %s, at %s", plain.FormatCount(r.LastSeq), plain.FormatDuration(r.Duration))
	case r.Recovered:
		return recoveredNote
	}
	return ""
}

// DeviceTitle names a process and one of its devices.
func DeviceTitle(r *analysis.Result, d *analysis.DeviceResult) string {
	return fmt.Sprintf("%s · GPU %d", plain.Shorten(r.Process, 60), d.Device)
}

// ProcessLine is the duration and the number of events of a process.
func ProcessLine(r *analysis.Result) string {
	return fmt.Sprintf("%s · %s", plain.FormatDuration(r.Duration), plain.Counted(r.Events, "event"))
}

// DeviceLine counts what happened on a device of a process.
func DeviceLine(r *analysis.Result, d *analysis.DeviceResult) string {
	line := ProcessLine(r)
	if d.Held != nil { // else the recording is still read
		line += " · " + plain.Counted(d.Allocs, "allocation") + " · " + plain.Counted(d.IterationCount(), "iteration")
	}
	if arenas := deviceArenas(r, d.Device); arenas > 0 {
		line += " · " + plain.Counted(arenas, "arena")
	}
	if d.Failures != nil && len(d.OOMs) > 0 {
		line += " · " + plain.Counted(int64(len(d.OOMs)), "request") + " failed"
	}
	return line
}

func deviceArenas(r *analysis.Result, device int32) (n int64) {
	for _, a := range r.Arenas {
		if a.Device == device {
			n++
		}
	}
	return n
}
