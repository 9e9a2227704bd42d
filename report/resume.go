package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// Rows of the tables of stages and of untagged memory.
const stagesShown, untaggedShown = 24, 12

// resumeSections are the stages of a job that pauses memory, the orders in which it could resume tags, and
// untagged memory.
func resumeSections(d *analysis.DeviceResult) []layout.Section {
	if d.Pauses == nil {
		return nil
	}
	sections := append(stageSections(d.Pauses), planSections(d)...)
	return append(sections, untaggedSections(d.Pauses)...)
}

// stageSections list the stages, and the memory that was resident in a stage without being needed.
func stageSections(pauses *pause.Result) []layout.Section {
	if len(pauses.Stages) == 0 {
		return nil
	}
	s := layout.Section{
		Title: "Stages",
		Columns: []layout.Column{
			layout.Words("stage"), layout.Numbers("visits"), layout.Numbers("took"), layout.Numbers("peak"), layout.Numbers("untagged"), layout.Numbers("untagged free"), layout.Numbers("needed"), layout.Numbers("not needed"),
		},
	}
	var assumed []string
	for i := range pauses.Stages {
		s.Rows = append(s.Rows, stageRow(pauses, i))
		if vain := notNeeded(pauses, i); vain != "" && len(s.After) < stagesShown {
			s.After = append(s.After, layout.Cell{Text: fmt.Sprintf("not needed in %s: %s", plain.Shorten(pauses.Cycle.Stages[i].Name, 20), plain.Shorten(vain, 60)), Tone: layout.Warned})
		}
		if !pauses.Stages[i].Given {
			assumed = append(assumed, plain.Shorten(pauses.Cycle.Stages[i].Name, 24))
		}
	}
	s.Elide(stagesShown, 4)
	s.Before = layout.Note("stages: outermost phases of the job, from the first one that repeats")
	if !pauses.Phases {
		s.Before = layout.Note("stages: times between pauses and resumes in which the same tags were resident, as the job has no phases")
	}
	if slices.ContainsFunc(pauses.Stages, func(use pause.StageUse) bool { return use.Free > 0 }) {
		s.After = append(s.After, layout.Note("untagged free: untagged bytes that were free all the time; torch.cuda.empty_cache() would unmap them")...)
	}
	if len(assumed) > 0 {
		s.After = append(s.After, layout.Row(
			"without uses=: "+plain.Shorten(strings.Join(assumed, ", "), 70),
			"without uses=, a tag resident in all visits counts as needed, since kernels' reads are not recorded:",
			"memprof.phase(name, uses=[tags]) names the tags that a stage needs",
		)...)
	}
	return []layout.Section{s}
}

func stageRow(pauses *pause.Result, at int) []layout.Cell {
	stage, use := &pauses.Cycle.Stages[at], &pauses.Stages[at]
	var needed int64
	for t, size := range stage.Sizes {
		if stage.Needs[t] {
			needed += max(size, 0)
		}
	}
	vain := pauses.Cycle.Unneeded(at)
	line := layout.Row(
		plain.Shorten(stage.Name, 32), plain.FormatCount(use.Visits), plain.FormatDuration(use.Duration), plain.FormatSize(use.Peak), plain.FormatSize(stage.Base),
		plain.FormatSize(use.Free), plain.FormatSize(needed), plain.FormatSize(vain),
	)
	if vain > 0 {
		line[7].Tone = layout.Warned
	}
	return line
}

// notNeeded lists the tags that were resident in a stage and not needed.
func notNeeded(pauses *pause.Result, at int) string {
	var names []string
	stage := &pauses.Cycle.Stages[at]
	for t, size := range stage.Sizes {
		if size > 0 && !stage.Needs[t] {
			names = append(names, plain.Shorten(pauses.Cycle.Tags[t].Name, 24)+" "+plain.FormatSize(size))
		}
	}
	return strings.Join(names, ", ")
}

// resumeVariant is a resume plan with its name.
type resumeVariant struct {
	name, key string // in tables and in JSON
	plan      *pause.Plan
}

func resumeVariants(s *pause.Result) []resumeVariant {
	return []resumeVariant{
		{"as recorded", "recorded", &s.Recorded},
		{"never paused", "resident", &s.NeverPaused},
		{"together", "together", &s.Together},
		{"on use", "on_use", &s.OnUse},
	}
}

// planFit says whether a plan fits into the memory of the GPU.
type planFit struct {
	known, fits bool
	largestKV   int64 // largest KV cache with which it fits, -1 if none does or there is no cache
	fraction    float64
	settings    *pause.Settings // of an engine with the largest KV cache
}

