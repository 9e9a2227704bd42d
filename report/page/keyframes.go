package page

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/plain"
)

// keyframesData are the stored instants, and the stretches of addresses at each.
//
// A shape is a stretch without its time. Jobs repeat themselves, so one shape appears and disappears many
// times. Shape i exists in Times[i] spans of frames, which follow each other in From and To. From is
// relative to the To before it, To to its From.
type keyframesData struct {
	IterationsEach int64 `json:"iterationsEach"`
	EventsEach     int64 `json:"eventsEach"`
	Of             int   `json:"of"` // keyframes of the analysis; the page may have fewer

	Seq          packed `json:"seq"`
	Time         packed `json:"time"`
	Why          packed `json:"why"`   // bits: analysis.Reason
	Event        packed `json:"event"` // of the growth or the failed request, -1 for none
	Iteration    packed `json:"iteration"`
	T            packed `json:"t"`
	C            packed `json:"c"`
	R            packed `json:"r"`
	Rounding     packed `json:"rounding"`
	Slack        packed `json:"slack"`
	Pending      packed `json:"pending"`
	Stranded     packed `json:"stranded"`
	Reserve      packed `json:"reserve"`
	Reusable     packed `json:"reusable"`
	External     packed `json:"external"`
	NotRequested packed `json:"not_requested"`
	Live         packed `json:"live"`
	Paused       packed `json:"paused"`

	Arena  packed `json:"arena"` // index
	Kind   packed `json:"kind"`  // 0 mapped, 1 reserve, 2 pending, 3 live, 4 mapped where a region starts
	Addr   packed `json:"addr"`  // from the arena's base
	Bytes  packed `json:"bytes"`
	Excess packed `json:"excess"` // bytes minus requested bytes
	Origin packed `json:"origin"` // index, -1 for none
	Times  packed `json:"times"`
	From   packed `json:"from"`
	To     packed `json:"to"`

	namesData
}

// namesData are the names that origins have.
type namesData struct {
	Strings  []string `json:"strings"`
	Name     packed   `json:"name"` // of an origin: index into Strings, as are repeated, category and phase
	Repeated packed   `json:"repeated"`
	Module   packed   `json:"module"` // 1: the name is the path of a module
	Category packed   `json:"category"`
	Phase    packed   `json:"phase"`
	Stack    packed   `json:"stack"` // index of the innermost frame, -1
	Frame    packed   `json:"frame"` // of a stack's node: index into Strings
	Parent   packed   `json:"parent"`
}

// frameWidth is the most columns of a frame or of a module's path.
const frameWidth = 160

func newKeyframes(p *pack, k *keyframes.Result, r *analysis.Result, frames []keyframes.Frame) *keyframesData {
	of := func(value func(*keyframes.Frame) int64) packed { return columnOf(p, frames, value) }
	out := &keyframesData{
		IterationsEach: k.IterationsEach, EventsEach: k.EventsEach, Of: len(k.Frames),
		Seq:  of(func(f *keyframes.Frame) int64 { return f.At.Seq }),
		Time: of(func(f *keyframes.Frame) int64 { return f.At.Time }), Why: of(func(f *keyframes.Frame) int64 { return int64(f.Why) }),
		Event: of(func(f *keyframes.Frame) int64 { return f.Event }), Iteration: of(func(f *keyframes.Frame) int64 { return int64(f.At.Iteration) }),
		T: of(func(f *keyframes.Frame) int64 { return f.At.T }), C: of(func(f *keyframes.Frame) int64 { return f.At.C }),
		R: of(func(f *keyframes.Frame) int64 { return f.At.R }), Rounding: of(func(f *keyframes.Frame) int64 { return f.At.Rounding }),
		Slack: of(func(f *keyframes.Frame) int64 { return f.At.Slack }), Pending: of(func(f *keyframes.Frame) int64 { return f.At.Pending }),
		Stranded: of(func(f *keyframes.Frame) int64 { return f.At.Stranded }), Reusable: of(func(f *keyframes.Frame) int64 { return f.At.Reusable }),
		Reserve: of(func(f *keyframes.Frame) int64 { return f.At.Reserve }), External: of(func(f *keyframes.Frame) int64 { return f.At.External }),
		NotRequested: of(func(f *keyframes.Frame) int64 { return f.At.NotRequested }), Live: of(func(f *keyframes.Frame) int64 { return f.At.Live }),
		Paused: of(func(f *keyframes.Frame) int64 { return f.At.Paused }),
	}
	out.stretches(p, keptStretches(k, frames), r)
	out.namesData = newNames(p, k)
	return out
}

