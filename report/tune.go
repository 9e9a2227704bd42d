package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// Tuned is the memory that a recorded job needs under several policies.
type Tuned struct {
	*tune.Result
	Process string
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
	return (o.Maps*float64(tune.CostCreate+tune.CostMap+tune.CostAccess) + o.Unmaps*float64(tune.CostUnmap+tune.CostRelease)) / float64(lasts)
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

// TuneText writes the recorded policy and those that were replayed for a terminal, the recommended one in bold. It
// fails only if w does.
func TuneText(w io.Writer, t *Tuned, o layout.Options) error {
	return layout.WriteScreen(w, o, tuneSection(t))
}

// TuneMarkdown writes what TuneText does as Markdown. It fails only if w does.
func TuneMarkdown(w io.Writer, t *Tuned) error {
	return layout.WriteMarkdown(w, tuneSection(t))
}

// tuneSection compares the recorded policy with those that were replayed, and with PyTorch's own allocator.
func tuneSection(t *Tuned) layout.Section {
	first := &t.Outcomes[0]
	s := layout.Section{
		Title:  "Policies for " + plain.Shorten(t.Process, 60),
		Before: layout.Note(fmt.Sprintf("%s replayed, at most %s at once; %s", units.Counted(t.Allocs, "request"), units.FormatSize(first.PeakT), tunedSteps(first))),
		Columns: []layout.Column{layout.Words("policy"), layout.Numbers("peak R"), layout.Numbers("saves"), {Name: "of recorded", Number: true, Implied: true}, {Name: "later R", Number: true, Implied: true},
			layout.Numbers("calls"), layout.Numbers("slowdown"), layout.Words("")},
	}
	base, best := t.baseline(), t.Recommend(t.MaxSlowdown)
	replayed := false
	for _, i := range t.shown() {
		o := &t.Outcomes[i]
		mark, tone := "", layout.Plain
		if t.isRecorded(&o.Policy) {
			mark, replayed = "recorded", true
		}
		switch {
		case i == best:
			mark, tone = strings.TrimPrefix(mark+", recommended", ", "), layout.Strong
		case o.Refused > 0:
			tone = layout.Failed
		}
		s.Rows = append(s.Rows, layout.Toned(tone, append(append(savedCells(shortFlags(&o.Policy), o.PeakR, o.Refused, base), laterCells(o)...), layout.Row(mark)...)))
	}
	if t.RecordedR > 0 && !replayed {
		name := "PyTorch's own"
		if t.Recorded != nil {
			name = shortFlags(t.Recorded)
		}
		s.Rows = slices.Insert(s.Rows, 0, append(savedCells(name, t.RecordedR, 0, 0), layout.Row(units.Absent, units.Absent, units.Absent, "recorded")...))
	}
	for _, o := range t.torchShown() {
		s.Rows = append(s.Rows, append(savedCells(strings.TrimSuffix("PyTorch's own, "+o.Setting, ", "), o.Reserved, o.Refused, base),
			layout.Row(units.Absent, units.Absent, t.torchSlowdownText(&o), "")...))
	}
	s.After = tuneNotes(t, best)
	return s
}

// shortFlags are the flags of a policy as rows have them.
func shortFlags(p *bfc.Policy) string { return strings.TrimPrefix(PolicyFlags(*p), "--preset ") }

// savedCells are the name of a row, what it reserves, and what that saves of base, unless that is 0.
func savedCells(name string, reserved, refused, base int64) []layout.Cell {
	peak, saves, share := units.FormatSize(reserved), units.Absent, units.Absent
	switch {
	case refused > 0:
		peak = units.FormatCount(refused) + " failed"
	case base > 0:
		saves, share = strings.TrimPrefix(changeText(analysis.Bytes, float64(base-reserved)), "+"), units.FormatPercent(units.Ratio(base-reserved, base))
	}
	return layout.Row(name, peak, saves, share)
}

// laterCells are what a replay says of later iterations.
func laterCells(o *tune.Outcome) []layout.Cell {
	slowdown := units.Absent
	if o.Duration > 0 {
		slowdown = slowdownText(o.Slowdown())
	}
	return layout.Row(units.FormatSize(o.SteadyR), tenths(o.Calls.Sum()), slowdown)
}

func slowdownText(share float64) string { return strconv.FormatFloat(1+share, 'f', 3, 64) + "x" }

func (t *Tuned) torchSlowdownText(o *recording.TorchOutcome) string {
	if t.Outcomes[0].Duration <= 0 {
		return units.Absent
	}
	return slowdownText(t.torchSlowdown(o))
}

// shown are the outcomes in the order of the table: the recorded policy, then those that reserve least.
func (t *Tuned) shown() []int {
	var shown []int
	for i := range t.Outcomes {
		shown = append(shown, i)
	}
	key := func(i int) (int, int64) {
		o := &t.Outcomes[i]
		switch {
		case t.isRecorded(&o.Policy):
			return 0, 0
		case o.Refused > 0:
			return 2, o.Refused
		}
		return 1, o.PeakR
	}
	slices.SortStableFunc(shown, func(a, b int) int {
		class, size := key(a)
		otherClass, otherSize := key(b)
		return cmp.Or(cmp.Compare(class, otherClass), cmp.Compare(size, otherSize))
	})
	return shown
}

// torchShown are PyTorch's own allocator as it is without a setting, with expandable segments, and with its best setting.
func (t *Tuned) torchShown() (shown []recording.TorchOutcome) {
	best, ok := t.BestTorch()
	for _, o := range t.Torch {
		if o.Setting == "" || o.Setting == "expandable_segments:True" || ok && o.Setting == best.Setting {
			shown = append(shown, o)
		}
	}
	return shown
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
	return t.Recorded != nil && p.Preset == t.Recorded.Preset && p.Handle == t.Recorded.Handle && p.Trim == t.Recorded.Trim
}

// noPolicy says that no policy can be recommended, and whether more memory helps or more time.
func noPolicy(t *Tuned) layout.Cell {
	text := fmt.Sprintf("no policy serves all requests with a slowdown of at most %s: raise --max-slowdown", units.FormatPercent(t.MaxSlowdown))
	if fewest := slices.MinFunc(t.Outcomes, func(a, b tune.Outcome) int { return cmp.Compare(a.Refused, b.Refused) }).Refused; fewest > 0 {
		text = fmt.Sprintf("each policy refuses requests, %s at least: raise --limit, or see memprof fit for the least card", units.FormatCount(fewest))
	}
	return layout.Cell{Text: text, Tone: layout.Warned}
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

// tunedSteps says how many iterations there are, and how long a later one lasts.
func tunedSteps(o *tune.Outcome) string {
	switch {
	case o.Iterations == 0:
		return "no iterations are marked: \"later\" is the end, and a trim by iteration does nothing"
	case o.Duration <= 0:
		return units.Counted(o.Iterations, "iteration")
	}
	return fmt.Sprintf("%s, later ones last %s", units.Counted(o.Iterations, "iteration"), units.FormatDuration(o.Duration.Nanoseconds()))
}

// tenths is a mean count with one decimal, or none if that is 0.
func tenths(n float64) string {
	text := strconv.FormatFloat(n, 'f', 1, 64)
	return strings.TrimSuffix(text, ".0")
}

func tuneNotes(t *Tuned, best int) []layout.Cell {
	notes := layout.Row("R: reserved, replayed; saves: of the recorded policy's; later: iterations from 4 on; calls: of the driver, per later iteration")
	if t.LeftOut > 0 {
		notes = append(notes, layout.Note(units.Counted(t.LeftOut, "arena")+" of graph memory left out")...)
	}
	if best < 0 {
		notes = append(notes, noPolicy(t))
	} else {
		notes = append(notes, layout.Cell{Text: "recommended: memprof record " + PolicyFlags(t.Outcomes[best].Policy), Tone: layout.Strong})
	}
	if setting := t.torchAdvice(); setting != "" {
		notes = append(notes, adviceCell(setting))
	}
	return notes
}
