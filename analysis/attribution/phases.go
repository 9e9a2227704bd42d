package attribution

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

const (
	// OtherPhase is outside of all phases. A phase that is called "other" is the same.
	OtherPhase = 0
	// MaxPhases bounds the phases that are numbered; the last number stands for all further ones.
	MaxPhases = 32
	// MaxOpenPhases bounds how deep phases nest: beyond it the outermost is forgotten.
	MaxOpenPhases = 64
)

// Phases are the open phases of a process, whatever thread opened them. The innermost one is the
// phase of an allocation. A visit is a phase from a begin to its end; visits are numbered from 1.
type Phases struct {
	Current uint8 // number of the innermost open phase
	Visit   int32 // number of its visit; 0 outside of all

	names  []string // by number; names[OtherPhase] is "other"
	byText map[int32]uint8
	open   []openPhase // the innermost last
	visits int32       // so far
}

// openPhase is a visit that has not ended.
type openPhase struct {
	phase   uint8
	context int32
	visit   int32
}

// FurtherPhases names the phases beyond MaxPhases.
const FurtherPhases = "(further phases)"

// Name is the name of a phase by its number.
func (p *Phases) Name(phase uint8) string {
	if phase == OtherPhase {
		return "other"
	}
	return p.names[phase]
}

// number is the phase that a context names.
func (p *Phases) number(context int32, text string) uint8 {
	if n, ok := p.byText[context]; ok {
		return n
	}
	if p.byText == nil {
		p.byText, p.names = map[int32]uint8{}, []string{"other"}
	}
	n := slices.Index(p.names, text)
	switch {
	case n >= 0:
	case len(p.names) < MaxPhases-1:
		n = len(p.names)
		p.names = append(p.names, text)
	default:
		if n = MaxPhases - 1; len(p.names) < MaxPhases {
			p.names = append(p.names, FurtherPhases)
		}
	}
	p.byText[context] = uint8(n)
	return uint8(n)
}

// innermost finds the innermost open phase.
func (p *Phases) innermost() {
	p.Current, p.Visit = OtherPhase, 0
	if n := len(p.open); n > 0 {
		p.Current, p.Visit = p.open[n-1].phase, p.open[n-1].visit
	}
}

func (p *Phases) begin(context int32, text string) {
	if len(p.open) == MaxOpenPhases {
		p.open = slices.Delete(p.open, 0, 1)
	}
	p.visits++
	p.open = append(p.open, openPhase{p.number(context, text), context, p.visits})
	p.innermost()
}

// end closes the innermost open phase of that name, if there is one.
func (p *Phases) end(context int32) {
	for i := len(p.open) - 1; i >= 0; i-- {
		if p.open[i].context == context {
			p.open = slices.Delete(p.open, i, i+1)
			p.innermost()
			return
		}
	}
}

// Cut ends all open visits and begins new ones of the same phases.
func (p *Phases) Cut() {
	for i := range p.open {
		p.visits++
		p.open[i].visit = p.visits
	}
	p.innermost()
}

// Open says whether a visit has not ended; visit 0 is not open.
func (p *Phases) Open(visit int32) bool {
	if visit == 0 || visit == p.Visit {
		return visit != 0
	}
	for i := range p.open {
		if p.open[i].visit == visit {
			return true
		}
	}
	return false
}

// Any says whether the trace has phases.
func (p *Phases) Any() bool { return p.byText != nil }

// trainingPhases are the phases that memprof's hooks mark in each iteration of training, in that order.
var trainingPhases = []string{"data", "forward", "backward", "optimizer"}

// IsTraining says whether a phase is one of those that memprof's hooks mark in each iteration of training.
func IsTraining(name string) bool { return slices.Contains(trainingPhases, name) }

// Own is the innermost open phase that the job named itself, or "".
func (t *Tracker) Own() string {
	for i := len(t.Phases.open) - 1; i >= 0; i-- {
		phase := trace.ParseContext(trace.KindPhaseBegin, t.opt.Text(t.Phases.open[i].context))
		if name := phase.Name(); !IsTraining(name) {
			return name
		}
	}
	return ""
}

// Outermost is the outermost open phase, or "", and the tags that its context says it uses (uses=).
func (t *Tracker) Outermost() (name string, uses []string) {
	if len(t.Phases.open) == 0 {
		return "", nil
	}
	phase := trace.ParseContext(trace.KindPhaseBegin, t.opt.Text(t.Phases.open[0].context))
	return phase.Name(), phase.Words("uses")
}