// fitOf compares the peak of a plan with the memory that the GPU has for arenas.
func fitOf(d *analysis.DeviceResult, p *pause.Plan) planFit {
	card := d.Pauses.Card
	if card <= 0 {
		return planFit{largestKV: -1}
	}
	available := card - outsideArenas(d)
	if d.Account != nil && d.Account.Peak.Unknown.Has(accounting.AllOverhead) { // the memory left for arenas is unknown
		return planFit{largestKV: -1}
	}
	fit := planFit{known: true, fits: p.Peak <= available, largestKV: -1}
	if kv, ok := p.LargestKV(available); ok {
		fit.largestKV, fit.fraction = kv, plain.Ratio(kv, card)
		if engine, ok := d.Pauses.Cycle.Engine(); ok {
			settings := engine.Settings(kv, card, outsideArenas(d))
			fit.settings = &settings
		}
	}
	return fit
}

// outsideArenas is what the process uses on the GPU outside of arenas, in bytes: other libraries and driver
// overhead as measured, else what other libraries allocated.
func outsideArenas(d *analysis.DeviceResult) int64 {
	if d.Account != nil {
		return d.Account.Peak.Other() + d.Account.Peak.Overhead()
	}
	return d.OtherLibraries.Peak
}

// planSections compare the orders in which the tags could be resumed.
func planSections(d *analysis.DeviceResult) []layout.Section {
	pauses := d.Pauses
	if len(pauses.Stages) == 0 {
		return nil
	}
	s := layout.Section{
		Title:   "Resume plan",
		Columns: []layout.Column{layout.Words("resume"), layout.Numbers("peak"), layout.Words("peak in"), layout.Numbers("copied per cycle"), layout.Words("fits"), layout.Numbers("largest KV"), layout.Numbers("of the GPU")},
	}
	for _, v := range resumeVariants(pauses) {
		s.Rows = append(s.Rows, planRow(d, v))
	}
	if pauses.Card > 0 {
		s.Before = layout.Note(fmt.Sprintf("GPU memory %s, used outside of arenas %s", plain.FormatSize(pauses.Card), plain.FormatSize(outsideArenas(d))))
	}
	s.After = append(layout.Row("largest KV: the largest KV cache with which the order fits the GPU"), settingsNotes(d)...)
	s.After = append(append(s.After, layout.Note("a cycle, resumed on use; tags for which there is room stay resident:")...), orderNotes(&pauses.Cycle, &pauses.OnUse)...)
	if saved := pauses.Recorded.Peak - pauses.OnUse.Peak; saved > 0 {
		s.After = append(s.After, layout.Cell{Text: fmt.Sprintf("the recorded order needs %s more than resuming on use", plain.FormatSize(saved)), Tone: layout.Warned})
	}
	return []layout.Section{s}
}

// settingsNotes are the options that give an engine the largest KV cache of the recorded order and of the best one.
func settingsNotes(d *analysis.DeviceResult) []layout.Cell {
	var notes []layout.Cell
	for _, v := range resumeVariants(d.Pauses) {
		if fit := fitOf(d, v.plan); fit.settings != nil && (v.key == "recorded" || v.key == "on_use") {
			notes = append(notes, layout.Cell{Text: fmt.Sprintf("  %s: SGLang --mem-fraction-static %.3f, vLLM --gpu-memory-utilization %.3f", v.name, fit.settings.MemFractionStatic, fit.settings.GPUMemoryUtilization)})
		}
	}
	return notes
}

func planRow(d *analysis.DeviceResult, v resumeVariant) []layout.Cell {
	where, fits, largest, fraction := "a transition", plain.Absent, plain.Absent, plain.Absent
	if v.plan.PeakStage >= 0 {
		where = plain.Shorten(d.Pauses.Cycle.Stages[v.plan.PeakStage].Name, 24)
	}
	fit := fitOf(d, v.plan)
	if fit.known {
		fits = map[bool]string{true: "yes", false: "no"}[fit.fits]
	}
	if fit.largestKV >= 0 {
		largest, fraction = plain.FormatSize(fit.largestKV), plain.FormatPercent(fit.fraction)
	}
	line := layout.Row(v.name, plain.FormatSize(v.plan.Peak), where, plain.FormatSize(v.plan.Copied), fits, largest, fraction)
	if fit.known && !fit.fits {
		line[4].Tone = layout.Failed
	}
	return line
}