// keptStretches returns the stretches at kept frames, with their times counted in kept frames.
func keptStretches(k *keyframes.Result, kept []keyframes.Frame) []keyframes.Stretch {
	before := make([]int32, len(k.Frames)+1) // kept frames before each frame
	for i := range k.Frames {
		n := before[i]
		if int(n) < len(kept) && kept[n].At.Seq == k.Frames[i].At.Seq {
			n++
		}
		before[i+1] = n
	}
	var out []keyframes.Stretch
	for _, s := range k.Stretches {
		if s.From, s.To = before[s.From], before[s.To]; s.From < s.To {
			out = append(out, s)
		}
	}
	return out
}

// shapeOf is a stretch without its time.
func shapeOf(s *keyframes.Stretch) keyframes.Stretch {
	shape := *s
	shape.From, shape.To = 0, 0
	return shape
}

// stretches joins stretches of equal shape, which are in order of time.
func (out *keyframesData) stretches(p *pack, all []keyframes.Stretch, r *analysis.Result) {
	index := map[keyframes.Stretch]int{}
	var shapes []keyframes.Stretch
	var spans [][]int64 // of each shape: from, to, from, to
	for i := range all {
		s := &all[i]
		at, known := index[shapeOf(s)]
		if !known {
			at = len(shapes)
			index[shapeOf(s)] = at
			shapes, spans = append(shapes, shapeOf(s)), append(spans, nil)
		}
		spans[at] = append(spans[at], int64(s.From), int64(s.To))
	}
	var times, from, to []int64
	for _, span := range spans {
		times = append(times, int64(len(span)/2))
		last := int64(0)
		for i := 0; i < len(span); i += 2 {
			from, to = append(from, span[i]-last), append(to, span[i+1]-span[i])
			last = span[i+1]
		}
	}
	of := func(value func(*keyframes.Stretch) int64) packed { return columnOf(p, shapes, value) }
	out.Arena = of(func(s *keyframes.Stretch) int64 { return int64(s.Arena) })
	out.Kind = of(kindOf)
	out.Addr = of(func(s *keyframes.Stretch) int64 { return s.Addr - r.Arenas[s.Arena].Base })
	out.Bytes = of(func(s *keyframes.Stretch) int64 { return s.Bytes })
	out.Excess = of(func(s *keyframes.Stretch) int64 { return s.Bytes - s.Requested })
	out.Origin = of(func(s *keyframes.Stretch) int64 { return int64(s.Origin) })
	out.Times, out.From, out.To = p.column(times), p.column(from), p.column(to)
}

func newNames(p *pack, k *keyframes.Result) (out namesData) {
	var names texts
	of := func(value func(*keyframes.Origin) int64) packed { return columnOf(p, k.Origins, value) }
	out.Name = of(func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Name, frameWidth)) })
	out.Repeated = of(func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Kind, frameWidth)) })
	out.Module = of(func(o *keyframes.Origin) int64 {
		if o.Module {
			return 1
		}
		return 0
	})
	out.Category = of(func(o *keyframes.Origin) int64 { return names.of(o.Category.String()) })
	out.Phase = of(func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Phase, 40)) })
	out.Stack = of(func(o *keyframes.Origin) int64 { return int64(o.Stack) })
	out.Frame = columnOf(p, k.Stacks, func(f *keyframes.StackFrame) int64 { return names.of(plain.Shorten(f.Frame, frameWidth)) })
	out.Parent = columnOf(p, k.Stacks, func(f *keyframes.StackFrame) int64 { return int64(f.Parent) })
	out.Strings = names.strings()
	return out
}
