package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/resumeplan"
)

// Rows of the tables of stages and of memory outside of regions.
const stagesShown, outsideShown = 24, 12

// stageSections list the stages of a cycle and what each held that it did not need.
func stageSections(sleep *analysis.Sleep) []section {
	if len(sleep.Stages) == 0 {
		return nil
	}
	s := section{
		title: "Stages",
		columns: []column{
			words("stage"), numbers("visits"), numbers("took"), numbers("peak"), numbers("outside tags"), numbers("free there"), numbers("needed"), numbers("not needed"),
		},
	}
	var untold []string
	for i := range sleep.Stages {
		s.rows = append(s.rows, stageRow(sleep, i))
		if vain := inVain(sleep, i); vain != "" && len(s.after) < stagesShown {
			s.after = append(s.after, cell{fmt.Sprintf("awake in %s in vain: %s", shorten(sleep.Cycle.Stages[i].Name, 20), shorten(vain, 60)), warned})
		}
		if !sleep.Stages[i].Told {
			untold = append(untold, shorten(sleep.Cycle.Stages[i].Name, 24))
		}
	}
	s.elide(stagesShown, 4)
	s.before = note("outermost phases of the job, from the first one that came again")
	if !sleep.Phases {
		s.before = note("the job has no phases of its own: stretches between transitions in which the same tags were awake")
	}
	if slices.ContainsFunc(sleep.Stages, func(use analysis.StageUse) bool { return use.Free > 0 }) {
		s.after = append(s.after, note("free there: outside of tags and in no chunk all the while; an emptied cache gives it back")...)
	}
	if len(untold) > 0 {
		s.after = append(s.after, row(
			"not told what it uses: "+shorten(strings.Join(untold, ", "), 70),
			"what was awake at every visit counts as needed there, as no recording sees what kernels read;",
			"memprof.phase(name, uses=[tags]) tells it",
		)...)
	}
	return []section{s}
}

func stageRow(sleep *analysis.Sleep, at int) []cell {
	stage, use := &sleep.Cycle.Stages[at], &sleep.Stages[at]
	var needed int64
	for t, size := range stage.Sizes {
		if stage.Needs[t] {
			needed += max(size, 0)
		}
	}
	vain := sleep.Cycle.Unneeded(at)
	line := row(
		shorten(stage.Name, 32), formatCount(use.Visits), FormatDuration(use.Duration), FormatSize(use.Peak), FormatSize(stage.Base),
		FormatSize(use.Free), FormatSize(needed), FormatSize(vain),
	)
	if vain > 0 {
		line[7].tone = warned
	}
	return line
}

// inVain lists the tags that were awake in a stage without need.
func inVain(sleep *analysis.Sleep, at int) string {
	var names []string
	stage := &sleep.Cycle.Stages[at]
	for t, size := range stage.Sizes {
		if size > 0 && !stage.Needs[t] {
			names = append(names, shorten(sleep.Cycle.Tags[t].Name, 24)+" "+FormatSize(size))
		}
	}
	return strings.Join(names, ", ")
}

// wakeVariant is a plan with its name.
type wakeVariant struct {
	name, key string // in tables and in JSON
	plan      *resumeplan.Plan
}

func wakeVariants(s *analysis.Sleep) []wakeVariant {
	return []wakeVariant{
		{"as recorded", "recorded", &s.Recorded},
		{"all resident", "resident", &s.NeverPaused},
		{"woken at once", "at_once", &s.Together},
		{"woken in stages", "staged", &s.OnUse},
	}
}

// wakeFit is how a plan fits a card.
type wakeFit struct {
	known, fits bool
	largestKV   int64 // -1 where there is none that fits, or no cache
	fraction    float64
}

// fitOf holds a plan against the card of a device, of which others take a part.
func fitOf(d *analysis.DeviceResult, p *resumeplan.Plan) wakeFit {
	card := d.Sleep.Card
	if card <= 0 {
		return wakeFit{largestKV: -1}
	}
	room := card - besideOf(d)
	if d.Books != nil && d.Books.Peak.Unknown.Has(analysis.AllOverhead) { // less is left than that
		return wakeFit{largestKV: -1}
	}
	fit := wakeFit{known: true, fits: p.Peak <= room, largestKV: -1}
	if kv, ok := p.LargestKV(room); ok {
		fit.largestKV, fit.fraction = kv, ratio(kv, card)
	}
	return fit
}

// besideOf is what the process has on the card beside its arenas: what was measured, or what
// libraries were seen to take.
func besideOf(d *analysis.DeviceResult) int64 {
	if d.Books != nil {
		return d.Books.Peak.Other() + d.Books.Peak.Overhead()
	}
	return d.External.Peak
}

