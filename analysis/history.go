package analysis

import (
	"cmp"
	"fmt"
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

// blockGone is told of a block, live or pending, that is neither from now on.
func (k *keyframes) blockGone(s *segment) {
	if k.latest < s.seq {
		return
	}
	for _, l := range k.lifetimes(s, k.history.now) {
		k.history.add(l)
	}
}

// lifetimes are those of a live or pending block up to an event. A pending one was live before. What is told
// of it while it is pending is told of both.
func (k *keyframes) lifetimes(s *segment, to int64) []lifetime {
	l := lifetime{block: blockOf(s), from: s.seq, to: to, kind: StretchLive, keys: k}
	if s.kind != segmentPending {
		return []lifetime{l}
	}
	pending := l
	pending.kind, pending.from, l.to = StretchPending, s.freed, s.freed
	return []lifetime{l, pending}
}

// touched is told that r, mapped by the event of seq, is not untouched any more.
func (k *keyframes) touched(arena int32, r addressRange, seq int64) {
	k.history.add(lifetime{
		block: block{Addr: r.from, Size: r.bytes(), Arena: arena}, from: seq, to: k.history.now, kind: StretchUntouched, keys: k,
	})
}

// mapping is a range of an arena and the event that mapped it.
type mapping struct {
	addressRange
	seq    int64
	region bool
}

// map and unmap follow what is mapped of an arena, range by range: a keyframe may lie between
// two of them.

func (ar *arena) keepMapping(r addressRange, seq int64, region bool) {
	if ar.device.keys == nil {
		return
	}
	ar.mappings.Set(r.from, mapping{r, seq, region})
}

// mappingIn is the first of an arena's mappings that has an address of r.
func (ar *arena) mappingIn(r addressRange) (found mapping, ok bool) {
	look := func(_ int64, m mapping) bool {
		found, ok = m, m.to > r.from && m.from < r.to
		return false
	}
	if ar.mappings.Descend(r.from, look); !ok {
		ar.mappings.Ascend(r.from, look)
	}
	return found, ok
}

func (ar *arena) forgetMapping(r addressRange) {
	k := ar.device.keys
	if k == nil {
		return
	}
	for {
		m, ok := ar.mappingIn(r)
		if !ok {
			return
		}
		k.history.add(m.lifetime(ar.index, addressRange{max(m.from, r.from), min(m.to, r.to)}, k.history.now, k))
		ar.mappings.Delete(m.from)
		if m.from < r.from {
			ar.mappings.Set(m.from, mapping{addressRange{m.from, r.from}, m.seq, m.region})
		}
		if m.to > r.to {
			ar.mappings.Set(r.to, mapping{addressRange{r.to, m.to}, m.seq, false})
		}
	}
}

// lifetime is the part r of a mapping, up to an event.
func (m *mapping) lifetime(arena int32, r addressRange, to int64, k *keyframes) lifetime {
	return lifetime{
		block: block{Addr: r.from, Size: r.bytes(), Arena: arena}, from: m.seq, to: to, kind: StretchMapped,
		region: m.region && r.from == m.from, keys: k,
	}
}

// finishKeyframes says what the address space of a device was at its keyframes.
func (a *analyzer) finishKeyframes(d *device) error {
	k := d.keys
	if k == nil {
		return nil
	}
	out := &Keyframes{IterationsEach: k.iterations.size, EventsEach: k.events.size, GrowthsEach: k.each}
	d.Keyframes = out
	out.Frames = k.frames(d)
	if len(out.Frames) > 0 && a.lastSeq >= out.Frames[len(out.Frames)-1].At.Seq {
		out.Frames = mergeFrames(append(out.Frames, Keyframe{d.instant(a.lastSeq, a.lastTime), IsLast, -1}))
	}
	at := d.log.IndexAt
	for i := range out.Frames {
		f := &out.Frames[i].At
		if d.Period > 0 { // iterations were found at the end
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
			l := m.lifetime(ar.index, m.addressRange, math.MaxInt64, d.keys)
			add(&l)
			return true
		})
		for i := ar.head; i != none; i = a.ledger.segments[i].next {
			s := &a.ledger.segments[i]
			switch s.kind {
			case segmentLive, segmentPending:
				for _, l := range d.keys.lifetimes(s, math.MaxInt64) {
					add(&l)
				}
			case segmentUntouched:
				add(&lifetime{
					block: block{Addr: s.addr, Size: s.size, Arena: ar.index}, from: s.seq, to: math.MaxInt64, kind: StretchUntouched, keys: d.keys,
				})
			}
		}
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
	if b.a.arenas[l.Arena].over {
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
	for _, pause := range b.a.arenas[l.Arena].pauses {
		if s.To = min(end, after(pause.from)); s.From < s.To {
			b.out.Stretches = append(b.out.Stretches, s)
		}
		s.From = max(s.From, after(pause.to))
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
	all    split
	arenas map[int32]split // by index into Result.Arenas
}

// part is what a stretch is of the sums.
func (s *Stretch) part() (part split) {
	switch s.Kind {
	case StretchMapped:
		part.r, part.touched = s.Bytes, s.Bytes
	case StretchUntouched:
		part.untouched, part.touched = s.Bytes, -s.Bytes
	case StretchPending:
		part.pending, part.touched = s.Bytes, -s.Bytes
	case StretchLive:
		part.t, part.c, part.live, part.touched = s.Requested, s.Bytes, 1, -s.Bytes
		part.rounding = roundingOf(s.Requested, s.Bytes)
		part.slack = s.Bytes - s.Requested - part.rounding
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
		index[ar.info.ID] = ar.index
	}
	now := keySums{arenas: map[int32]split{}}
	for i := range k.Frames {
		for _, at := range end[i] {
			s := &k.Stretches[at]
			now.all, now.arenas[s.Arena] = now.all.minus(s.part()), now.arenas[s.Arena].minus(s.part())
		}
		for _, at := range begin[i] {
			s := &k.Stretches[at]
			now.all, now.arenas[s.Arena] = now.all.plus(s.part()), now.arenas[s.Arena].plus(s.part())
		}
		at, found := k.Frames[i].At, k.Frames[i].At
		now.all.fill(&found)
		view := now.arenas[index[at.View]]
		freeTermsOf(&view, at.Reusable, now.all.free()).fill(&found)
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
