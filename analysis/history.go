package analysis

import (
	"cmp"
	"fmt"
	"github.com/memprof/memprof/analysis/ledger"
	"math"
	"slices"
)

// history remembers stretches of addresses that have gone and were there at a keyframe, of all
// devices of a process. The keyframes chosen so far decide; when many stretches are
// remembered, those of keyframes that were given up since are forgotten, and when that
// does not help, keyframes are given up. So memory is bounded by what was live at the fewest
// keyframes that are kept.
type history struct {
	now     int64 // seq of the event at hand
	limit   int
	gone    []lifetime
	devices []*keyframes
}

// lifetime is a stretch that was there after the events [from, to).
type lifetime struct {
	block
	from, to int64
	kind     StretchKind
	region   bool
	keys     *keyframes
}

// add remembers a stretch, unless no keyframe is in its life.
func (h *history) add(l lifetime) {
	if l.keys.latest < l.from || l.from >= l.to {
		return
	}
	if len(h.gone) >= h.limit {
		h.prune()
	}
	h.gone = append(h.gone, l)
}

// prune forgets what no keyframe needs any more.
func (h *history) prune() {
	for {
		h.forget()
		if len(h.gone) <= h.limit/2 {
			return
		}
		thinned := false
		for _, k := range h.devices {
			thinned = k.thin() || thinned
		}
		if !thinned {
			h.limit = max(h.limit, 2*len(h.gone))
			return
		}
	}
}

func (h *history) forget() {
	seqs := map[*keyframes][]int64{}
	for _, k := range h.devices {
		seqs[k] = k.seqs()
	}
	h.gone = slices.DeleteFunc(h.gone, func(l lifetime) bool {
		at, _ := slices.BinarySearch(seqs[l.keys], l.from)
		return at == len(seqs[l.keys]) || seqs[l.keys][at] >= l.to
	})
}

// seqs are those of the keyframes chosen so far, ascending.
func (k *keyframes) seqs() []int64 {
	frames := k.frames(k.device)
	out := make([]int64, len(frames))
	for i := range frames {
		out[i] = frames[i].At.Seq
	}
	return out
}

// Gone remembers a block, live or pending, that becomes free.
func (k *keyframes) Gone(s *ledger.Segment) {
	if k.latest < s.Seq {
		return
	}
	for _, l := range k.lifetimes(s, k.history.now) {
		k.history.add(l)
	}
}

// lifetimes are those of a live or pending block up to an event. A pending one was live before. What is told
// of it while it is pending is told of both.
func (k *keyframes) lifetimes(s *ledger.Segment, to int64) []lifetime {
	l := lifetime{block: s.Block(), from: s.Seq, to: to, kind: StretchLive, keys: k}
	if s.Kind != ledger.PendingSegment {
		return []lifetime{l}
	}
	pending := l
	pending.kind, pending.from, l.to = StretchPending, s.Freed, s.Freed
	return []lifetime{l, pending}
}

// Touched remembers r, mapped by the event seq, which is not untouched any more.
func (k *keyframes) Touched(arena int32, r ledger.Range, seq int64) {
	k.history.add(lifetime{
		block: block{Addr: r.From, Size: r.Bytes(), Arena: arena}, from: seq, to: k.history.now, kind: StretchUntouched, keys: k,
	})
}

// mapping is a range of an arena and the event that mapped it.
type mapping struct {
	ledger.Range
	seq    int64
	region bool
}

// map and unmap follow what is mapped of an arena, range by range: a keyframe may lie between
// two of them.

func (ar *arena) keepMapping(r ledger.Range, seq int64, region bool) {
	if ar.device.keys == nil {
		return
	}
	ar.mappings.Set(r.From, mapping{r, seq, region})
}

// mappingIn is the first of an arena's mappings that has an address of r.
func (ar *arena) mappingIn(r ledger.Range) (found mapping, ok bool) {
	look := func(_ int64, m mapping) bool {
		found, ok = m, m.To > r.From && m.From < r.To
		return false
	}
	if ar.mappings.Descend(r.From, look); !ok {
		ar.mappings.Ascend(r.From, look)
	}
	return found, ok
}