// planSections set the ways to run the cycle side by side.
func planSections(d *analysis.DeviceResult) []section {
	sleep := d.Sleep
	if len(sleep.Stages) == 0 {
		return nil
	}
	s := section{
		title:   "Wake plan",
		columns: []column{words("order"), numbers("peak"), words("in"), numbers("copied a cycle"), words("fits"), numbers("largest KV"), numbers("of the card")},
	}
	for _, v := range wakeVariants(sleep) {
		s.rows = append(s.rows, planRow(d, v))
	}
	if sleep.Card > 0 {
		s.before = note(fmt.Sprintf("card of %s, of which %s are used beside arenas", FormatSize(sleep.Card), FormatSize(besideOf(d))))
	}
	s.after = append(row("largest KV: of the cache, with which the order would fit the card", "a cycle in stages; what has room stays awake:"), orderNotes(&sleep.Cycle, &sleep.OnUse)...)
	if saved := sleep.Recorded.Peak - sleep.OnUse.Peak; saved > 0 {
		s.after = append(s.after, cell{fmt.Sprintf("as recorded the cycle takes %s more than its stages need", FormatSize(saved)), warned})
	}
	return []section{s}
}

func planRow(d *analysis.DeviceResult, v wakeVariant) []cell {
	where, fits, largest, fraction := "a switch", absent, absent, absent
	if v.plan.PeakStage >= 0 {
		where = shorten(d.Sleep.Cycle.Stages[v.plan.PeakStage].Name, 24)
	}
	fit := fitOf(d, v.plan)
	if fit.known {
		fits = map[bool]string{true: "yes", false: "no"}[fit.fits]
	}
	if fit.largestKV >= 0 {
		largest, fraction = FormatSize(fit.largestKV), FormatPercent(fit.fraction)
	}
	line := row(v.name, FormatSize(v.plan.Peak), where, FormatSize(v.plan.Copied), fits, largest, fraction)
	if fit.known && !fit.fits {
		line[4].tone = failed
	}
	return line
}

// orderNotes say what a plan does before each stage.
func orderNotes(c *resumeplan.Cycle, p *resumeplan.Plan) []cell {
	var lines []cell
	for _, step := range p.Steps {
		switch {
		case step.Pause != nil:
			lines = append(lines, cell{text: "  pause " + tagNames(c, step.Pause)})
		case step.Resume != nil:
			lines = append(lines, cell{text: "  resume " + tagNames(c, step.Resume)})
		default:
			lines = append(lines, cell{text: "  · " + shorten(c.Stages[step.Stage].Name, 24)})
		}
	}
	return lines
}

func tagNames(c *resumeplan.Cycle, tags []int) string {
	names := make([]string, len(tags))
	for i, t := range tags {
		names[i] = shorten(c.Tags[t].Name, 24)
	}
	return shorten(strings.Join(names, ", "), 80)
}

// outsideSections say what no region holds while others sleep.
func outsideSections(sleep *analysis.Sleep) []section {
	out := &sleep.Outside
	if out.Bytes == 0 {
		return nil
	}
	s := section{
		title:   "Outside every region",
		before:  note(fmt.Sprintf("%s in %s stayed awake at the pause at %s, of all pauses the most", FormatSize(out.Bytes), plural(out.Blocks, "block"), FormatDuration(out.Time))),
		columns: []column{numbers("memory"), numbers("blocks"), words("category"), words("allocated in"), words("by")},
	}
	mixed := false
	for _, g := range out.Groups {
		line := row(FormatSize(g.Bytes), formatCount(g.Blocks), orDash(g.Category), phaseText(g.Phase), outsideHolder(&g))
		if mixed = mixed || g.Mixed; g.Mixed {
			line = toned(warned, line)
			line[3].text += " *"
		}
		s.rows = append(s.rows, line)
	}
	s.elide(outsideShown, 0)
	if out.Rest > 0 {
		s.rows = append(s.rows, toned(faint, row(FormatSize(out.Rest), "", "", "", "the rest")))
	}
	if mixed {
		s.after = note("*: the same phase allocated inside regions too")
	}
	for _, stray := range sleep.Strays {
		s.after = append(s.after, strayText(&stray)...)
	}
	return []section{s}
}

func orDash(text string) string {
	if text == "" {
		return absent
	}
	return shorten(text, 24)
}

func outsideHolder(g *analysis.OutsideGroup) string {
	switch {
	case g.Owner != "":
		return shorten(g.Owner, 48)
	case len(g.Frames) > 0:
		return shorten(g.Frames[0], 48)
	}
	return absent
}

func strayText(s *analysis.Stray) []cell {
	text := fmt.Sprintf("%s labelled %s (%s) lie outside every region, the tag %s has %s of them",
		FormatSize(s.Bytes), s.Category, plural(s.Blocks, "block"), shorten(s.Tag, 20), FormatSize(s.Inside))
	cells := []cell{{text, warned}}
	if len(s.Owners) > 0 {
		cells = append(cells, cell{"  held by " + shorten(strings.Join(s.Owners, ", "), 80), warned})
	}
	return cells
}
