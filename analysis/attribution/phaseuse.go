package attribution

import (
	"cmp"
	"slices"
)

// KeptIterations bounds the iterations of which phases are kept: as many from the start of the trace
// as from its end.
const KeptIterations = 1024

// PhaseUse is what a phase did with the memory of a device, in an iteration or in all.
type PhaseUse struct {
	Phase              string
	PeakT, PeakC       int64 // greatest bytes while it was the innermost, its first moment included
	Allocs, AllocBytes int64
	Duration           int64 // ns as the innermost
}

// PhaseIteration is an iteration by phase, the phases in the order of an iteration of training.
type PhaseIteration struct {
	Iteration int // its index among all iterations
	Uses      []PhaseUse
}

// phaseCounts is a PhaseUse in the making; it counts once the phase was open.
type phaseCounts struct {
	used               bool
	peakT, peakC       int64
	allocs, allocBytes int64
	duration           int64
}

func (c *phaseCounts) add(o *phaseCounts) {
	c.used = c.used || o.used
	c.peakT, c.peakC = max(c.peakT, o.peakT), max(c.peakC, o.peakC)
	c.allocs += o.allocs
	c.allocBytes += o.allocBytes
	c.duration += o.duration
}

// DevicePhases measures the phases on one device. Of its methods, t and c are the bytes of T and C
// after the event at hand.
type DevicePhases struct {
	now        *phaseCounts // of the innermost open phase, in this iteration
	since      int64        // when it became that, or the iteration began
	iteration  [MaxPhases]phaseCounts
	whole      [MaxPhases]phaseCounts
	head, tail []PhaseIteration // the first ones; a ring of the last ones
	next       int              // the oldest of a full ring
}

// Start forgets everything so far: nothing, or what the opening rows of a part restated.
func (p *DevicePhases) Start(phase uint8, time, t, c int64) {
	p.iteration = [MaxPhases]phaseCounts{}
	p.now, p.since = &p.iteration[phase], time
	p.Enter(phase, time, t, c)
}

// Enter makes a phase the innermost one.
func (p *DevicePhases) Enter(phase uint8, time, t, c int64) {
	p.now.duration += time - p.since
	p.now, p.since = &p.iteration[phase], time
	p.now.used = true
	p.Observe(t, c)
}

// Alloc counts an allocation of so many requested bytes.
func (p *DevicePhases) Alloc(bytes int64) {
	p.now.allocs++
	p.now.allocBytes += bytes
}

// Observe takes T and C after an event.
func (p *DevicePhases) Observe(t, c int64) {
	if t > p.now.peakT {
		p.now.peakT = t
	}
	if c > p.now.peakC {
		p.now.peakC = c
	}
}

// EndIteration ends the iteration with an index.
func (p *DevicePhases) EndIteration(ps *Phases, index int, time, t, c int64) {
	p.Enter(ps.Current, time, t, c)
	p.sum()
	if ps.Any() {
		p.keep(PhaseIteration{index, ps.uses(&p.iteration)})
	}
	p.iteration = [MaxPhases]phaseCounts{}
	p.Enter(ps.Current, time, t, c)
}

// sum adds the iteration at hand to those before.
func (p *DevicePhases) sum() {
	for i := range p.iteration {
		p.whole[i].add(&p.iteration[i])
	}
}

func (p *DevicePhases) keep(it PhaseIteration) {
	switch {
	case len(p.head) < KeptIterations:
		p.head = append(p.head, it)
	case len(p.tail) < KeptIterations:
		p.tail = append(p.tail, it)
	default:
		p.tail[p.next] = it
		p.next = (p.next + 1) % KeptIterations
	}
}

// Finish returns the phases of the whole trace and those of the iterations that were kept; nil where
// the trace has no phases.
func (p *DevicePhases) Finish(ps *Phases, time, t, c int64) ([]PhaseUse, []PhaseIteration) {
	if !ps.Any() {
		return nil, nil
	}
	p.Enter(ps.Current, time, t, c)
	p.sum()
	return ps.uses(&p.whole), slices.Concat(p.head, p.tail[p.next:], p.tail[:p.next])
}

// uses are the phases that were open: first the phases of training in their order, then the job's own
// as they first came, then what was outside of all.
func (p *Phases) uses(counts *[MaxPhases]phaseCounts) []PhaseUse {
	var uses []PhaseUse
	for i := range counts {
		if c := &counts[i]; c.used {
			uses = append(uses, PhaseUse{p.Name(uint8(i)), c.peakT, c.peakC, c.allocs, c.allocBytes, c.duration})
		}
	}
	rank := func(u *PhaseUse) int {
		at := slices.Index(trainingPhases, u.Phase)
		switch {
		case u.Phase == "other":
			return len(trainingPhases) + 1
		case at < 0:
			return len(trainingPhases)
		}
		return at
	}
	slices.SortStableFunc(uses, func(x, y PhaseUse) int { return cmp.Compare(rank(&x), rank(&y)) })
	return uses
}