// orderNotes list the pauses and resumes of a plan before each stage.
func orderNotes(c *pause.Cycle, p *pause.Plan) []layout.Cell {
	var lines []layout.Cell
	for _, step := range p.Steps {
		switch {
		case step.Pause != nil:
			lines = append(lines, layout.Cell{Text: "  pause " + tagNames(c, step.Pause)})
		case step.Resume != nil:
			lines = append(lines, layout.Cell{Text: "  resume " + tagNames(c, step.Resume)})
		default:
			lines = append(lines, layout.Cell{Text: "  · " + plain.Shorten(c.Stages[step.Stage].Name, 24)})
		}
	}
	return lines
}

func tagNames(c *pause.Cycle, tags []int) string {
	names := make([]string, len(tags))
	for i, t := range tags {
		names[i] = plain.Shorten(c.Tags[t].Name, 24)
	}
	return plain.Shorten(strings.Join(names, ", "), 80)
}

// untaggedSections list the untagged memory that stayed mapped during a pause.
func untaggedSections(pauses *pause.Result) []layout.Section {
	out := &pauses.Untagged
	if out.Bytes == 0 {
		return nil
	}
	s := layout.Section{
		Title:   "Untagged memory",
		Before:  layout.Note(fmt.Sprintf("%s in %s stayed mapped at the pause at %s, the most of all pauses", plain.FormatSize(out.Bytes), plain.Counted(out.Blocks, "allocation"), plain.FormatDuration(out.Time))),
		Columns: []layout.Column{layout.Numbers("memory"), layout.Numbers("allocations"), layout.Words("category"), layout.Words("phase"), layout.Words("allocated by")},
	}
	mixed := false
	for _, g := range out.Groups {
		line := layout.Row(plain.FormatSize(g.Bytes), plain.FormatCount(g.Blocks), orDash(g.Category), terms.Phase(g.Phase), untaggedOrigin(&g))
		if mixed = mixed || g.Mixed; g.Mixed {
			line = layout.Toned(layout.Warned, line)
			line[3].Text += " *"
		}
		s.Rows = append(s.Rows, line)
	}
	s.Elide(untaggedShown, 0)
	if out.Rest > 0 {
		s.Rows = append(s.Rows, layout.Toned(layout.Faint, layout.Row(plain.FormatSize(out.Rest), "", "", "", "others")))
	}
	if mixed {
		s.After = layout.Note("*: this phase also allocated inside memprof.region()")
	}
	return []layout.Section{s}
}

func orDash(text string) string {
	if text == "" {
		return plain.Absent
	}
	return plain.Shorten(text, 24)
}

func untaggedOrigin(g *pause.UntaggedGroup) string {
	switch {
	case g.Origin != "":
		return plain.Shorten(g.Origin, 48)
	case len(g.Frames) > 0:
		return plain.Shorten(g.Frames[0], 48)
	}
	return plain.Absent
}

// jsonResumePlans has the stages, the resume plans and the untagged memory. It is there only if memory has tags.
type jsonResumePlans struct {
	// StagesAre says what stages are: "phases" of the job, or times between "transitions".
	StagesAre      string          `json:"stages_are"`
	Tags           []pause.Tag     `json:"tags"`
	Stages         []jsonStage     `json:"stages"`
	Card           *int64          `json:"card"`
	OtherLibraries int64           `json:"other_libraries"`
	Plans          []jsonPlan      `json:"plans"`
	Untagged       jsonUntagged    `json:"untagged"`
	Resident       []jsonResidency `json:"resident"`
}

type jsonStage struct {
	Name       string         `json:"name"`
	Visits     int64          `json:"visits"`
	DurationNS int64          `json:"duration_ns"`
	Peak       int64          `json:"peak"`
	Untagged   int64          `json:"untagged"`
	Free       int64          `json:"untagged_free"`
	UsesGiven  bool           `json:"uses_given"`
	Tags       []jsonStageTag `json:"tags"` // resident or needed ones
	Unneeded   int64          `json:"unneeded"`
}

type jsonStageTag struct {
	Tag    string `json:"tag"`
	Bytes  *int64 `json:"bytes"` // null if it was paused
	Needed bool   `json:"needed"`
}

type jsonPlan struct {
	Name       string     `json:"name"`
	Peak       int64      `json:"peak"`
	Stage      *string    `json:"stage"` // null for a transition
	Copied     int64      `json:"copied"`
	Order      []jsonStep `json:"order"`
	Fits       *bool      `json:"fits"`
	LargestKV  *int64     `json:"largest_kv"`
	KVFraction *float64   `json:"kv_fraction"`
	// Options that give an engine the largest KV cache: SGLang's and vLLM's.
	MemFractionStatic    *float64 `json:"mem_fraction_static"`
	GPUMemoryUtilization *float64 `json:"gpu_memory_utilization"`
}

