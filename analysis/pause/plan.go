package pause

// Plan says which tags are resident in each stage of a cycle.
type Plan struct {
	Resident  [][]bool // by stage and tag
	Peak      int64    // the most bytes that are mapped in a stage
	PeakStage int      // the first stage in which they are
	Copied    int64    // bytes copied to and from the host in one cycle
	Steps     []Step   // of one cycle, from before its first stage
	// Rest is the most bytes that are mapped outside of KV caches while one is resident, -1 if none
	// ever is. Away is the most bytes that are mapped while none is.
	Rest, Away int64
}

// Step is one of: pauses, resumes, a stage.
type Step struct {
	Pause, Resume []int // indices of tags; at most one of the two lists is not empty
	Stage         int   // if both are empty
}

// plan computes the numbers and steps of a plan from the tags that are resident in each stage.
func (c *Cycle) plan(resident [][]bool) Plan {
	p := Plan{Resident: resident, Rest: -1}
	p.Peak, p.PeakStage = c.peak(resident)
	for s := range c.Stages {
		p.count(c, s)
		p.steps(c, s)
	}
	return p
}

func (c *Cycle) peak(resident [][]bool) (peak int64, stage int) {
	peak, stage = -1, 0
	for s := range resident {
		if load := c.load(s, resident[s]); load > peak {
			peak, stage = load, s
		}
	}
	return peak, stage
}

// count updates Rest and Away with a stage.
func (p *Plan) count(c *Cycle, stage int) {
	load, kv := c.load(stage, p.Resident[stage]), int64(0)
	some := false
	for t, on := range p.Resident[stage] {
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

// steps appends the transition to a stage and the stage itself.
func (p *Plan) steps(c *Cycle, stage int) {
	before, now := p.Resident[c.before(stage)], p.Resident[stage]
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

// LargestKV is the greatest size of the KV caches with which the plan fits into room bytes. It is
// not ok if the plan does not fit with any size, or has no KV cache.
func (p *Plan) LargestKV(room int64) (bytes int64, ok bool) {
	if p.Rest < 0 || p.Away > room || p.Rest >= room {
		return 0, false
	}
	return room - p.Rest, true
}
