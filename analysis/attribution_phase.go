package analysis

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/trace"
)

const (
	// otherPhase is outside of all phases. A phase of that name is the same.
	otherPhase = 0
	// maxPhases bounds how many names are told apart; the last one stands for all further.
	maxPhases = 32
	// maxOpenPhases bounds how deep phases nest; the outermost is forgotten beyond that.
	maxOpenPhases = 64
	// keptIterations bounds the iterations of which phases are kept: as many from the
	// start as from the end.
	keptIterations = 1024
)

// phases are those of the process, whatever thread opened them: the innermost open one is the
// phase of an allocation.
type phases struct {
	names  []string // by number; names[otherPhase] is "other"
	byText map[int32]uint8
	open   []openPhase // the innermost last

	current uint8
	visit   int32 // of the innermost open phase; 0 outside of all
	visits  int32 // so far
}

// openPhase is one from its begin to its end: a visit.
type openPhase struct {
	phase   uint8
	context int32
	visit   int32
}

const furtherPhases = "(further phases)"

func (p *phases) name(phase uint8) string {
	if phase == otherPhase {
		return "other"
	}
	return p.names[phase]
}

// number is the phase that a context names.
func (p *phases) number(context int32, text string) uint8 {
	if n, ok := p.byText[context]; ok {
		return n
	}
	if p.byText == nil {
		p.byText, p.names = map[int32]uint8{}, []string{"other"}
	}
	n := slices.Index(p.names, text)
	switch {
	case n >= 0:
	case len(p.names) < maxPhases-1:
		n = len(p.names)
		p.names = append(p.names, text)
	default:
		if n = maxPhases - 1; len(p.names) < maxPhases {
			p.names = append(p.names, furtherPhases)
		}
	}
	p.byText[context] = uint8(n)
	return uint8(n)
}

func (p *phases) settle() {
	p.current, p.visit = otherPhase, 0
	if n := len(p.open); n > 0 {
		p.current, p.visit = p.open[n-1].phase, p.open[n-1].visit
	}
}

func (p *phases) begin(context int32, text string) {
	if len(p.open) == maxOpenPhases {
		p.open = slices.Delete(p.open, 0, 1)
	}
	p.visits++
	p.open = append(p.open, openPhase{p.number(context, text), context, p.visits})
	p.settle()
}

// end closes the innermost open phase of that name, if there is one.
func (p *phases) end(context int32) {
	for i := len(p.open) - 1; i >= 0; i-- {
		if p.open[i].context == context {
			p.open = slices.Delete(p.open, i, i+1)
			p.settle()
			return
		}
	}
}

// cut ends all open visits, and has their phases go on as new ones.
func (p *phases) cut() {
	for i := range p.open {
		p.visits++
		p.open[i].visit = p.visits
	}
	p.settle()
}

// on says whether a visit has not ended.
func (p *phases) on(visit int32) bool {
	if visit == 0 || visit == p.visit {
		return visit != 0
	}
	for i := range p.open {
		if p.open[i].visit == visit {
			return true
		}
	}
	return false
}

// PhaseUse is what a phase did with the memory of a device, in an iteration or in all.
type PhaseUse struct {
	Phase              string
	PeakT, PeakC       int64 // the greatest while it was the innermost, its first moment included
	Allocs, AllocBytes int64
	Duration           int64 // ns as the innermost
}

// PhaseIteration is an iteration by phase, the phases in the order of phaseOrder.
type PhaseIteration struct {
	Iteration int // its index, see [DeviceResult.IterationNumber]
	Uses      []PhaseUse
}

// phaseCounts is a PhaseUse in the making; it counts once the phase was on.
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

// devicePhases are the phases of one device.
type devicePhases struct {
	now        *phaseCounts // of the innermost open phase, in this iteration
	since      int64        // when it became that, or the iteration began
	iteration  [maxPhases]phaseCounts
	whole      [maxPhases]phaseCounts
	head, tail []PhaseIteration // the first ones; a ring of the last ones
	next       int              // the oldest of a full ring
}

// startPhases forgets what was so far: nothing, or what a part's opening rows restated.
func (d *device) startPhases(phase uint8, time int64) {
	p := &d.byPhase
	p.iteration = [maxPhases]phaseCounts{}
	p.now, p.since = &p.iteration[phase], time
	d.enter(phase, time)
}

// enter makes a phase the innermost one of a device.
func (d *device) enter(phase uint8, time int64) {
	p := &d.byPhase
	p.now.duration += time - p.since
	p.now, p.since = &p.iteration[phase], time
	p.now.used = true
	p.now.peakT, p.now.peakC = max(p.now.peakT, d.t), max(p.now.peakC, d.c)
}

// endPhases ends the iteration that was marked last.
func (d *device) endPhases(ps *phases, time int64) {
	p := &d.byPhase
	d.enter(ps.current, time)
	for i := range p.iteration {
		p.whole[i].add(&p.iteration[i])
	}
	if ps.byText != nil {
		p.keep(PhaseIteration{d.log.count - 1, ps.uses(&p.iteration)})
	}
	p.iteration = [maxPhases]phaseCounts{}
	d.enter(ps.current, time)
}

func (p *devicePhases) keep(it PhaseIteration) {
	switch {
	case len(p.head) < keptIterations:
		p.head = append(p.head, it)
	case len(p.tail) < keptIterations:
		p.tail = append(p.tail, it)
	default:
		p.tail[p.next] = it
		p.next = (p.next + 1) % keptIterations
	}
}

// finishPhases says what the phases of a device did.
func (a *analyzer) finishPhases(d *device) {
	p := &d.byPhase
	if a.phases.byText == nil {
		return
	}
	d.enter(a.phases.current, a.lastTime)
	for i := range p.iteration {
		p.whole[i].add(&p.iteration[i])
	}
	d.Phases = a.phases.uses(&p.whole)
	d.PhaseIterations = slices.Concat(p.head, p.tail[p.next:], p.tail[:p.next])
}

// uses are the phases that were on: the steps of training in their order, then those of the
// job's own as they first came, then what was outside of all.
func (p *phases) uses(counts *[maxPhases]phaseCounts) []PhaseUse {
	var uses []PhaseUse
	for i := range counts {
		if c := &counts[i]; c.used {
			uses = append(uses, PhaseUse{p.name(uint8(i)), c.peakT, c.peakC, c.allocs, c.allocBytes, c.duration})
		}
	}
	order := []string{"data", "forward", "backward", "optimizer"}
	rank := func(u *PhaseUse) int {
		at := slices.Index(order, u.Phase)
		switch {
		case u.Phase == "other":
			return len(order) + 1
		case at < 0:
			return len(order)
		}
		return at
	}
	slices.SortStableFunc(uses, func(x, y PhaseUse) int { return cmp.Compare(rank(&x), rank(&y)) })
	return uses
}

// phase takes a phase_begin or phase_end.
func (a *analyzer) phase(e *trace.Event) {
	a.told = true
	if e.Kind == trace.KindPhaseBegin {
		a.phases.begin(e.Context, trace.PhaseName(a.opt.Text(e.Context)))
	} else {
		a.phases.end(e.Context)
	}
	if a.bands != nil && !a.opening {
		a.bands.enter(a.phases.name(a.phases.current), e.Time)
	}
	ended := a.requests.phase(e) && !a.opening
	for _, d := range a.devices {
		d.enter(a.phases.current, e.Time)
		a.enterStage(d, e.Time)
		if ended {
			d.requestEnded(trace.PhaseName(a.opt.Text(e.Context)), e)
		}
	}
}
