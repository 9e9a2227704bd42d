package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
)

// Tuned is what a recorded job would have taken under several policies.
type Tuned struct {
	*tune.Result
	Process string
	Costs   tune.Costs
	// MaxSlowdown is the greatest share of a step that a recommended policy may cost.
	MaxSlowdown float64
}

// TuneText writes the policies for a terminal, the recommended one emphasized. It fails only where w does.
func TuneText(w io.Writer, t *Tuned, o Options) error {
	return writeText(w, o, tuneSection(t))
}

// TuneMarkdown writes what TuneText does as Markdown. It fails only where w does.
func TuneMarkdown(w io.Writer, t *Tuned) error {
	return writeMarkdown(w, tuneSection(t))
}

func tuneSection(t *Tuned) section {
	first := &t.Outcomes[0]
	s := section{
		title: "Policies for " + shorten(t.Process, 60),
		before: note(fmt.Sprintf("%s replayed under each; at most %s were requested at a time; %s",
			plural(t.Allocs, "request"), FormatSize(first.PeakT), tunedSteps(first))),
		columns: []column{
			numbers("#"), words("growth"), words("split"), words("small"), words("trim"), words("placement"), numbers("R peak"), numbers("R steady"), numbers("idle, first"), numbers("idle, later"),
			numbers("remaps"), numbers("waits"), numbers("cost"), numbers("step"),
		},
	}
	best := t.Recommend(t.MaxSlowdown)
	for i := range t.Outcomes {
		o := &t.Outcomes[i]
		cells := tuneRow(i+1, o)
		switch {
		case i == best:
			cells = toned(strong, cells)
		case o.Refused > 0:
			cells = toned(failed, cells)
		}
		s.rows = append(s.rows, cells)
	}
	s.after = tuneNotes(t, best)
	return s
}

// tunedSteps says what a steady step is.
func tunedSteps(o *tune.Outcome) string {
	if o.Iterations == 0 {
		return "no iterations are marked: steady is the end, and nothing is trimmed by iteration or planned"
	}
	return fmt.Sprintf("%s, a steady one of %s", plural(o.Iterations, "iteration"), FormatDuration(o.Step.Nanoseconds()))
}

// tuneRow begins with a number: where the table is divided, that says which policy a line is of.
func tuneRow(number int, o *tune.Outcome) []cell {
	growth, split, small, trim := policyTexts(o.Policy)
	first, later := absent, absent
	if o.Iterations > 0 {
		first = FormatPercent(o.FirstIdle)
	}
	if o.Iterations > 1 {
		later = FormatPercent(o.LaterIdle)
	}
	step := absent
	if o.Step > 0 {
		step = strconv.FormatFloat(1+o.Slowdown(), 'f', 3, 64)
	}
	cells := row(strconv.Itoa(number), growth, split, small, trim, o.Policy.Placement.String(), FormatSize(o.PeakR), FormatSize(o.SteadyR), first, later,
		tenths(o.Remaps), tenths(o.Waits), FormatDuration(o.Cost.Nanoseconds()), step)
	if o.Refused > 0 {
		cells[6].text = "refused " + formatCount(o.Refused)
	}
	return cells
}

