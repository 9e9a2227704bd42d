package pause

import "slices"

// Tag is memory that is paused and resumed as a whole.
type Tag struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // the most that was mapped for it
	// Copied: its content is copied to the host at a pause and back at the resume.
	Copied bool `json:"copied"`
	// KV: it is a KV cache, whose size the job chooses.
	KV bool `json:"kv"`
}

// Paused stands in Stage.Sizes for a tag that was paused during the whole stage.
const Paused int64 = -1

// Stage is a part of a cycle in which the same tags are needed.
type Stage struct {
	Name  string
	Base  int64   // the most untagged bytes that were mapped
	Sizes []int64 // the most bytes that were mapped for each tag, or Paused
	Needs []bool  // the tags that must be resident
}

// Cycle is a list of stages that a job runs through over and over.
type Cycle struct {
	Tags   []Tag
	Stages []Stage
}

// size is the bytes of a tag if it is resident in a stage.
func (c *Cycle) size(stage, tag int) int64 {
	if size := c.Stages[stage].Sizes[tag]; size != Paused {
		return size
	}
	return c.Tags[tag].Bytes
}

// load is the bytes mapped in a stage in which the given tags are resident.
func (c *Cycle) load(stage int, resident []bool) int64 {
	sum := c.Stages[stage].Base
	for tag, on := range resident {
		if on {
			sum += c.size(stage, tag)
		}
	}
	return sum
}

// after is the stage n stages after the given one.
func (c *Cycle) after(stage, n int) int {
	return (stage + n) % len(c.Stages)
}

// before is the stage before the given one.
func (c *Cycle) before(stage int) int {
	return c.after(stage, len(c.Stages)-1)
}

// Unneeded is the bytes of the tags that were resident in a stage and not needed there.
func (c *Cycle) Unneeded(stage int) int64 {
	var sum int64
	for tag, size := range c.Stages[stage].Sizes {
		if size > 0 && !c.Stages[stage].Needs[tag] {
			sum += size
		}
	}
	return sum
}

// NeverPaused is the plan in which all tags are always resident.
func (c *Cycle) NeverPaused() Plan {
	resident := c.needed()
	for s := range resident {
		for t := range resident[s] {
			resident[s][t] = true
		}
	}
	return c.plan(resident)
}

// Together is the plan in which tags are resumed together; see the package comment.
func (c *Cycle) Together() Plan {
	resident := c.needed()
	for s := range c.Stages {
		for t := range c.Tags {
			if c.resumes(s, t) {
				c.resumeWith(resident, s, c.run(s, t))
			}
		}
	}
	return c.plan(resident)
}

// resumes says whether a tag is needed in a stage and was not in the one before.
func (c *Cycle) resumes(stage, tag int) bool {
	return c.Stages[stage].Needs[tag] && !c.Stages[c.before(stage)].Needs[tag]
}

// run is the number of stages in a row, from the given one on, that need a tag.
func (c *Cycle) run(stage, tag int) int {
	n := 0
	for n < len(c.Stages) && c.Stages[c.after(stage, n)].Needs[tag] {
		n++
	}
	return n
}

// resumeWith makes resident, from the given stage on, every tag that the stage before does not need
// and one of the next n stages does, up to the last of those stages that needs it.
func (c *Cycle) resumeWith(resident [][]bool, stage, n int) {
	for t := range c.Tags {
		if c.Stages[c.before(stage)].Needs[t] {
			continue
		}
		last := -1
		for i := range n {
			if c.Stages[c.after(stage, i)].Needs[t] {
				last = i
			}
		}
		for i := range last + 1 {
			resident[c.after(stage, i)][t] = true
		}
	}
}

// needed has the tags that each stage needs.
func (c *Cycle) needed() [][]bool {
	resident := make([][]bool, len(c.Stages))
	for s := range resident {
		resident[s] = slices.Clone(c.Stages[s].Needs)
	}
	return resident
}