func (ar *arena) forgetMapping(r ledger.Range) {
	k := ar.device.keys
	if k == nil {
		return
	}
	for {
		m, ok := ar.mappingIn(r)
		if !ok {
			return
		}
		k.history.add(m.lifetime(ar.Index, ledger.Range{From: max(m.From, r.From), To: min(m.To, r.To)}, k.history.now, k))
		ar.mappings.Delete(m.From)
		if m.From < r.From {
			ar.mappings.Set(m.From, mapping{ledger.Range{From: m.From, To: r.From}, m.seq, m.region})
		}
		if m.To > r.To {
			ar.mappings.Set(r.To, mapping{ledger.Range{From: r.To, To: m.To}, m.seq, false})
		}
	}
}

// lifetime is the part r of a mapping, up to an event.
func (m *mapping) lifetime(arena int32, r ledger.Range, to int64, k *keyframes) lifetime {
	return lifetime{
		block: block{Addr: r.From, Size: r.Bytes(), Arena: arena}, from: m.seq, to: to, kind: StretchMapped,
		region: m.region && r.From == m.From, keys: k,
	}
}

// finishKeyframes says what the address space of a device was at its keyframes.
func (a *analyzer) finishKeyframes(d *device) error {
	k := d.keys
	if k == nil {
		return nil
	}
	out := &Keyframes{IterationsEach: k.iterations.size, EventsEach: k.events.size, GrowthsEach: k.each}
	d.result.Keyframes = out
	out.Frames = k.frames(d)
	if len(out.Frames) > 0 && a.lastSeq >= out.Frames[len(out.Frames)-1].At.Seq {
		out.Frames = mergeFrames(append(out.Frames, Keyframe{d.Instant(a.lastSeq, a.lastTime), IsLast, -1}))
	}
	at := d.log.IndexAt
	for i := range out.Frames {
		f := &out.Frames[i].At
		if d.result.Period > 0 { // iterations were found at the end
			f.Iteration = at(f.Seq)
		}
		if d.samples != nil {
			f.C = -1
		}
	}
	b := keyBuilder{a: a, out: out, holders: map[heldAs]int32{}, stacks: map[int64]int32{}}
	for i := range a.history.gone {
		if l := &a.history.gone[i]; l.keys == k {
			b.add(l)
		}
	}
	a.lifetimesNow(d, b.add)
	slices.SortFunc(out.Stretches, func(x, y Stretch) int {
		return cmp.Or(cmp.Compare(x.Arena, y.Arena), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Addr, y.Addr),
			cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.From, y.From))
	})
	return out.check(a.arenas, d.samples != nil)
}

// lifetimesNow are the stretches that the trace ends with.
func (a *analyzer) lifetimesNow(d *device, add func(*lifetime)) {
	for _, ar := range a.arenas {
		if ar.device != d {
			continue
		}
		ar.mappings.Scan(func(_ int64, m mapping) bool {
			l := m.lifetime(ar.Index, m.Range, math.MaxInt64, d.keys)
			add(&l)
			return true
		})
		a.ledger.Each(ar.Arena, func(s *ledger.Segment) {
			switch s.Kind {
			case ledger.LiveSegment, ledger.PendingSegment:
				for _, l := range d.keys.lifetimes(s, math.MaxInt64) {
					add(&l)
				}
			case ledger.UntouchedSegment:
				add(&lifetime{
					block: block{Addr: s.Addr, Size: s.Size, Arena: ar.Index}, from: s.Seq, to: math.MaxInt64, kind: StretchUntouched, keys: d.keys,
				})
			}
		})
	}
}

// heldAs is what is told of a block.
type heldAs struct {
	context, label int32
	category       Category
	phase          uint8
}

