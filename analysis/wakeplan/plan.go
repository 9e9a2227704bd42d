package wakeplan

// Plan is who is awake in each stage of a cycle.
type Plan struct {
	Awake     [][]bool // by stage and tag
	Peak      int64    // the most that is mapped
	PeakStage int      // the first stage in which it is
	Copied    int64    // bytes copied to and from the host in one cycle
	Steps     []Step   // of one cycle, from before its first stage
	// Rest is the most that is mapped beside keys and values while these are awake, -1 where
	// they never are; Away the most that is mapped while they are not.
	Rest, Away int64
}

// Step is what happens next: pauses, resumes, or a stage.
type Step struct {
	Pause, Resume []int // tags; at most one of the two has any
	Stage         int   // if neither has
}

// plan fills in what follows from who is awake.
func (c *Cycle) plan(awake [][]bool) Plan {
	p := Plan{Awake: awake, Rest: -1}
	p.Peak, p.PeakStage = c.peak(awake)
	for s := range c.Stages {
		p.count(c, s)
		p.steps(c, s)
	}
	return p
}

func (c *Cycle) peak(awake [][]bool) (peak int64, stage int) {
	peak, stage = -1, 0
	for s := range awake {
		if load := c.load(s, awake[s]); load > peak {
			peak, stage = load, s
		}
	}
	return peak, stage
}

// count adds up what is mapped beside keys and values in a stage.
func (p *Plan) count(c *Cycle, stage int) {
	load, kv := c.load(stage, p.Awake[stage]), int64(0)
	some := false
	for t, on := range p.Awake[stage] {
		if on && c.Tags[t].KV {
			kv += c.size(stage, t)
			some = true
		}
	}
	if some {
		p.Rest = max(p.Rest, load-kv)
	} else {
		p.Away = max(p.Away, load)
	}
}

// steps appends the switch to a stage and the stage itself.
func (p *Plan) steps(c *Cycle, stage int) {
	before, now := p.Awake[c.before(stage)], p.Awake[stage]
	var pause, resume []int
	for t := range c.Tags {
		switch {
		case before[t] && !now[t]:
			pause = append(pause, t)
		case !before[t] && now[t]:
			resume = append(resume, t)
		default:
			continue
		}
		if c.Tags[t].Copied {
			p.Copied += c.Tags[t].Bytes
		}
	}
	if pause != nil {
		p.Steps = append(p.Steps, Step{Pause: pause})
	}
	if resume != nil {
		p.Steps = append(p.Steps, Step{Resume: resume})
	}
	p.Steps = append(p.Steps, Step{Stage: stage})
}

// LargestKV is the most bytes that keys and values may have so that the plan fits into a card
// with so much room, if it fits with any: ok is false where it does not, or where there are
// none.
func (p *Plan) LargestKV(room int64) (bytes int64, ok bool) {
	if p.Rest < 0 || p.Away > room || p.Rest >= room {
		return 0, false
	}
	return room - p.Rest, true
}
