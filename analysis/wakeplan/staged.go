package wakeplan

import (
	"cmp"
	"slices"
)

// maxGaps bounds how many gaps are tried in every combination.
const maxGaps = 16

// gap is a run of stages that do not need a tag, between two that do.
type gap struct {
	tag    int
	stages []int
	copied int64 // bytes copied for sleeping through it, both ways
	moved  int64 // bytes unmapped and mapped
}

// Staged is the plan of the lowest peak, and of those one with the least copying, then the
// least memory moved; beyond maxGaps gaps it may copy and move more than the least.
func (c *Cycle) Staged() Plan {
	awake := c.needed()
	room := make([]int64, len(c.Stages))
	peak, _ := c.peak(awake)
	for s := range room {
		room[s] = peak - c.load(s, awake[s])
	}
	gaps := c.gaps()
	slices.SortStableFunc(gaps, func(x, y gap) int { return cmp.Or(cmp.Compare(y.copied, x.copied), cmp.Compare(y.moved, x.moved)) })
	for _, g := range c.kept(gaps, room) {
		for _, s := range g.stages {
			awake[s][g.tag] = true
		}
	}
	return c.plan(awake)
}

// gaps are those of tags that some stage needs; what no stage needs sleeps for good.
func (c *Cycle) gaps() []gap {
	var gaps []gap
	for t := range c.Tags {
		for s := range c.Stages {
			if !c.Stages[s].Needs[t] || c.Stages[c.after(s, 1)].Needs[t] {
				continue
			}
			g := gap{tag: t, moved: 2 * c.Tags[t].Bytes}
			if c.Tags[t].Copied {
				g.copied = g.moved
			}
			for at := c.after(s, 1); !c.Stages[at].Needs[t]; at = c.after(at, 1) {
				g.stages = append(g.stages, at)
			}
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// kept are the gaps through which a tag may stay awake without a stage being short of room,
// chosen so that they save most. They are in order of what they save.
func (c *Cycle) kept(gaps []gap, room []int64) []gap {
	if len(gaps) > maxGaps {
		var kept []gap
		for _, g := range gaps {
			if c.take(g, room) {
				kept = append(kept, g)
			}
		}
		return kept
	}
	search := search{cycle: c, gaps: gaps, room: room}
	search.from(0, 0, 0)
	return search.best
}

// take takes the room that a gap's tag needs to stay awake, if there is so much.
func (c *Cycle) take(g gap, room []int64) bool {
	for _, s := range g.stages {
		if c.size(s, g.tag) > room[s] {
			return false
		}
	}
	for _, s := range g.stages {
		room[s] -= c.size(s, g.tag)
	}
	return true
}

func (c *Cycle) leave(g gap, room []int64) {
	for _, s := range g.stages {
		room[s] += c.size(s, g.tag)
	}
}

// search tries all combinations of gaps that have room.
type search struct {
	cycle                 *Cycle
	gaps                  []gap
	room                  []int64
	chosen, best          []gap
	bestCopied, bestMoved int64
}

// from decides on the gaps from one on, with what those before save.
func (s *search) from(at int, copied, moved int64) {
	if at == len(s.gaps) {
		if copied > s.bestCopied || copied == s.bestCopied && moved > s.bestMoved {
			s.best, s.bestCopied, s.bestMoved = slices.Clone(s.chosen), copied, moved
		}
		return
	}
	g := s.gaps[at]
	if s.cycle.take(g, s.room) {
		s.chosen = append(s.chosen, g)
		s.from(at+1, copied+g.copied, moved+g.moved)
		s.chosen = s.chosen[:len(s.chosen)-1]
		s.cycle.leave(g, s.room)
	}
	s.from(at+1, copied, moved)
}
