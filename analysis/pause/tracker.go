// Package pause follows the tagged memory of a device: what of it was resident when, what each stage of
// the job needed, what the pauses left, and in which order the job should pause and resume.
//
// A trace has no event of kernels, so it does not say whether anything reads or writes a tag. What a
// stage needs is what its phase says (uses=). Without that, a tag that was paused during one visit of
// a stage is not needed in it, and every other tag that was resident counts as needed.
//
// The package knows no ledger: its [Tracker] takes numbers of arenas. The order is that of a
// [Plan].
package pause

import (
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
)

// Result is what the tags of a device did: memory that a job paused and resumed, or could have.
type Result struct {
	// Cycle has the stages that came again and those between them, or all stages if none came again.
	// Its sizes are the greatest of all visits, each by itself: a stage may never have had all of
	// them at once, so plans may overestimate.
	Cycle  Cycle
	Stages []StageUse // of the cycle, in the same order
	// Phases: the stages are the outermost phases of the job's own. Otherwise they are the stretches
	// between transitions in which the same tags were resident.
	Phases bool
	// Recorded is the cycle as it ran. Its Peak was measured from the start of the first stage on,
	// transitions included; its PeakStage is -1 if that was in a transition. It has no Steps.
	Recorded                     Plan
	NeverPaused, Together, OnUse Plan
	Series                       []Residency // at most Options.MaxPoints
	// Card is the memory of the GPU that plans must fit into, in bytes; 0 where it is not known. The
	// caller who has the run's description fills it in.
	Card     int64
	Untagged Untagged
}

// StageUse is a stage of a cycle as it was recorded.
type StageUse struct {
	Visits   int64
	Duration int64 // ns, of all visits
	Peak     int64 // greatest R, bytes
	// Free is what was mapped, untagged and free during a whole visit, the most of all visits: a
	// cache that could have been emptied. Bytes.
	Free  int64
	Given bool // the phase says what the stage needs
}

// Transition is a pause or a resume of one arena of a tag.
type Transition struct {
	Seq      int64  `json:"seq"`
	Time     int64  `json:"time_ns"`
	Duration int64  `json:"duration_ns"` // of the whole call, which may pause several arenas
	Arena    int32  `json:"arena"`
	Tag      string `json:"tag"`
	Resume   bool   `json:"resume"`
	Bytes    int64  `json:"bytes"`    // mapped bytes that went or came
	Copied   int64  `json:"copied"`   // bytes of blocks copied to or from the host
	Reserved int64  `json:"reserved"` // R of the device afterwards
	Failed   string `json:"failed"`   // why nothing changed; "" if it did
}

const (
	furtherTags = "(further tags)" // stands for all tags beyond maxTags
	maxTags     = 32
)

// noTag is the tag of untagged arenas.
const noTag = -1

// Options of a Tracker.
type Options struct {
	MaxPoints int // of Result.Series
	Top       int // groups of Untagged
}

// Tracker follows the tags of one device, from the first tagged arena on.
type Tracker struct {
	opt         Options
	attribution *attribution.Tracker
	tags        []Tag
	resident    []int64 // mapped bytes, by tag
	paused      []int64 // paused bytes, by tag
	base        int64   // untagged mapped bytes
	free        int64   // of these, in no chunk
	inPhase     [attribution.MaxPhases]bool
	stages      stageSet // by phase
	spans       stageSet // by the tags that are resident
	longest     int64    // transition, ns
	course      residencies
	untagged    Untagged
}

// Arena is what the tracker keeps of an arena.
type Arena struct {
	tag              int   // index in Tracker.tags, or noTag
	free             int64 // its part of Tracker.free, bytes
	resident, paused int64 // its parts of its tag's, bytes
}

// Tagged says whether the arena has a tag.
func (a *Arena) Tagged() bool { return a.tag != noTag }

// New is a Tracker of a device without arenas.
func New(opt Options, who *attribution.Tracker) *Tracker {
	return &Tracker{opt: opt, attribution: who, course: residencies{limit: opt.MaxPoints}}
}

// Arena adds an arena with a tag, "" for none.
func (t *Tracker) Arena(tag string) *Arena {
	if tag == "" {
		return &Arena{tag: noTag}
	}
	return &Arena{tag: t.tag(tag)}
}

func (t *Tracker) tag(name string) int {
	if len(t.tags) == maxTags-1 {
		name = furtherTags
	}
	for i := range t.tags {
		if t.tags[i].Name == name || t.tags[i].Name == furtherTags {
			return i
		}
	}
	t.tags = append(t.tags, Tag{Name: name, KV: strings.Contains(strings.ToLower(name), "kv")})
	t.resident, t.paused = append(t.resident, 0), append(t.paused, 0)
	return len(t.tags) - 1
}

