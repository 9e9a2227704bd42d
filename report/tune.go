package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/layout"
)

// Tuned is the memory that a recorded job needs under several policies.
type Tuned struct {
	*tune.Result
	Process string
	All     string // the command that prints all policies
	Costs   tune.Costs
	// MaxSlowdown is the most that a recommended policy may lengthen an iteration, as a share of it.
	MaxSlowdown float64
	// Torch is the job under PyTorch's own allocator; empty for jobs without PyTorch, and for several devices.
	Torch []recording.TorchOutcome
	// Recorded is the policy that the job was recorded under; nil for another allocator. RecordedR is what it
	// reserved at most; 0 where that is not known.
	Recorded  *bfc.Policy
	RecordedR int64
}

// torchSlowdown is by which share of its recorded time a steady iteration is longer under a setting of PyTorch's
// allocator: a call for a segment or a page takes the time of a handle. It is 0 where the time is not known.
func (t *Tuned) torchSlowdown(o *recording.TorchOutcome) float64 {
	lasts := t.Outcomes[0].Duration
	if lasts <= 0 {
		return 0
	}
	c := &t.Costs
	return (o.Maps*float64(c.Create+c.Map+c.Access) + o.Unmaps*float64(c.Unmap+c.Release)) / float64(lasts)
}

// BestTorch returns the setting of PyTorch's allocator that reserves least, serves all requests and is within the
// slowdown that a recommended policy may have; ok is false where there is none.
func (t *Tuned) BestTorch() (best recording.TorchOutcome, ok bool) {
	for _, o := range t.Torch {
		if o.Refused == 0 && t.torchSlowdown(&o) <= t.MaxSlowdown && (!ok || o.Reserved < best.Reserved) {
			best, ok = o, true
		}
	}
	return best, ok
}

// TuneText writes the recorded policy and those that save most for a terminal, in at most [TuneLines] lines, or with
// all every policy; the recommended one in bold. It fails only if w does.
func TuneText(w io.Writer, t *Tuned, all bool, o layout.Options) error {
	return layout.WriteScreen(w, o, tuneSections(t, all)...)
}

// TuneMarkdown writes what TuneText does as Markdown. It fails only if w does.
func TuneMarkdown(w io.Writer, t *Tuned, all bool) error {
	return layout.WriteMarkdown(w, tuneSections(t, all)...)
}

// tuneSections are the policies that save most, or PyTorch's own allocator, if there is one, and all policies.
func tuneSections(t *Tuned, all bool) []layout.Section {
	if !all {
		return []layout.Section{savingsSection(t)}
	}
	sections := []layout.Section{tuneSection(t)}
	if len(t.Torch) > 0 {
		sections = append([]layout.Section{torchSection(t)}, sections...)
	}
	return sections
}

// TuneLines is the most lines of a screen about the policies that save most, and mostSaving its rows.
const (
	TuneLines  = 20
	mostSaving = 10
)

