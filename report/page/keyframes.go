package page

import (
	"maps"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/plain"
)

// frameWidth is the most columns of a frame or of a module's path.
const frameWidth = 160

// newKeyframes are the stored instants, and the stretches of addresses at each.
func newKeyframes(p *pack, k *keyframes.Result, r *analysis.Result, frames []keyframes.Frame) columns {
	out := columnsOf(p, frames, []column[keyframes.Frame]{
		{"seq", func(f *keyframes.Frame) int64 { return f.At.Seq }},
		{"time", func(f *keyframes.Frame) int64 { return f.At.Time }},
		{"why", func(f *keyframes.Frame) int64 { return int64(f.Why) }}, // bits: keyframes.Reason
		{"t", func(f *keyframes.Frame) int64 { return f.At.T }},
		{"c", func(f *keyframes.Frame) int64 { return f.At.C }},
		{"r", func(f *keyframes.Frame) int64 { return f.At.R }},
		{"rounding", func(f *keyframes.Frame) int64 { return f.At.Rounding }},
		{"slack", func(f *keyframes.Frame) int64 { return f.At.Slack }},
		{"pending", func(f *keyframes.Frame) int64 { return f.At.Pending }},
		{"stranded", func(f *keyframes.Frame) int64 { return f.At.Stranded }},
		{"reusable", func(f *keyframes.Frame) int64 { return f.At.Reusable }},
		{"reserve", func(f *keyframes.Frame) int64 { return f.At.Reserve }},
		{"external", func(f *keyframes.Frame) int64 { return f.At.External }},
		{"not_requested", func(f *keyframes.Frame) int64 { return f.At.NotRequested }},
		{"live", func(f *keyframes.Frame) int64 { return f.At.Live }},
		{"paused", func(f *keyframes.Frame) int64 { return f.At.Paused }},
	})
	out["iterationsEach"], out["eventsEach"], out["of"] = k.IterationsEach, k.EventsEach, len(k.Frames) // the page may have fewer
	maps.Copy(out, newStretches(p, keptStretches(k, frames), r))
	maps.Copy(out, newNames(p, k))
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

// newStretches joins stretches of equal shape, which are in order of time.
//
// A shape is a stretch without its time. Jobs repeat themselves, so one shape appears and disappears many
// times. Shape i exists in times[i] spans of frames, which follow each other in from and to. From is
// relative to the to before it, to to its from.
func newStretches(p *pack, all []keyframes.Stretch, r *analysis.Result) columns {
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
	out := columnsOf(p, shapes, []column[keyframes.Stretch]{
		{"arena", func(s *keyframes.Stretch) int64 { return int64(s.Arena) }}, // index
		{"kind", kindOf},
		{"addr", func(s *keyframes.Stretch) int64 { return s.Addr - r.Arenas[s.Arena].Base }},
		{"bytes", func(s *keyframes.Stretch) int64 { return s.Bytes }},
		{"excess", func(s *keyframes.Stretch) int64 { return s.Bytes - s.Requested }},
		{"origin", func(s *keyframes.Stretch) int64 { return int64(s.Origin) }}, // index, -1 for none
	})
	out["times"], out["from"], out["to"] = p.column(times), p.column(from), p.column(to)
	return out
}

// newNames are the names that origins have: indices into strings, but for module, which is 1 where the name is the path
// of one, and stack, which is the index of the innermost frame, -1 for none.
func newNames(p *pack, k *keyframes.Result) columns {
	var names texts
	out := columnsOf(p, k.Origins, []column[keyframes.Origin]{
		{"name", func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Name, frameWidth)) }},
		{"repeated", func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Kind, frameWidth)) }},
		{"module", func(o *keyframes.Origin) int64 {
			if o.Module {
				return 1
			}
			return 0
		}},
		{"category", func(o *keyframes.Origin) int64 { return names.of(o.Category.String()) }},
		{"phase", func(o *keyframes.Origin) int64 { return names.of(plain.Shorten(o.Phase, 40)) }},
		{"stack", func(o *keyframes.Origin) int64 { return int64(o.Stack) }},
	})
	maps.Copy(out, columnsOf(p, k.Stacks, []column[keyframes.StackFrame]{
		{"frame", func(f *keyframes.StackFrame) int64 { return names.of(plain.Shorten(f.Frame, frameWidth)) }}, // of a node
		{"parent", func(f *keyframes.StackFrame) int64 { return int64(f.Parent) }},
	}))
	out["strings"] = names.strings()
	return out
}
