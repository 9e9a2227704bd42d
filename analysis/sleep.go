package analysis

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/resumeplan"
	"github.com/memprof/memprof/trace"
)

// Sleep is what the tags of a device did: memory that a job paused and resumed, or could.
//
// A trace tells when a tag was awake, not whether anything read or wrote it: kernels run
// unseen. What a stage needs is told by its phase (uses=), or else taken from what was there:
// a tag that slept through one visit of a stage is not needed in it, every other one that was
// awake may be.
type Sleep struct {
	// Cycle is the stages that came again and what came between, or all if none did. Its sizes
	// are the most of all visits, each by itself: a stage may never have had all of them at once,
	// so that plans err on the side of more.
	Cycle  resumeplan.Cycle
	Stages []StageUse // of the cycle, in the same order
	// Phases says that stages are the outermost phases of the job's own. Where there are
	// none, they are the stretches between transitions in which the same tags were awake.
	Phases bool
	// Recorded is the cycle as it was run: its Peak is what was measured from the start of
	// the first stage on, switches included, and its PeakStage -1 if that was in a switch.
	// It has no Steps.
	Recorded                     resumeplan.Plan
	NeverPaused, Together, OnUse resumeplan.Plan
	Series                       []Residency // at most MaxPoints
	// Card is the memory of the GPU that plans are held against, in bytes; 0 where it is not
	// known. It is filled in by who has the run's description.
	Card    int64
	Outside Outside
	Strays  []Stray
}

// StageUse is a stage of a cycle as it was recorded.
type StageUse struct {
	Visits   int64
	Duration int64 // ns, of all visits
	Peak     int64 // greatest R
	// Free is what was mapped outside of tags and free during a whole visit, of all visits
	// the most: a cache that could have been emptied.
	Free int64
	Told bool // what is needed was told
}

// KV says whether a tag of the cycle is a cache of keys and values.
func (s *Sleep) KV() bool {
	return slices.ContainsFunc(s.Cycle.Tags, func(t resumeplan.Tag) bool { return t.KV })
}

// furtherTags stands for all tags beyond maxTags.
const (
	furtherTags = "(further tags)"
	maxTags     = 32
)

// noTag is the tag of arenas outside every region.
const noTag = -1

// sleeper follows the tags of one device.
type sleeper struct {
	tags    []resumeplan.Tag
	awake   []int64 // mapped, by tag
	away    []int64 // paused, by tag
	base    int64   // mapped outside of tags
	free    int64   // of that, in no chunk
	inPhase [attribution.MaxPhases]bool
	stages  stageSet // by phase
	spans   stageSet // by who is awake
	longest int64    // transition, ns
	course  residencies
	outside Outside
	strays  []Stray
}

// tagOf is the tag of an arena's options, which the device follows from then on.
func (a *analyzer) tagOf(d *device, options map[string]string) int {
	name := options["tag"]
	if name == "" {
		return noTag
	}
	if d.sleep == nil {
		d.sleep = &sleeper{course: residencies{limit: a.opt.MaxPoints}}
		for _, ar := range a.arenas {
			if ar.device == d {
				d.sleep.settled(ar)
			}
		}
		a.enterStage(d, a.lastTime)
	}
	return d.sleep.tag(name)
}

func (s *sleeper) tag(name string) int {
	if len(s.tags) == maxTags-1 {
		name = furtherTags
	}
	for i := range s.tags {
		if s.tags[i].Name == name || s.tags[i].Name == furtherTags {
			return i
		}
	}
	s.tags = append(s.tags, resumeplan.Tag{Name: name, KV: strings.Contains(strings.ToLower(name), "kv")})
	s.awake, s.away = append(s.awake, 0), append(s.away, 0)
	return len(s.tags) - 1
}

// residency takes note that something of an arena was mapped, unmapped, paused or resumed.
func (a *analyzer) residency(ar *arena, time int64) {
	d := ar.device
	s := d.sleep
	if s == nil {
		return
	}
	s.moved(ar)
	s.base = d.r
	for _, bytes := range s.awake {
		s.base -= bytes
	}
	for t := range s.tags {
		s.tags[t].Bytes = max(s.tags[t].Bytes, s.awake[t])
	}
	s.stages.note(s)
	s.spans.note(s)
	if !a.opening {
		s.course.add(time, s.base, s.awake)
	}
}

// moved takes what an arena has mapped, or would have if it were awake, for its tag.
func (s *sleeper) moved(ar *arena) {
	if ar.tag == noTag {
		return
	}
	s.awake[ar.tag] -= ar.awakeBefore
	s.away[ar.tag] -= ar.awayBefore
	ar.awakeBefore, ar.awayBefore = ar.r, 0
	if ar.paused() {
		ar.awakeBefore, ar.awayBefore = 0, ar.r
	}
	s.awake[ar.tag] += ar.awakeBefore
	s.away[ar.tag] += ar.awayBefore
}

// settled takes what an arena outside of tags has free after an event.
func (s *sleeper) settled(ar *arena) {
	if ar.tag != noTag {
		return
	}
	free := ar.r - ar.c - ar.pending
	s.free += free - ar.freeBefore
	ar.freeBefore = free
	s.stages.leastFree(s.free)
	s.spans.leastFree(s.free)
}

// mappedNow is R, and what keys and values have of it.
func (s *sleeper) mappedNow() (r, kv int64) {
	r = s.base
	for t, bytes := range s.awake {
		r += bytes
		if s.tags[t].KV {
			kv += bytes
		}
	}
	return r, kv
}

// slept is told of a pause or resume that came about, after it.
func (a *analyzer) slept(ar *arena, e *trace.Event) {
	d := ar.device
	s := d.sleep
	if s == nil || ar.tag == noTag {
		return
	}
	if copied := e.CopiedBytes(); copied > 0 {
		s.tags[ar.tag].Copied = true
		s.spans.addCopied(copied)
		s.stages.addCopied(copied)
	}
	took := e.PauseDuration().Nanoseconds()
	s.longest = max(s.longest, took)
	s.endSpan(e.Time - took)
	a.residency(ar, e.Time)
	s.spans.enter("", nil, e.Time, s)
	if e.Kind == trace.KindPause && !a.opening {
		a.lookOutside(d, e)
	}
}

// finishSleep closes the books of the tags.
func (a *analyzer) finishSleep(d *device) {
	s := d.sleep
	if s == nil {
		return
	}
	s.stages.leave(a.lastTime, s)
	s.endSpan(a.lastTime)
	set, phases := &s.stages, true
	if len(set.stages) < 2 {
		set, phases = &s.spans, false
	}
	d.Sleep = &Sleep{Phases: phases, Series: s.course.points, Outside: s.outside, Strays: s.strays}
	kept := set.kept()
	d.Sleep.Cycle = resumeplan.Cycle{Tags: s.tags}
	for _, st := range kept {
		d.Sleep.Cycle.Stages = append(d.Sleep.Cycle.Stages, st.planned(s.tags))
		d.Sleep.Stages = append(d.Sleep.Stages, StageUse{Visits: st.visits, Duration: st.duration, Peak: st.peak, Free: st.free, Told: st.told})
	}
	if len(kept) == 0 {
		return
	}
	c := &d.Sleep.Cycle
	d.Sleep.NeverPaused, d.Sleep.Together, d.Sleep.OnUse = c.NeverPaused(), c.Together(), c.OnUse()
	d.Sleep.Recorded = set.recorded(c, kept)
}