// savingsSection compares the recorded policy with the recommended one, presets, the best policies of few flags, and
// PyTorch's own allocator: what each saves.
func savingsSection(t *Tuned) layout.Section {
	first := &t.Outcomes[0]
	s := layout.Section{
		Title:   "Policies for " + plain.Shorten(t.Process, 60),
		Before:  layout.Note(fmt.Sprintf("%s replayed, at most %s at once; %s", plain.Counted(t.Allocs, "request"), plain.FormatSize(first.PeakT), cmp.Or(unmarked(first), plain.Counted(first.Iterations, "iteration")))),
		Columns: []layout.Column{layout.Words("policy"), layout.Numbers("peak R"), layout.Numbers("saves"), layout.Numbers("of recorded"), {Name: "later R", Number: true, Implied: true}, layout.Numbers("calls"), layout.Numbers("slowdown"), layout.Words("")},
	}
	base, best := t.baseline(), t.Recommend(t.MaxSlowdown)
	line := func(name string, reserved int64, later, calls, slowdown, mark string, tone layout.Tone) {
		saves, share := plain.Absent, plain.Absent
		if base > 0 && mark != "recorded" {
			saves, share = strings.TrimPrefix(changeText(analysis.Bytes, float64(base-reserved)), "+"), plain.FormatPercent(plain.Ratio(base-reserved, base))
		}
		s.Rows = append(s.Rows, layout.Toned(tone, layout.Row(name, plain.FormatSize(reserved), saves, share, later, calls, slowdown, mark)))
	}
	shown := t.savings(best)
	if t.RecordedR > 0 && !slices.ContainsFunc(shown, func(i int) bool { return t.isRecorded(&t.Outcomes[i].Policy) }) {
		name := "PyTorch's own"
		if t.Recorded != nil {
			name = shortFlags(t.Recorded)
		}
		line(name, t.RecordedR, plain.Absent, plain.Absent, plain.Absent, "recorded", layout.Plain)
	}
	for _, i := range shown {
		o := &t.Outcomes[i]
		mark, tone := "", layout.Plain
		if t.isRecorded(&o.Policy) {
			mark = "recorded"
		}
		if i == best {
			tone = layout.Strong
			if mark = "recommended"; t.isRecorded(&o.Policy) {
				mark = "recorded, recommended"
			}
		}
		cells := tuneRow(0, o)
		line(shortFlags(&o.Policy), o.PeakR, plain.FormatSize(o.SteadyR), tenths(o.Calls.Sum()), cells[len(cells)-1].Text, mark, tone)
		if o.Refused > 0 { // of the recorded policy alone: savings leaves out the others
			s.Rows[len(s.Rows)-1][1].Text = failedText(o.Refused)
		}
	}
	if torch, ok := t.BestTorch(); ok {
		if def := &t.Torch[0]; def.Setting == "" && def.Refused == 0 && torch.Setting != "" {
			line("PyTorch's own", def.Reserved, plain.Absent, plain.Absent, plain.Absent, "", layout.Plain)
		}
		line(strings.TrimSuffix("PyTorch's own, "+torch.Setting, ", "), torch.Reserved, plain.Absent, plain.Absent, plain.Absent, "", layout.Plain)
	}
	s.After = layout.Note("R: reserved, replayed; saves: of the recorded policy's; later: iterations from 4 on; calls: of the driver, per later iteration")
	if best < 0 {
		s.After = []layout.Cell{noPolicy(t)}
	} else {
		s.After = append(s.After, layout.Cell{Text: "recommended: memprof record " + PolicyFlags(t.Outcomes[best].Policy), Tone: layout.Strong})
	}
	if setting := t.torchAdvice(); setting != "" {
		s.After = append(s.After, adviceCell(setting))
	}
	s.After = append(s.After, layout.Note(fmt.Sprintf("all %d policies: %s", len(t.Outcomes)+len(t.Torch), cmp.Or(t.All, "memprof tune --all")))...)
	return s
}

// shortFlags are the flags of a policy without the preset that is the default, if there are others.
func shortFlags(p *bfc.Policy) string {
	flags := PolicyFlags(*p)
	if strings.Count(flags, "--") > 1 {
		return strings.TrimPrefix(flags, "--preset classic ")
	}
	return flags
}

// savings chooses outcomes to show: the recorded policy, the recommended one, presets, and then those that reserve
// less than the recorded one with one flag more than a preset, the least reserved first, but none that another one with as few
// flags equals in what it reserves and in its slowdown, or betters. Each serves all requests.
func (t *Tuned) savings(best int) []int {
	var shown, others []int
	base := t.baseline()
	for i := range t.Outcomes {
		o := &t.Outcomes[i]
		switch flags := strings.Count(PolicyFlags(o.Policy), "--"); {
		case t.isRecorded(&o.Policy):
			shown = append([]int{i}, shown...)
		case o.Refused > 0:
		case i == best || flags == 1:
			shown = append(shown, i)
		case flags == 2 && (base == 0 || o.PeakR < base):
			others = append(others, i)
		}
	}
	others = t.worthwhile(others, shown)
	by := func(a, b int) int { return cmp.Compare(t.Outcomes[a].PeakR, t.Outcomes[b].PeakR) }
	slices.SortStableFunc(others, by)
	room := mostSaving - 2 - len(shown) // PyTorch's own has two rows
	shown = append(shown, others[:max(0, min(len(others), room))]...)
	slices.SortStableFunc(shown, func(a, b int) int {
		x, y := t.isRecorded(&t.Outcomes[a].Policy), t.isRecorded(&t.Outcomes[b].Policy)
		if x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return by(a, b)
	})
	return shown
}

// worthwhile leaves out those of others that some outcome equals or betters both in what it reserves and in its driver calls. Of
// equal ones it keeps the first, those shown before all others.
func (t *Tuned) worthwhile(others, shown []int) (kept []int) {
	all := slices.Concat(shown, others)
	for at := len(shown); at < len(all); at++ {
		o := &t.Outcomes[all[at]]
		asGood := func(i int) bool {
			return t.Outcomes[i].Refused == 0 && t.Outcomes[i].PeakR <= o.PeakR && t.Outcomes[i].Cost <= o.Cost
		}
		better := func(i int) bool {
			return asGood(i) && (t.Outcomes[i].PeakR < o.PeakR || t.Outcomes[i].Cost < o.Cost)
		}
		if !slices.ContainsFunc(all[:at], asGood) && !slices.ContainsFunc(all[at+1:], better) {
			kept = append(kept, all[at])
		}
	}
	return kept
}

