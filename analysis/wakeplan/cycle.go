package wakeplan

import "slices"

// Tag is memory that sleeps and wakes as a whole.
type Tag struct {
	Name  string
	Bytes int64 // the most it had mapped
	// Copied says that its content is kept on the host while it sleeps.
	Copied bool
	// KV says that it is a cache of keys and values, whose size is a choice.
	KV bool
}

// Asleep stands in Stage.Sizes for a tag that slept the whole stage.
const Asleep int64 = -1

// Stage is a part of a cycle in which the same tags are needed.
type Stage struct {
	Name  string
	Base  int64   // the most that was mapped outside of tags
	Sizes []int64 // the most that each tag had mapped, or Asleep
	Needs []bool  // which tags must be awake
}

// Cycle is a number of stages that follow each other, the first one after the last.
type Cycle struct {
	Tags   []Tag
	Stages []Stage
}

// size is what a tag takes if it is awake in a stage.
func (c *Cycle) size(stage, tag int) int64 {
	if size := c.Stages[stage].Sizes[tag]; size != Asleep {
		return size
	}
	return c.Tags[tag].Bytes
}

// load is what is mapped in a stage with some tags awake.
func (c *Cycle) load(stage int, awake []bool) int64 {
	sum := c.Stages[stage].Base
	for tag, on := range awake {
		if on {
			sum += c.size(stage, tag)
		}
	}
	return sum
}

// after is the stage that follows n stages after one.
func (c *Cycle) after(stage, n int) int {
	return (stage + n) % len(c.Stages)
}

// before is the stage in front of one.
func (c *Cycle) before(stage int) int {
	return c.after(stage, len(c.Stages)-1)
}

// Unneeded is what is awake in a stage and not needed there.
func (c *Cycle) Unneeded(stage int) int64 {
	var sum int64
	for tag, size := range c.Stages[stage].Sizes {
		if size > 0 && !c.Stages[stage].Needs[tag] {
			sum += size
		}
	}
	return sum
}

// Resident is the plan in which everything is always awake.
func (c *Cycle) Resident() Plan {
	awake := c.nothing()
	for s := range awake {
		for t := range awake[s] {
			awake[s][t] = true
		}
	}
	return c.plan(awake)
}

// AtOnce is the plan in which what wakes wakes together.
func (c *Cycle) AtOnce() Plan {
	awake := c.needed()
	for s := range c.Stages {
		for t := range c.Tags {
			if c.wakes(s, t) {
				c.wakeWith(awake, s, c.run(s, t))
			}
		}
	}
	return c.plan(awake)
}

// wakes says whether a tag is needed in a stage and was not in the one before.
func (c *Cycle) wakes(stage, tag int) bool {
	return c.Stages[stage].Needs[tag] && !c.Stages[c.before(stage)].Needs[tag]
}

// run is for how many stages, from one on, a tag is needed.
func (c *Cycle) run(stage, tag int) int {
	n := 0
	for n < len(c.Stages) && c.Stages[c.after(stage, n)].Needs[tag] {
		n++
	}
	return n
}

// wakeWith wakes, at a stage, all that sleeps before it and is needed within the n stages
// from it on, until it is needed there for the last time.
func (c *Cycle) wakeWith(awake [][]bool, stage, n int) {
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
			awake[c.after(stage, i)][t] = true
		}
	}
}

// nothing is a plan in which all sleep.
func (c *Cycle) nothing() [][]bool {
	awake := make([][]bool, len(c.Stages))
	for s := range awake {
		awake[s] = make([]bool, len(c.Tags))
	}
	return awake
}

// needed is who is needed, by stage.
func (c *Cycle) needed() [][]bool {
	awake := make([][]bool, len(c.Stages))
	for s := range awake {
		awake[s] = slices.Clone(c.Stages[s].Needs)
	}
	return awake
}
