package report

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// leakSections say whether live bytes keep rising, and which allocations they are.
func leakSections(d *analysis.DeviceResult) []layout.Section {
	return append(layout.Known("provided", []layout.Section{leakSection(d)}), leakStacks(d)...)
}

// leakSection gives the verdict, and the contexts of what leaks.
func leakSection(d *analysis.DeviceResult) layout.Section {
	s := layout.Section{Title: "Leaks"}
	leak := d.Leak
	s.Before = layout.Note(LeakLine(leak))
	switch leak.Verdict {
	case iterations.Leaks:
		s.Before = layout.Toned(layout.Warned, s.Before)
	case iterations.NoLeak:
		return s
	default:
		s.Before = layout.Toned(layout.Faint, s.Before)
		return s
	}
	if len(leak.Allocations) == 0 {
		return s
	}
	groups := contextTable("", d.Chunks, leak.Allocations, leak.Provided)
	groups.Columns[len(groups.Columns)-1].Name = "share"
	s.Columns, s.Rows = groups.Columns, groups.Rows
	s.After = append(layout.Note("allocations of what rises, made after the first third and live at the end"),
		layout.Note("shares of their chunks, "+plain.FormatSize(leak.Provided))...)
	return s
}

// LeakLine is the verdict on leaks in one line.
func LeakLine(leak *iterations.Leak) string {
	switch leak.Verdict {
	case iterations.NoLeak:
		return fmt.Sprintf("none: what is held after each %s does not keep rising (%s)", leak.Per, plain.Counted(int64(leak.Points), leakUnit(leak)))
	case iterations.Leaks:
		text := fmt.Sprintf("%s per %s keep rising", formatSlope(leak.Slope), leakUnit(leak))
		if leak.Per != "second" && leak.PerSecond > 0 {
			text = fmt.Sprintf("%s per %s, %s per second keep rising", formatSlope(leak.Slope), leakUnit(leak), formatSlope(leak.PerSecond))
		}
		if leak.Line != "" {
			text += ", most from " + plain.Shorten(leak.Line, 60)
		}
		if leak.Module != "" {
			text += " in " + plain.Shorten(leak.Module, 40)
		}
		return text
	}
	return fmt.Sprintf("too short for a verdict: it needs %d iterations, %d requests, or %.0f s", iterations.LeastIterations, iterations.LeastIterations, iterations.LeastTime/1e9)
}

// leakUnit says what lies between two points.
func leakUnit(l *iterations.Leak) string {
	switch {
	case l.Per != "request":
		return l.Per
	case l.Request == iterations.KVRequests:
		return l.Request
	}
	return "phase " + plain.Shorten(l.Request, 28)
}

// formatSlope is the bytes of a slope, with a sign.
func formatSlope(slope float64) string {
	switch {
	case math.IsNaN(slope) || math.IsInf(slope, 0):
		return plain.Absent
	case math.Abs(slope) < 0.5:
		return "0 B"
	case slope > 0:
		return "+" + plain.FormatSize(int64(math.Round(slope)))
	}
	return plain.FormatSize(int64(math.Round(slope)))
}

// leakStacks are the stacks of the allocations that leak.
func leakStacks(d *analysis.DeviceResult) []layout.Section {
	stacks := &d.Leak.Stacks
	if d.Leak.Verdict != iterations.Leaks || !hasFrames(stacks) {
		return nil
	}
	all := stacks.Sum()
	return layout.Known("provided", []layout.Section{groupTable{all.Requested, "share", d.Chunks}.stacks("Leaks, by stack", stacks)})
}

func newJSONLeak(d *analysis.DeviceResult) *jsonLeak {
	l := d.Leak
	j := &jsonLeak{
		Verdict: string(l.Verdict), Per: l.Per, Request: l.Request, Points: l.Points, Module: l.Module, Line: l.Line,
		Allocations: newJSONAllocationGroups(d.Chunks, l.Allocations), Stacks: newJSONBreakdown(d.Chunks, &l.Stacks),
	}
	if l.Verdict == iterations.TooShort || l.Verdict == "" {
		j.Verdict = string(iterations.TooShort)
		return j
	}
	j.Slope, j.PerSecond = plain.Finite(l.Slope), plain.Finite(l.PerSecond)
	j.Blocks, j.Requested, j.Provided = l.Blocks, l.Requested, plain.Known(d.Chunks.Known(l.Provided))
	return j
}

type jsonLeak struct {
	Verdict   string   `json:"verdict"`           // "none", "leak" or "too short"
	Per       string   `json:"per,omitempty"`     // "iteration", "request" or "second"
	Request   string   `json:"request,omitempty"` // what counts as a request
	Points    int      `json:"points"`
	Slope     *float64 `json:"slope"` // bytes per iteration, request or second that leak; null if too short
	PerSecond *float64 `json:"per_second"`
	Module    string   `json:"module"`
	Line      string   `json:"line"`
	// The allocations that leak: made after the first third of the points and live at the last.
	Blocks      int64                 `json:"blocks"`
	Requested   int64                 `json:"requested"`
	Provided    *int64                `json:"provided"`
	Allocations []jsonAllocationGroup `json:"allocations"`
	Stacks      jsonBreakdown         `json:"stacks"`
}