// Allocated takes an allocation in an arena: the phase at hand allocates inside tags too.
func (t *Tracker) Allocated(a *Arena) {
	if a.tag != noTag {
		t.inPhase[t.attribution.Phases.Current] = true
	}
}

// Mapped takes the bytes that an arena has mapped, or would have if it were not paused, after these
// changed; r is R of the device. counts: the event is no opening row.
func (t *Tracker) Mapped(a *Arena, bytes int64, paused bool, r, time int64, counts bool) {
	if a.tag != noTag {
		resident, away := bytes, int64(0)
		if paused {
			resident, away = 0, bytes
		}
		t.resident[a.tag] += resident - a.resident
		t.paused[a.tag] += away - a.paused
		a.resident, a.paused = resident, away
	}
	t.base = r
	for _, bytes := range t.resident {
		t.base -= bytes
	}
	for i := range t.tags {
		t.tags[i].Bytes = max(t.tags[i].Bytes, t.resident[i])
	}
	t.stages.note(t)
	t.spans.note(t)
	if counts {
		t.course.add(time, t.base, t.resident)
	}
}

// Free takes the bytes that an arena has mapped and free after an event.
func (t *Tracker) Free(a *Arena, bytes int64) {
	if a.tag != noTag {
		return
	}
	t.free += bytes - a.free
	a.free = bytes
	t.stages.leastFree(t.free)
	t.spans.leastFree(t.free)
}

// mapped is R, and the bytes of it that KV caches have.
func (t *Tracker) mapped() (r, kv int64) {
	r = t.base
	for i, bytes := range t.resident {
		r += bytes
		if t.tags[i].KV {
			kv += bytes
		}
	}
	return r, kv
}

// Transition takes a pause or resume of an arena that succeeded. The caller calls it before Mapped, and
// Resumed after.
func (t *Tracker) Transition(a *Arena, of *Transition) {
	if of.Copied > 0 {
		t.tags[a.tag].Copied = true
		t.spans.addCopied(of.Copied)
		t.stages.addCopied(of.Copied)
	}
	t.longest = max(t.longest, of.Duration)
	t.endSpan(of.Time - of.Duration)
}

// Resumed begins the stretch after a transition at a time.
func (t *Tracker) Resumed(time int64) { t.spans.enter("", nil, time, t) }

// Phase takes a change of the open phases: a stage is the outermost one.
func (t *Tracker) Phase(time int64) {
	name, uses := t.attribution.Outermost()
	if attribution.IsTraining(name) { // a part of an iteration; memory is paused between longer stages
		name = ""
	}
	if name == "" || t.stages.now == nil || t.stages.now.name != name {
		t.stages.leave(time, t)
		if name != "" {
			t.stages.enter(name, uses, time, t)
		}
	}
}

// endSpan ends the stretch before a transition that started at a time. One that was shorter than the
// longest transition is a part of a transition of several calls: it was no stage.
func (t *Tracker) endSpan(time int64) {
	if ss := &t.spans; ss.now != nil && time-ss.since >= max(t.longest, 1) {
		ss.now.name = t.residentNames()
	}
	t.spans.leave(time, t)
}

// residentNames names a stage without a phase.
func (t *Tracker) residentNames() string {
	var names []string
	for i, bytes := range t.resident {
		if bytes > 0 {
			names = append(names, t.tags[i].Name)
		}
	}
	if names == nil {
		return "all paused"
	}
	return strings.Join(names, " + ") + " resident"
}

// Finish returns what the tags did up to the time of the last event.
func (t *Tracker) Finish(time int64) *Result {
	t.stages.leave(time, t)
	t.endSpan(time)
	set, phases := &t.stages, true
	if len(set.stages) < 2 {
		set, phases = &t.spans, false
	}
	r := &Result{Phases: phases, Series: t.course.points, Untagged: t.untagged}
	kept := set.kept()
	r.Cycle = Cycle{Tags: t.tags}
	for _, st := range kept {
		r.Cycle.Stages = append(r.Cycle.Stages, st.planned(t.tags))
		r.Stages = append(r.Stages, StageUse{Visits: st.visits, Duration: st.duration, Peak: st.peak, Free: st.free, Given: st.given})
	}
	if len(kept) == 0 {
		return r
	}
	c := &r.Cycle
	r.NeverPaused, r.Together, r.OnUse = c.NeverPaused(), c.Together(), c.OnUse()
	r.Recorded = set.recorded(c, kept)
	return r
}
