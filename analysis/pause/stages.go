package pause

import (
	"slices"
)

// maxStages bounds the stages; visits of further ones are in none.
const maxStages = 64

// stage is the memory of all visits of a stretch of the job.
type stage struct {
	name       string
	given      bool     // its phase says which tags it needs:
	uses       []string // these
	base, peak int64    // greatest untagged bytes, and greatest of all
	free       int64    // untagged free bytes: the least of a visit, the most of all visits
	sizes      []int64  // greatest bytes of each tag; shorter where later tags had none
	paused     []bool   // the tag was paused during all of a visit
	visits     int64
	duration   int64 // ns
	first      int64 // the number of its first visit, of all visits
	last       int64
}

// stageSet is the stages of a device in the order in which they came.
type stageSet struct {
	stages   []*stage
	now      *stage // the visit at hand, which becomes part of its stage when it ends; or nil
	since    int64
	resident []bool // tags that were resident at some moment of the visit
	begun    bool   // there was a visit
	visits   int64  // that had a name

	// From the start of the first visit on:
	peak       int64
	inStage    *stage // where the peak was, or nil
	rest, away int64  // as in Plan
	copied     int64
}

// enter begins a visit. Its name may follow until it ends.
func (ss *stageSet) enter(name string, uses []string, time int64, of *Tracker) {
	ss.now, ss.since = &stage{name: name, given: len(uses) > 0, uses: uses, visits: 1}, time
	if !ss.begun {
		ss.begun, ss.rest = true, -1
	}
	ss.now.free = of.free
	ss.resident = ss.resident[:0]
	ss.note(of)
}

// leave ends the visit at hand. A visit without a name belongs to no stage.
func (ss *stageSet) leave(time int64, of *Tracker) {
	visit := ss.now
	if visit == nil {
		return
	}
	ss.now = nil
	visit.duration = max(time-ss.since, 0)
	visit.paused = make([]bool, len(of.tags))
	for t := range of.tags {
		visit.paused[t] = of.paused[t] > 0 && !(t < len(ss.resident) && ss.resident[t])
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

// named is the stage with a name, a new one if there is room, or nil.
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
	st.given = st.given || visit.given
	for _, tag := range visit.uses {
		if !slices.Contains(st.uses, tag) {
			st.uses = append(st.uses, tag)
		}
	}
	st.sizes, st.paused = atLeast(st.sizes, len(visit.sizes)), atLeast(st.paused, len(visit.paused))
	for t, bytes := range visit.sizes {
		st.sizes[t] = max(st.sizes[t], bytes)
	}
	for t, paused := range visit.paused {
		st.paused[t] = st.paused[t] || paused
	}
}

// note takes the mapped bytes after they changed.
func (ss *stageSet) note(of *Tracker) {
	if !ss.begun {
		return
	}
	r, kv := of.mapped()
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
	ss.now.peak, ss.now.base = max(ss.now.peak, r), max(ss.now.base, of.base)
	ss.now.sizes, ss.resident = atLeast(ss.now.sizes, len(of.tags)), atLeast(ss.resident, len(of.tags))
	for t, bytes := range of.resident {
		ss.now.sizes[t] = max(ss.now.sizes[t], bytes)
		ss.resident[t] = ss.resident[t] || bytes > 0
	}
}

// leastFree takes the untagged free bytes.
func (ss *stageSet) leastFree(bytes int64) {
	if ss.now != nil {
		ss.now.free = min(ss.now.free, bytes)
	}
}

// addCopied counts copied bytes from the first visit on.
func (ss *stageSet) addCopied(bytes int64) {
	if ss.begun {
		ss.copied += bytes
	}
}

// atLeast is a slice with zeros up to a length.
func atLeast[T any](list []T, length int) []T {
	return append(list, make([]T, max(0, length-len(list)))...)
}

// kept are the stages of the cycle: those that came again and those between them; all if none came
// again.
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

// planned is the stage as the resume plan takes it.
func (st *stage) planned(tags []Tag) Stage {
	p := Stage{Name: st.name, Base: st.base}
	st.sizes, st.paused = atLeast(st.sizes, len(tags)), atLeast(st.paused, len(tags))
	for t := range tags {
		size, needed := st.sizes[t], st.sizes[t] > 0 && !st.paused[t]
		if st.given {
			needed = slices.Contains(st.uses, tags[t].Name)
		}
		if size == 0 && st.paused[t] {
			size = Paused
		}
		p.Sizes, p.Needs = append(p.Sizes, size), append(p.Needs, needed)
	}
	return p
}

// recorded is the plan that the recording followed.
func (ss *stageSet) recorded(c *Cycle, kept []*stage) Plan {
	p := Plan{Peak: ss.peak, PeakStage: slices.Index(kept, ss.inStage), Rest: ss.rest, Away: ss.away}
	cycles := int64(1)
	for i, st := range kept {
		if i > 0 || len(kept) == 1 { // the first may have begun a cycle that was cut off
			cycles = max(cycles, st.visits)
		}
		resident := make([]bool, len(c.Tags))
		for t := range resident {
			resident[t] = c.Stages[i].Sizes[t] > 0
		}
		p.Resident = append(p.Resident, resident)
	}
	p.Copied = ss.copied / cycles
	return p
}