// jsonStep has one of its fields.
type jsonStep struct {
	Pause  []string `json:"pause,omitempty"`
	Resume []string `json:"resume,omitempty"`
	Stage  string   `json:"stage,omitempty"`
}

type jsonUntagged struct {
	Seq    *int64                `json:"seq"`
	TimeNS *int64                `json:"time_ns"`
	Bytes  int64                 `json:"bytes"`
	Blocks int64                 `json:"blocks"`
	Groups []pause.UntaggedGroup `json:"groups"`
	Rest   int64                 `json:"rest"`
}

// jsonResidency is the memory that was mapped when a span of time had most: of each tag, in the order of
// "tags", and untagged ("outside").
type jsonResidency struct {
	StartNS  int64   `json:"start_ns"`
	EndNS    int64   `json:"end_ns"`
	Untagged int64   `json:"untagged"`
	Tags     []int64 `json:"tags"`
}

func newJSONResumePlans(d *analysis.DeviceResult) *jsonResumePlans {
	s := d.Pauses
	if s == nil {
		return nil
	}
	j := &jsonResumePlans{
		StagesAre: "transitions", Tags: append([]pause.Tag{}, s.Cycle.Tags...), Stages: []jsonStage{}, OtherLibraries: outsideArenas(d), Plans: []jsonPlan{},
		Untagged: newJSONUntagged(&s.Untagged), Resident: []jsonResidency{},
	}
	if s.Phases {
		j.StagesAre = "phases"
	}
	if s.Card > 0 {
		j.Card = &s.Card
	}
	for i := range s.Stages {
		j.Stages = append(j.Stages, newJSONStage(s, i))
	}
	for _, v := range resumeVariants(s) {
		if len(s.Stages) > 0 {
			j.Plans = append(j.Plans, newJSONPlan(d, v))
		}
	}
	for _, r := range s.Series {
		tags := make([]int64, len(s.Cycle.Tags))
		copy(tags, r.At.Tags)
		j.Resident = append(j.Resident, jsonResidency{r.Start, r.End, r.At.Base, tags})
	}
	return j
}

func newJSONStage(s *pause.Result, at int) jsonStage {
	stage, use := &s.Cycle.Stages[at], &s.Stages[at]
	j := jsonStage{
		Name: stage.Name, Visits: use.Visits, DurationNS: use.Duration, Peak: use.Peak, Untagged: stage.Base, Free: use.Free, UsesGiven: use.Given,
		Tags: []jsonStageTag{}, Unneeded: s.Cycle.Unneeded(at),
	}
	for t, size := range stage.Sizes {
		if size != pause.Paused || stage.Needs[t] {
			j.Tags = append(j.Tags, jsonStageTag{s.Cycle.Tags[t].Name, plain.Known(size), stage.Needs[t]})
		}
	}
	return j
}

func newJSONPlan(d *analysis.DeviceResult, v resumeVariant) jsonPlan {
	c := &d.Pauses.Cycle
	j := jsonPlan{Name: v.key, Peak: v.plan.Peak, Copied: v.plan.Copied, Order: []jsonStep{}}
	if v.plan.PeakStage >= 0 {
		j.Stage = &c.Stages[v.plan.PeakStage].Name
	}
	for _, step := range v.plan.Steps {
		switch {
		case step.Pause != nil:
			j.Order = append(j.Order, jsonStep{Pause: plainNames(c, step.Pause)})
		case step.Resume != nil:
			j.Order = append(j.Order, jsonStep{Resume: plainNames(c, step.Resume)})
		default:
			j.Order = append(j.Order, jsonStep{Stage: c.Stages[step.Stage].Name})
		}
	}
	fit := fitOf(d, v.plan)
	if fit.known {
		j.Fits = &fit.fits
	}
	if fit.largestKV >= 0 {
		j.LargestKV, j.KVFraction = &fit.largestKV, &fit.fraction
	}
	if fit.settings != nil {
		j.MemFractionStatic, j.GPUMemoryUtilization = &fit.settings.MemFractionStatic, &fit.settings.GPUMemoryUtilization
	}
	return j
}

func plainNames(c *pause.Cycle, tags []int) []string {
	names := make([]string, len(tags))
	for i, t := range tags {
		names[i] = c.Tags[t].Name
	}
	return names
}

func newJSONUntagged(o *pause.Untagged) jsonUntagged {
	j := jsonUntagged{Bytes: o.Bytes, Blocks: o.Blocks, Groups: append([]pause.UntaggedGroup{}, o.Groups...), Rest: o.Rest}
	if o.Bytes > 0 {
		j.Seq, j.TimeNS = &o.Seq, &o.Time
	}
	return j
}
