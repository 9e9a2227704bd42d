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

// leakSection gives the trend, and the contexts of what leaks.
func leakSection(d *analysis.DeviceResult) layout.Section {
	s := layout.Section{Title: "Leaks"}
	leak := &d.Leak
	trend, per := leak.Trend()
	if !trend.Valid {
		s.Before = layout.Toned(layout.Faint, layout.Note("not known: a trend needs six iterations, six requests, or a longer recording"))
		return s
	}
	at := map[string]string{
		"iteration": "at iteration ends",
		"request":   "at the ends of requests (" + leakRequest(leak) + ")",
		"second":    "over time",
	}[per]
	slope := formatSlope(trend.Slope) + " per " + per
	if per == "request" && leak.Seconds.Valid {
		slope += ", " + formatSlope(leak.Seconds.Slope) + " per second"
	}
	if !trend.Rising {
		s.Before = layout.Note(fmt.Sprintf("none: live bytes do not keep rising %s (%s)", at, slope))
		return s
	}
	s.Before = layout.Toned(layout.Warned, layout.Note(fmt.Sprintf("live bytes keep rising %s: %s", at, slope)))
	if len(leak.Allocations) == 0 {
		return s
	}
	groups := contextTable("", d.Chunks, leak.Allocations, leak.Provided)
	groups.Columns[len(groups.Columns)-1].Name = "share"
	s.Columns, s.Rows = groups.Columns, groups.Rows
	after := map[string]string{
		"iteration": "allocations made after the first iteration and live at the end of the last",
		"request":   "allocations made after the first request and live at the end of the last",
		"second":    "allocations made after the first quarter of the time and live at the end",
	}[per]
	s.After = append(layout.Note(after), layout.Note("shares of their chunks, "+plain.FormatSize(leak.Provided))...)
	return s
}

// leakRequest says what counts as a request.
func leakRequest(l *iterations.Leak) string {
	if l.Request == iterations.KVRequests {
		return "sequences in a KV cache"
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
	if trend, _ := d.Leak.Trend(); !trend.Rising || !hasFrames(stacks) {
		return nil
	}
	all := stacks.Sum()
	return layout.Known("provided", []layout.Section{groupTable{all.Requested, "share", &d.Held}.stacks("Leaks, by stack", stacks)})
}

func newJSONLeak(d *analysis.DeviceResult) *jsonLeak {
	l := &d.Leak
	trend, by := l.Trend()
	if !trend.Valid {
		return nil
	}
	j := &jsonLeak{
		Rising: l.Iterations.Rising, Points: l.Iterations.Points,
		PerRequest: newJSONTrend(l.Requests, l.Request), PerSecond: newJSONTrend(l.Seconds, ""),
		By: by, Blocks: l.Blocks, Requested: l.Requested, Provided: plain.Known(d.Chunks.Known(l.Provided)),
		Allocations: newJSONAllocationGroups(d, l.Allocations), Stacks: newJSONBreakdown(&d.Held, &l.Stacks),
	}
	if l.Iterations.Valid {
		j.Slope = plain.Finite(l.Iterations.Slope)
	}
	return j
}

func newJSONTrend(t iterations.Trend, of string) *jsonTrend {
	if !t.Valid {
		return nil
	}
	return &jsonTrend{of, plain.Finite(t.Slope), t.Rising, t.Points}
}

// jsonLeak has the trend by iterations in its own fields. It is there if any trend is known.
type jsonLeak struct {
	Slope      *float64   `json:"slope"` // bytes per iteration
	Rising     bool       `json:"rising"`
	Points     int        `json:"points"`
	PerRequest *jsonTrend `json:"per_request"`
	PerSecond  *jsonTrend `json:"per_second"`
	// The allocations of the trend that By names: made after its first point and live at its last.
	By          string                `json:"by"` // "iteration", "request" or "second"
	Blocks      int64                 `json:"blocks"`
	Requested   int64                 `json:"requested"`
	Provided    *int64                `json:"provided"`
	Allocations []jsonAllocationGroup `json:"allocations"`
	Stacks      jsonBreakdown         `json:"stacks"`
}

// jsonTrend has its slope in bytes per request or per second.
type jsonTrend struct {
	Of     string   `json:"of,omitempty"` // what counts as a request
	Slope  *float64 `json:"slope"`
	Rising bool     `json:"rising"`
	Points int      `json:"points"`
}

// jsonLeaks is null if there are too few points for a trend.
type jsonLeaks struct {
	Leak *jsonLeak `json:"leak"`
}

func newJSONLeaks(d *analysis.DeviceResult) jsonLeaks { return jsonLeaks{newJSONLeak(d)} }
