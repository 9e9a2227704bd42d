package keyframes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// End is what Finish needs of the end of a second pass.
type End struct {
	Ledger      *ledger.Ledger
	Attribution *attribution.Tracker
	Last, Time  int64 // of the last event
}

// Finish says what the address space of the device was after the wanted events. An error is one that does not add up to
// the instant of its keyframe.
func (r *Recorder) Finish(end End) (*Result, error) {
	out := &Result{Frames: r.frames}
	b := builder{ledger: end.Ledger, who: end.Attribution, out: out, origins: map[originKey]int32{}, stacks: map[int64]int32{}}
	b.after = func(seq int64) int32 { return after(r.frames, seq) }
	out.Stretches = r.stretches(&b, &end, r.gone)
	out.Exact = r.exactly(&b, &end)
	out.Largest = r.stripesOf(&b, &end)
	return out, out.check(end.Ledger.Arenas)
}

// after is the first frame whose seq is at least seq.
func after(frames []Frame, seq int64) int32 {
	at, _ := slices.BinarySearchFunc(frames, seq, func(f Frame, seq int64) int { return cmp.Compare(f.At.Seq, seq) })
	return int32(at)
}

// stretches are those of some lifetimes that have gone, and of what is there now.
func (r *Recorder) stretches(b *builder, end *End, gone []lifetime) []Stretch {
	for i := range gone {
		b.add(&gone[i])
	}
	r.present(end.Ledger, b.add)
	slices.SortFunc(b.stretches, func(x, y Stretch) int {
		return cmp.Or(cmp.Compare(x.Arena, y.Arena), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Addr, y.Addr),
			cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.From, y.From))
	})
	return b.stretches
}

// originKey is what was recorded about a block.
type originKey struct {
	context, label int32
	category       attribution.Category
	phase          uint8
}

// builder turns lifetimes into stretches.
type builder struct {
	ledger  *ledger.Ledger
	who     *attribution.Tracker
	out     *Result
	origins map[originKey]int32
	stacks  map[int64]int32

	after     func(seq int64) int32 // the first frame, or position, whose seq is at least seq
	stretches []Stretch
}

// add makes a stretch of a lifetime, or several where its arena was paused in between. An arena that lies
// over a range of a graph memory has none of the device's memory.
func (b *builder) add(l *lifetime) {
	if b.ledger.Arenas[l.Arena].Over {
		return
	}
	after := b.after
	s := Stretch{
		Arena: l.Arena, Kind: l.kind, Region: l.region, Addr: l.Addr, Bytes: l.Size, Origin: -1,
		From: after(l.from), To: after(l.to),
	}
	if s.From >= s.To {
		return
	}
	if l.kind == StretchLive {
		s.Requested = l.Requested
		s.Origin = b.origin(&l.Block)
	}
	end := s.To
	for _, pause := range b.ledger.Arenas[l.Arena].Pauses() {
		if s.To = min(end, after(pause.From)); s.From < s.To {
			b.stretches = append(b.stretches, s)
		}
		s.From = max(s.From, after(pause.To))
	}
	if s.To = end; s.From < s.To {
		b.stretches = append(b.stretches, s)
	}
}

func (b *builder) origin(of *ledger.Block) int32 {
	key := originKey{of.Context, of.Label, b.who.Category(of), of.Phase}
	at, known := b.origins[key]
	if known {
		return at
	}
	origin := b.who.OriginOf(of.Context, of.Label)
	at = int32(len(b.out.Origins))
	b.origins[key] = at
	b.out.Origins = append(b.out.Origins, Origin{
		Name: origin.Name, Kind: origin.Kind(), Module: origin.Module, Category: key.category,
		Phase: b.who.Phases.Name(of.Phase), Stack: b.stack(b.who.StackOf(of.Context)),
	})
	return at
}

// stack is the index of a node, its callers listed before it.
func (b *builder) stack(node int64) int32 {
	var chain []int64
	parent := int32(-1)
	for node != 0 {
		if at, known := b.stacks[node]; known {
			parent = at
			break
		}
		chain = append(chain, node)
		_, node = b.who.Caller(node)
	}
	for _, node := range slices.Backward(chain) {
		frame, _ := b.who.Caller(node)
		b.out.Stacks = append(b.out.Stacks, StackFrame{frame, parent})
		parent = int32(len(b.out.Stacks) - 1)
		b.stacks[node] = parent
	}
	return parent
}

// keySums are the sums of the stretches at a frame: of all arenas, and of each by itself.
type keySums struct {
	all    ledger.Split
	arenas map[int32]ledger.Split // by index into Result.Arenas
}

// part is what a stretch is of the sums.
func (s *Stretch) part(ar *ledger.Arena) ledger.Split {
	part := ledger.Split{Unknown: ar.Unknown}
	switch s.Kind {
	case StretchMapped:
		part.R, part.Touched = s.Bytes, s.Bytes
	case StretchUntouched:
		part.Untouched, part.Touched = s.Bytes, -s.Bytes
	case StretchPending:
		part.Pending, part.Touched = s.Bytes, -s.Bytes
	case StretchLive:
		part.T, part.C, part.Live, part.Touched = s.Requested, s.Bytes, 1, -s.Bytes
		part.Rounding = ledger.RoundingOf(s.Requested, s.Bytes)
		part.Slack = s.Bytes - s.Requested - part.Rounding
	}
	part.Undivided()
	return part
}

// check holds the sums of the stretches of each frame against its instant. The largest free chunk,
// which divides what was touched, is not looked for.
func (k *Result) check(arenas []*ledger.Arena) error {
	begin, end := make([][]int32, len(k.Frames)+1), make([][]int32, len(k.Frames)+1)
	for i := range k.Stretches {
		s := &k.Stretches[i]
		begin[s.From], end[s.To] = append(begin[s.From], int32(i)), append(end[s.To], int32(i))
	}
	index := map[int32]int32{} // of an arena by its ID
	for _, ar := range arenas {
		index[ar.Info.ID] = ar.Index
	}
	now := keySums{arenas: map[int32]ledger.Split{}}
	for i := range k.Frames {
		for _, at := range end[i] {
			s := &k.Stretches[at]
			part := s.part(arenas[s.Arena])
			now.all, now.arenas[s.Arena] = now.all.Minus(part), now.arenas[s.Arena].Minus(part)
		}
		for _, at := range begin[i] {
			s := &k.Stretches[at]
			part := s.part(arenas[s.Arena])
			now.all, now.arenas[s.Arena] = now.all.Plus(part), now.arenas[s.Arena].Plus(part)
		}
		at, found := k.Frames[i].At, k.Frames[i].At
		now.all.Unknown = at.C < 0
		now.all.Fill(&found)
		view := now.arenas[index[at.View]]
		ledger.FreeTermsOf(&view, at.Reusable, now.all.Free()).Fill(&found)
		if found != at {
			return fmt.Errorf("keyframe %d does not add up: %+v, stretches %+v", i, at, found)
		}
	}
	return nil
}
