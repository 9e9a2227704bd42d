package analysis

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/resumeplan"
)

// maxStages bounds how many stages are told apart; further ones are in none.
const maxStages = 64

// stage is the memory of all visits of a stretch of the job.
type stage struct {
	name       string
	told       bool
	uses       []string // tags that the caller said it needs
	base, peak int64    // the most outside of tags, and of all
	free       int64    // outside of tags: the least of a visit, the most of all visits
	sizes      []int64  // the most of each tag; shorter where later tags had none
	slept      []bool   // the tag slept through a visit
	visits     int64
	duration   int64
	first      int64 // the number of its first visit, of all visits
	last       int64
}

// stageSet is the stages of a device in the order in which they came.
type stageSet struct {
	stages []*stage
	now    *stage // the visit at hand, which becomes part of its stage when it ends; or nil
	since  int64
	woke   []bool // tags that were awake at some moment of the visit
	begun  bool   // there was a visit
	visits int64  // that had a name

	// From the start of the first visit on:
	peak       int64
	inStage    *stage // where the peak was, or nil
	rest, away int64  // as in resumeplan.Plan
	copied     int64
}

// enter begins a visit. Of a name that is not known yet it may be given until it ends.
func (ss *stageSet) enter(name string, uses []string, time int64, s *sleeper) {
	ss.now, ss.since = &stage{name: name, told: len(uses) > 0, uses: uses, visits: 1}, time
	if !ss.begun {
		ss.begun, ss.rest = true, -1
	}
	ss.now.free = s.free
	ss.woke = ss.woke[:0]
	ss.note(s)
}

// leave ends a visit. One without a name was of no stage.
func (ss *stageSet) leave(time int64, s *sleeper) {
	visit := ss.now
	if visit == nil {
		return
	}
	ss.now = nil
	visit.duration = max(time-ss.since, 0)
	visit.slept = make([]bool, len(s.tags))
	for t := range s.tags {
		visit.slept[t] = s.away[t] > 0 && !(t < len(ss.woke) && ss.woke[t])
	}
	st := ss.named(visit.name)
	if ss.inStage == visit {
		ss.inStage = st
	}
	if st != nil {
		ss.visits++
		st.last = ss.visits
		st.add(visit)
	}
}

// named is the stage with a name, if it has one or there is room.
func (ss *stageSet) named(name string) *stage {
	at := slices.IndexFunc(ss.stages, func(st *stage) bool { return st.name == name })
	switch {
	case at >= 0:
		return ss.stages[at]
	case name == "" || len(ss.stages) == maxStages:
		return nil
	}
	st := &stage{name: name, first: ss.visits + 1}
	ss.stages = append(ss.stages, st)
	return st
}

func (st *stage) add(visit *stage) {
	st.visits += visit.visits
	st.duration += visit.duration
	st.base, st.peak, st.free = max(st.base, visit.base), max(st.peak, visit.peak), max(st.free, visit.free)
	st.told = st.told || visit.told
	for _, tag := range visit.uses {
		if !slices.Contains(st.uses, tag) {
			st.uses = append(st.uses, tag)
		}
	}
	st.sizes, st.slept = atLeast(st.sizes, len(visit.sizes)), atLeast(st.slept, len(visit.slept))
	for t, bytes := range visit.sizes {
		st.sizes[t] = max(st.sizes[t], bytes)
	}
	for t, slept := range visit.slept {
		st.slept[t] = st.slept[t] || slept
	}
}

// note takes what is mapped.
func (ss *stageSet) note(s *sleeper) {
	if !ss.begun {
		return
	}
	r, kv := s.mappedNow()
	if r > ss.peak {
		ss.peak, ss.inStage = r, ss.now
	}
	if kv > 0 {
		ss.rest = max(ss.rest, r-kv)
	} else {
		ss.away = max(ss.away, r)
	}
	if ss.now == nil {
		return
	}
	ss.now.peak, ss.now.base = max(ss.now.peak, r), max(ss.now.base, s.base)
	ss.now.sizes, ss.woke = atLeast(ss.now.sizes, len(s.tags)), atLeast(ss.woke, len(s.tags))
	for t, bytes := range s.awake {
		ss.now.sizes[t] = max(ss.now.sizes[t], bytes)
		ss.woke[t] = ss.woke[t] || bytes > 0
	}
}