// baseline is what the recorded policy reserves at most: by its replay, else as recorded; 0 if neither is known.
func (t *Tuned) baseline() int64 {
	for i := range t.Outcomes {
		if o := &t.Outcomes[i]; t.isRecorded(&o.Policy) && o.Refused == 0 {
			return o.PeakR
		}
	}
	return t.RecordedR
}

// isRecorded says whether a policy is the recorded one, in what tune tries.
func (t *Tuned) isRecorded(p *bfc.Policy) bool {
	return t.Recorded != nil && !slices.ContainsFunc(tunedDimensions(), func(d *bfc.Dimension) bool { return d.Differs(p, t.Recorded) })
}

// noPolicy says that no policy can be recommended, and whether more memory helps or more time.
func noPolicy(t *Tuned) layout.Cell {
	text := fmt.Sprintf("no policy serves all requests with a slowdown of at most %s: raise --max-slowdown", plain.FormatPercent(t.MaxSlowdown))
	if fewest := slices.MinFunc(t.Outcomes, func(a, b tune.Outcome) int { return cmp.Compare(a.Refused, b.Refused) }).Refused; fewest > 0 {
		text = fmt.Sprintf("each policy refuses requests, %s at least: raise --limit, or see memprof fit for the least card", plain.FormatCount(fewest))
	}
	return layout.Cell{Text: text, Tone: layout.Warned}
}

// torchSection lists the settings of PyTorch's own allocator, and says where one does nearly as well as the
// recommended policy.
func torchSection(t *Tuned) layout.Section {
	s := layout.Section{
		Title:   "PyTorch's own allocator",
		Columns: []layout.Column{layout.Words("PYTORCH_CUDA_ALLOC_CONF"), layout.Numbers("peak R"), layout.Words("by placement of segments"), layout.Numbers("slowdown")},
	}
	for _, o := range t.Torch {
		setting, peak, band := o.Setting, plain.FormatSize(o.Reserved), plain.Absent
		if setting == "" {
			setting = "(not set)"
		}
		if o.Refused > 0 {
			peak = failedText(o.Refused)
		}
		if o.Least != o.Greatest {
			band = plain.FormatSize(o.Least) + " to " + plain.FormatSize(o.Greatest)
		}
		slowdown := plain.Absent
		if t.Outcomes[0].Duration > 0 {
			slowdown = strconv.FormatFloat(1+t.torchSlowdown(&o), 'f', 3, 64) + "x"
		}
		s.Rows = append(s.Rows, layout.Row(setting, peak, band, slowdown))
	}
	if setting := t.torchAdvice(); setting != "" {
		s.After = []layout.Cell{adviceCell(setting)}
	}
	return s
}

// torchAdvice is the setting of PyTorch's own allocator that does nearly as well as the recommended policy, or better;
// "" if there is none.
func (t *Tuned) torchAdvice() string {
	const near = 1.02 // of the recommended policy's peak
	best, ok := t.BestTorch()
	if ours := t.Recommend(t.MaxSlowdown); ok && (ours < 0 || float64(best.Reserved) <= near*float64(t.Outcomes[ours].PeakR)) {
		return best.Setting
	}
	return ""
}

func adviceCell(setting string) layout.Cell {
	return layout.Cell{Text: "within 2 % of memprof's best, without memprof: PYTORCH_CUDA_ALLOC_CONF=" + setting, Tone: layout.Strong}
}

func tuneSection(t *Tuned) layout.Section {
	first := &t.Outcomes[0]
	s := layout.Section{
		Title: "Policies for " + plain.Shorten(t.Process, 60),
		Before: layout.Note(fmt.Sprintf("%s, replayed under each policy; at most %s requested at once; %s",
			plain.Counted(t.Allocs, "request"), plain.FormatSize(first.PeakT), tunedSteps(first))),
	}
	s.Columns = append(s.Columns, layout.Numbers("#"))
	for _, d := range tunedDimensions() {
		s.Columns = append(s.Columns, layout.Words(d.Key))
	}
	s.Columns = append(s.Columns, layout.Numbers("peak R"), layout.Numbers("later R"), layout.Numbers("first idle"), layout.Numbers("later idle"),
		layout.Numbers("remaps"), layout.Numbers("waits"), layout.Numbers("calls"), layout.Numbers("cost"), layout.Numbers("slowdown"))
	best := t.Recommend(t.MaxSlowdown)
	for i := range t.Outcomes {
		o := &t.Outcomes[i]
		cells := tuneRow(i+1, o)
		if t.isRecorded(&o.Policy) {
			s.Before = append(s.Before, layout.Note(fmt.Sprintf("%d is the recorded policy", i+1))...)
		}
		switch {
		case i == best:
			cells = layout.Toned(layout.Strong, cells)
		case o.Refused > 0:
			cells = layout.Toned(layout.Failed, cells)
		}
		s.Rows = append(s.Rows, cells)
	}
	s.After = tuneNotes(t, best)
	return s
}

