package terms

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// contextText is a context as a field of a table; "" stands for code that told none.
func Context(context string, width int) string {
	if context == "" {
		return "(no context)"
	}
	return plain.Shorten(context, width)
}

// NameWidth is the room for a module's path or a frame.
const NameWidth = 50

// OtherMeans explains the category.
const OtherMeans = "other: told by no label, and by neither phase nor lifetime"

func Phase(name string) string { return Named(name, "(no name)") }

func Module(name string) string { return Named(name, "(no module)") }

// Named is a name of the job's as a field of a table.
func Named(name, none string) string {
	if name == "" {
		return none
	}
	return plain.Shorten(name, NameWidth)
}

var categoryTexts = map[string]string{
	"optimizer": "optimizer state", "kv_cache": "KV cache", "cuda_graphs": "CUDA graphs", "workspace": "temporary workspace",
}

func Category(name string) string {
	if text, ok := categoryTexts[name]; ok {
		return text
	}
	return name
}

// verdictWidth is the room for a verdict.
const verdictWidth = len(analysis.Fragmentation)

// FragmentationMeans explains the verdict.
const FragmentationMeans = "fragmentation: enough bytes were free, but in no piece that was large enough"

// verdictText is a verdict as a field of a table.
func Verdict(v analysis.Verdict) string {
	if v == "" {
		return units.Absent
	}
	return plain.Shorten(string(v), verdictWidth)
}

// instantLine says when an instant was.
func Instant(d *analysis.DeviceResult, at analysis.Instant) string {
	line := fmt.Sprintf("event %s, %s after the start, %s live",
		units.FormatCount(at.Seq), units.FormatDuration(at.Time), units.Counted(at.Live, "allocation"))
	if number, ok := d.IterationNumber(at.Iteration); ok {
		line += fmt.Sprintf(", iteration %d", number)
	}
	return line
}

// iterationText is iterationNumber as a field of a table.
func Iteration(d *analysis.DeviceResult, index int) string {
	if number, ok := d.IterationNumber(index); ok {
		return units.FormatCount(number)
	}
	return units.Absent
}

// recoveredNote is shown with a trace that was cut off.
const recoveredNote = "the trace ends before the process did: what follows holds up to its last event"

// EndNote says where a trace ends that is not of the whole process; "" of one that is.
func EndNote(r *analysis.Result) string {
	switch {
	case r.Live:
		return fmt.Sprintf("the recording is in progress: what follows holds up to event %s, at %s", units.FormatCount(r.LastSeq), units.FormatDuration(r.Duration))
	case r.Recovered:
		return recoveredNote
	}
	return ""
}

// DeviceTitle names a device of a process.
func DeviceTitle(r *analysis.Result, d *analysis.DeviceResult) string {
	return fmt.Sprintf("%s · GPU %d", plain.Shorten(r.Process, 60), d.Device)
}

func ProcessLine(r *analysis.Result) string {
	return fmt.Sprintf("%s · %s", units.FormatDuration(r.Duration), units.Counted(r.Events, "event"))
}

func DeviceLine(r *analysis.Result, d *analysis.DeviceResult) string {
	line := fmt.Sprintf("%s · %s · %s", ProcessLine(r), units.Counted(d.Allocs, "allocation"), units.Counted(d.IterationCount(), "iteration"))
	if arenas := deviceArenas(r, d.Device); arenas > 0 {
		line += " · " + units.Counted(arenas, "arena")
	}
	if len(d.OOMs) > 0 {
		line += " · " + units.Counted(int64(len(d.OOMs)), "request") + " failed"
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