// leastFree takes what is free outside of tags.
func (ss *stageSet) leastFree(bytes int64) {
	if ss.now != nil {
		ss.now.free = min(ss.now.free, bytes)
	}
}

// addCopied counts what is copied once there was a stage.
func (ss *stageSet) addCopied(bytes int64) {
	if ss.begun {
		ss.copied += bytes
	}
}

// atLeast is a slice with zeros up to a length.
func atLeast[T any](list []T, length int) []T {
	for len(list) < length {
		var zero T
		list = append(list, zero)
	}
	return list
}

// kept are the stages of the cycle: those that came again, and what came between; all if none
// came again.
func (ss *stageSet) kept() []*stage {
	from, to := int64(0), int64(0)
	for _, st := range ss.stages {
		if st.visits < 2 {
			continue
		}
		if from == 0 {
			from = st.first
		}
		to = max(to, st.last)
	}
	if from == 0 {
		return ss.stages
	}
	return slices.DeleteFunc(slices.Clone(ss.stages), func(st *stage) bool { return st.first < from || st.first > to })
}

// planned is a stage with what it needs.
func (st *stage) planned(tags []resumeplan.Tag) resumeplan.Stage {
	p := resumeplan.Stage{Name: st.name, Base: st.base}
	st.sizes, st.slept = atLeast(st.sizes, len(tags)), atLeast(st.slept, len(tags))
	for t := range tags {
		size, needed := st.sizes[t], st.sizes[t] > 0 && !st.slept[t]
		if st.told {
			needed = slices.Contains(st.uses, tags[t].Name)
		}
		if size == 0 && st.slept[t] {
			size = resumeplan.Paused
		}
		p.Sizes, p.Needs = append(p.Sizes, size), append(p.Needs, needed)
	}
	return p
}

// recorded is how the cycle was run.
func (ss *stageSet) recorded(c *resumeplan.Cycle, kept []*stage) resumeplan.Plan {
	p := resumeplan.Plan{Peak: ss.peak, PeakStage: slices.Index(kept, ss.inStage), Rest: ss.rest, Away: ss.away}
	cycles := int64(1)
	for i, st := range kept {
		if i > 0 || len(kept) == 1 { // the first may have begun a cycle that was cut off
			cycles = max(cycles, st.visits)
		}
		awake := make([]bool, len(c.Tags))
		for t := range awake {
			awake[t] = c.Stages[i].Sizes[t] > 0
		}
		p.Resident = append(p.Resident, awake)
	}
	p.Copied = ss.copied / cycles
	return p
}

// enterStage follows the outermost phase.
func (a *analyzer) enterStage(d *device, time int64) {
	s := d.sleep
	if s == nil {
		return
	}
	name, uses := a.attribution.Outermost()
	if attribution.IsStep(name) { // part of a training step, no stage between which memory is paused
		name = ""
	}
	if name == "" || s.stages.now == nil || s.stages.now.name != name {
		s.stages.leave(time, s)
		if name != "" {
			s.stages.enter(name, uses, time, s)
		}
	}
}

// endSpan ends the stretch before a transition that started at a time. One that was shorter
// than a transition is part of a switch: it was no stage.
func (s *sleeper) endSpan(time int64) {
	if ss := &s.spans; ss.now != nil && time-ss.since >= max(s.longest, 1) {
		ss.now.name = s.whoIsAwake()
	}
	s.spans.leave(time, s)
}

// whoIsAwake names a stretch without a phase.
func (s *sleeper) whoIsAwake() string {
	var names []string
	for t, bytes := range s.awake {
		if bytes > 0 {
			names = append(names, s.tags[t].Name)
		}
	}
	if names == nil {
		return "all asleep"
	}
	return strings.Join(names, " + ") + " awake"
}