// tenths is a count in the mean.
func tenths(n float64) string {
	text := strconv.FormatFloat(n, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

// policyTexts are the options as `memprof record` takes them, and means them: sizes are not rounded.
// Small is "–" for none.
func policyTexts(p tune.Policy) (growth, split, small, trim string) {
	growth, split, small, trim = p.GrowthText(), p.Split.String(), absent, p.Trim.String()
	if p.Growth == bfc.Step {
		growth = "step:" + exactSize(p.Step)
	}
	if p.Split != bfc.SplitClassic && p.Split != bfc.SplitAlways {
		split = exactSize(uint64(p.Split))
	}
	if p.Small > 0 {
		small = exactSize(p.Small)
	}
	if p.Trim.When == bfc.TrimIdle {
		trim = "idle:" + p.Trim.Idle.String()
	}
	return growth, split, small, trim
}

// recordFlags are those of `memprof record` for a policy.
func recordFlags(p tune.Policy) string {
	growth, split, small, trim := policyTexts(p)
	flags := "--growth " + growth + " --split " + split
	if p.Small > 0 {
		flags += " --small-arenas " + small
	}
	flags += " --trim " + trim
	if p.Placement != bfc.PlacementBestFit {
		flags += " --placement " + p.Placement.String()
	}
	return flags
}

func tuneNotes(t *Tuned, best int) []cell {
	c := &t.Costs
	notes := note("of a steady iteration in the mean: ranges mapped again for a request, requests that wait for the device, the cost of driver calls that requests wait for, and how long a step is with it, 1 as recorded")
	notes = append(notes, note(fmt.Sprintf("cost model: a handle of %s: create %s, map %s, set access %s, unmap %s, release %s",
		FormatSize(int64(c.Handle)), short(c.Create), short(c.Map), short(c.Access), short(c.Unmap), short(c.Release)))...)
	if t.LeftOut > 0 {
		notes = append(notes, cell{plural(t.LeftOut, "arena") + " of graph memory left out", faint})
	}
	if best < 0 {
		return append(notes, cell{fmt.Sprintf("none serves all requests at no more than %s of a step", FormatPercent(t.MaxSlowdown)), warned})
	}
	return append(notes, cell{"recommended: memprof record " + recordFlags(t.Outcomes[best].Policy), strong})
}

func short(d time.Duration) string { return FormatDuration(d.Nanoseconds()) }

// TuneJSON writes the policies as one JSON object, indented. Bytes and counts are integers, times
// integers of nanoseconds, shares and means numbers; what does not exist is null. Policies are in
// the words of the hook: bytes, nanoseconds. It fails only
// where w does.
func TuneJSON(w io.Writer, t *Tuned) error {
	out := jsonTuned{
		Process: t.Process, Requests: t.Allocs, LeftOut: t.LeftOut, MaxSlowdown: t.MaxSlowdown, Policies: []jsonOutcome{},
		Costs: jsonCosts{t.Costs.Handle, t.Costs.Create.Nanoseconds(), t.Costs.Map.Nanoseconds(), t.Costs.Access.Nanoseconds(), t.Costs.Unmap.Nanoseconds(), t.Costs.Release.Nanoseconds()},
	}
	for i := range t.Outcomes {
		out.Policies = append(out.Policies, newJSONOutcome(&t.Outcomes[i]))
	}
	if best := t.Recommend(t.MaxSlowdown); best >= 0 {
		out.Recommended = &out.Policies[best].jsonPolicy
	}
	return WriteJSON(w, out)
}

type jsonTuned struct {
	Process     string        `json:"process"`
	Requests    int64         `json:"requests"`
	LeftOut     int64         `json:"left_out_arenas"`
	Costs       jsonCosts     `json:"costs"`
	MaxSlowdown float64       `json:"max_slowdown"`
	Policies    []jsonOutcome `json:"policies"`
	Recommended *jsonPolicy   `json:"recommended"`
}

type jsonCosts struct {
	Handle    uint64 `json:"handle"`
	CreateNS  int64  `json:"create_ns"`
	MapNS     int64  `json:"map_ns"`
	AccessNS  int64  `json:"access_ns"`
	UnmapNS   int64  `json:"unmap_ns"`
	ReleaseNS int64  `json:"release_ns"`
}

type jsonPolicy struct {
	Growth    string `json:"growth"`
	Split     string `json:"split"`
	Small     uint64 `json:"small_arenas"`
	Trim      string `json:"trim"`
	Placement string `json:"placement"`
}

type jsonOutcome struct {
	jsonPolicy
	PeakReserved   int64    `json:"peak_reserved"`
	PeakProvided   int64    `json:"peak_provided"`
	PeakRequested  int64    `json:"peak_requested"`
	SteadyReserved int64    `json:"steady_reserved"`
	Refused        int64    `json:"refused"`
	Iterations     int64    `json:"iterations"`
	FirstIdle      *float64 `json:"first_idle"`
	LaterIdle      *float64 `json:"later_idle"`
	Remaps         float64  `json:"remaps_per_iteration"`
	RemapsAhead    float64  `json:"remaps_ahead_per_iteration"`
	Gives          float64  `json:"given_back_per_iteration"`
	Waits          float64  `json:"waits_per_iteration"`
	CostNS         int64    `json:"cost_per_iteration_ns"`
	BesideNS       int64    `json:"beside_per_iteration_ns"`
	StepNS         *int64   `json:"step_ns"`
	Slowdown       *float64 `json:"slowdown"`
	TotalCostNS    int64    `json:"total_cost_ns"`
}

func newJSONOutcome(o *tune.Outcome) jsonOutcome {
	p := o.Policy
	out := jsonOutcome{
		jsonPolicy: jsonPolicy{p.GrowthText(), p.Split.String(), p.Small, p.Trim.String(), p.Placement.String()}, PeakReserved: o.PeakR, PeakProvided: o.PeakC, PeakRequested: o.PeakT, SteadyReserved: o.SteadyR,
		Refused: o.Refused, Iterations: o.Iterations, Remaps: o.Remaps, RemapsAhead: o.RemapsAhead, Gives: o.Gives, Waits: o.Waits,
		CostNS: o.Cost.Nanoseconds(), BesideNS: o.Beside.Nanoseconds(), TotalCostNS: o.TotalCost.Nanoseconds(),
	}
	if o.Iterations > 0 {
		out.FirstIdle = finite(o.FirstIdle)
	}
	if o.Iterations > 1 {
		out.LaterIdle = finite(o.LaterIdle)
	}
	if o.Step > 0 {
		step := o.Step.Nanoseconds()
		out.StepNS, out.Slowdown = &step, finite(o.Slowdown())
	}
	return out
}