// tunedSteps says how many iterations there are, and how long a later one lasts.
func tunedSteps(o *tune.Outcome) string {
	if text := unmarked(o); text != "" {
		return text
	}
	return fmt.Sprintf("%s, later ones last %s", plain.Counted(o.Iterations, "iteration"), plain.FormatDuration(o.Duration.Nanoseconds()))
}

// unmarked says what a replay without iterations leaves out; "" with iterations.
func unmarked(o *tune.Outcome) string {
	if o.Iterations > 0 {
		return ""
	}
	return "no iterations are marked: \"later\" is the end, and policies that trim by iteration or plan do nothing"
}

// failedText takes the place of the peak of a replay that refused requests.
func failedText(requests int64) string { return plain.FormatCount(requests) + " failed" }

// tuneRow begins with the number of the policy, which identifies the row if the table is divided.
func tuneRow(number int, o *tune.Outcome) []layout.Cell {
	first, later := plain.Absent, plain.Absent
	if o.Iterations > 0 {
		first = plain.FormatPercent(o.FirstIdle)
	}
	if o.Iterations > 1 {
		later = plain.FormatPercent(o.LaterIdle)
	}
	slowdown := plain.Absent
	if o.Duration > 0 {
		slowdown = strconv.FormatFloat(1+o.Slowdown(), 'f', 3, 64) + "x"
	}
	cells := layout.Row(strconv.Itoa(number))
	for _, d := range tunedDimensions() {
		cells = append(cells, layout.Row(tunedValue(d, &o.Policy))...)
	}
	reserved := len(cells)
	cells = append(cells, layout.Row(plain.FormatSize(o.PeakR), plain.FormatSize(o.SteadyR), first, later,
		tenths(o.Remaps), tenths(o.Waits), tenths(o.Calls.Sum()), plain.FormatDuration(o.Cost.Nanoseconds()), slowdown)...)
	if o.Refused > 0 {
		cells[reserved].Text = failedText(o.Refused)
	}
	return cells
}

// tunedDimensions are the dimensions that have a column.
func tunedDimensions() []*bfc.Dimension {
	var out []*bfc.Dimension
	for _, d := range bfc.Dimensions {
		if d.Tune != nil {
			out = append(out, d)
		}
	}
	return out
}

// tunedValue is a value as `memprof record` takes it; "–" for a size that is none.
func tunedValue(d *bfc.Dimension, p *bfc.Policy) string {
	if v := d.Value(p); v.Amount == 0 && d.Choices[v.Choice].Zero {
		return plain.Absent
	}
	return d.Text(p, PolicyUnits)
}

// tenths is a mean count with one decimal, or none if that is 0.
func tenths(n float64) string {
	text := strconv.FormatFloat(n, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

func tuneNotes(t *Tuned, best int) []layout.Cell {
	c := &t.Costs
	notes := layout.Row(
		"R: reserved; idle: 1 − provided / reserved (lower is better); first, later: iterations",
		"per later iteration: remaps, address ranges mapped again for a request; waits, requests that wait for the device;",
		"calls, driver calls that requests wait for, one for each handle; cost, their time; slowdown, predicted / recorded iteration time (lower is better)")
	notes = append(notes, layout.Note(fmt.Sprintf("time of driver calls for a handle of %s: create %s, map %s, set access %s, unmap %s, release %s",
		plain.FormatSize(int64(c.Handle)), short(c.Create), short(c.Map), short(c.Access), short(c.Unmap), short(c.Release)))...)
	if t.LeftOut > 0 {
		notes = append(notes, layout.Cell{Text: plain.Counted(t.LeftOut, "arena") + " of graph memory left out", Tone: layout.Faint})
	}
	if best < 0 {
		return append(notes, noPolicy(t))
	}
	return append(notes, layout.Cell{Text: "recommended: memprof record " + PolicyFlags(t.Outcomes[best].Policy), Tone: layout.Strong})
}

func short(d time.Duration) string { return plain.FormatDuration(d.Nanoseconds()) }