// keyBuilder turns lifetimes into stretches.
type keyBuilder struct {
	a       *analyzer
	out     *Keyframes
	holders map[heldAs]int32
	stacks  map[int64]int32
}

// add makes a stretch of a lifetime, or several where its arena was paused in between. An arena that lies
// over a range of a graph memory has none of the device's memory.
func (b *keyBuilder) add(l *lifetime) {
	if b.a.arenas[l.Arena].Over {
		return
	}
	frames := b.out.Frames
	after := func(seq int64) int32 {
		at, _ := slices.BinarySearchFunc(frames, seq, func(f Keyframe, seq int64) int { return cmp.Compare(f.At.Seq, seq) })
		return int32(at)
	}
	s := Stretch{
		Arena: l.Arena, Kind: l.kind, Region: l.region, Addr: l.Addr, Bytes: l.Size, Holder: -1,
		From: after(l.from), To: after(l.to),
	}
	if s.From >= s.To {
		return
	}
	if l.kind == StretchLive {
		s.Requested = l.Requested
		s.Holder = b.holder(&l.block)
	}
	end := s.To
	for _, pause := range b.a.arenas[l.Arena].Pauses() {
		if s.To = min(end, after(pause.From)); s.From < s.To {
			b.out.Stretches = append(b.out.Stretches, s)
		}
		s.From = max(s.From, after(pause.To))
	}
	if s.To = end; s.From < s.To {
		b.out.Stretches = append(b.out.Stretches, s)
	}
}

func (b *keyBuilder) holder(of *block) int32 {
	key := heldAs{of.Context, of.Label, b.a.attribution.Category(of), of.Phase}
	at, known := b.holders[key]
	if known {
		return at
	}
	origin := b.a.attribution.OriginOf(of.Context, of.Label)
	at = int32(len(b.out.Holders))
	b.holders[key] = at
	b.out.Holders = append(b.out.Holders, KeyHolder{
		Owner: origin.Name, Kind: origin.Kind(), Module: origin.Module, Category: key.category,
		Phase: b.a.attribution.Phases.Name(of.Phase), Stack: b.stack(b.a.attribution.StackOf(of.Context)),
	})
	return at
}

// stack is the index of a node, its callers listed before it.
func (b *keyBuilder) stack(node int64) int32 {
	var chain []int64
	parent := int32(-1)
	for node != 0 {
		if at, known := b.stacks[node]; known {
			parent = at
			break
		}
		chain = append(chain, node)
		_, node = b.a.attribution.Caller(node)
	}
	for _, node := range slices.Backward(chain) {
		frame, _ := b.a.attribution.Caller(node)
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
func (s *Stretch) part() (part ledger.Split) {
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
	return part
}

// check holds the sums of the stretches of each frame against its instant. The largest free chunk,
// which divides what was touched, is not looked for.
func (k *Keyframes) check(arenas []*arena, sampled bool) error {
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
			now.all, now.arenas[s.Arena] = now.all.Minus(s.part()), now.arenas[s.Arena].Minus(s.part())
		}
		for _, at := range begin[i] {
			s := &k.Stretches[at]
			now.all, now.arenas[s.Arena] = now.all.Plus(s.part()), now.arenas[s.Arena].Plus(s.part())
		}
		at, found := k.Frames[i].At, k.Frames[i].At
		now.all.Fill(&found)
		view := now.arenas[index[at.View]]
		ledger.FreeTermsOf(&view, at.Reusable, now.all.Free()).Fill(&found)
		if sampled { // C and the parts of what is free are not those of chunks
			found.C, found.Slack, found.Rounding, found.Unsplit = at.C, at.Slack, at.Rounding, at.Unsplit
			found.Stranded, found.Reserve, found.Reusable, found.External = at.Stranded, at.Reserve, at.Reusable, at.External
		}
		if found != at {
			return fmt.Errorf("keyframe %d does not add up: %+v, stretches %+v", i, at, found)
		}
	}
	return nil
}
