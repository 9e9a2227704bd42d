package pause

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
	copied int64 // bytes that pausing the tag during the gap copies, both ways
	moved  int64 // bytes that it unmaps and maps
}

// OnUse is the plan of the lowest peak, and of those one with the least copying, then the
// least memory moved; beyond maxGaps gaps it may copy and move more than the least.
func (c *Cycle) OnUse() Plan {
	resident := c.needed()
	room := make([]int64, len(c.Stages))
	peak, _ := c.peak(resident)
	for s := range room {
		room[s] = peak - c.load(s, resident[s])
	}
	gaps := c.gaps()
	slices.SortStableFunc(gaps, func(x, y gap) int { return cmp.Or(cmp.Compare(y.copied, x.copied), cmp.Compare(y.moved, x.moved)) })
	for _, g := range c.kept(gaps, room) {
		for _, s := range g.stages {
			resident[s][g.tag] = true
		}
	}
	return c.plan(resident)
}

// gaps lists the gaps of all tags that some stage needs. A tag that no stage needs stays paused.
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

// kept chooses the gaps during which the tag stays resident: those that save most, and fit into the
// room of every stage, in bytes. gaps come in order of what they save, greatest first.
func (c *Cycle) kept(gaps []gap, room []int64) []gap {
	if len(gaps) > maxGaps {
		return slices.DeleteFunc(gaps, func(g gap) bool { return !c.take(g, room) })
	}
	search := search{cycle: c, gaps: gaps, room: room}
	search.from(0, 0, 0)
	return search.best
}

// take takes the room that a gap's tag needs to stay resident, if every stage has it.
func (c *Cycle) take(g gap, room []int64) bool {
	if slices.ContainsFunc(g.stages, func(s int) bool { return c.size(s, g.tag) > room[s] }) {
		return false
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

// search tries all combinations of gaps that fit.
type search struct {
	cycle                 *Cycle
	gaps                  []gap
	room                  []int64
	chosen, best          []gap
	bestCopied, bestMoved int64
}

// from tries to take or leave each gap from index at on. The chosen gaps before it save copied and
// moved bytes.
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
