package keyframes

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// History remembers stretches of addresses that have gone and were there at a keyframe, of all
// devices of a process. The keyframes chosen so far decide; when many stretches are
// remembered, those of keyframes that were given up since are forgotten, and when that
// does not help, keyframes are given up. So memory is bounded by what was live at the fewest
// keyframes that are kept.
type History struct {
	Now     int64 // seq of the event at hand
	limit   int
	gone    []lifetime
	devices []*Tracker
	exact   *exactLog // nil unless KeepAll
	clock   clock
}

// lifetime is a stretch that was there after the events [from, to).
type lifetime struct {
	ledger.Block
	from, to int64
	kind     StretchKind
	region   bool
	keys     *Tracker
}

// NewHistory is a History that remembers so many stretches at a time, before it gives keyframes up.
func NewHistory(limit int) *History { return &History{limit: limit} }

// add remembers a stretch, unless no keyframe is in its life, nor an event of which all is kept.
func (h *History) add(l lifetime) {
	if h.exact.has(l.from, l.to) {
		h.exact.gone = append(h.exact.gone, l)
	}
	if l.keys.latest < l.from || l.from >= l.to {
		return
	}
	if len(h.gone) >= h.limit {
		h.prune()
	}
	h.gone = append(h.gone, l)
}

// prune forgets what no keyframe needs any more.
func (h *History) prune() {
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

func (h *History) forget() {
	seqs := map[*Tracker][]int64{}
	for _, k := range h.devices {
		seqs[k] = k.seqs()
	}
	h.gone = slices.DeleteFunc(h.gone, func(l lifetime) bool {
		at, _ := slices.BinarySearch(seqs[l.keys], l.from)
		return at == len(seqs[l.keys]) || seqs[l.keys][at] >= l.to
	})
}

// seqs are those of the keyframes chosen so far, ascending.
func (k *Tracker) seqs() []int64 {
	frames := k.frames()
	out := make([]int64, len(frames))
	for i := range frames {
		out[i] = frames[i].At.Seq
	}
	return out
}

// Gone remembers a block, live or pending, that becomes free.
func (k *Tracker) Gone(s *ledger.Segment) {
	k.stripeGone(s)
	if k.latest < s.Seq && !k.history.exact.has(s.Seq, k.history.Now) {
		return
	}
	for _, l := range k.lifetimes(s, k.history.Now) {
		k.history.add(l)
	}
}

// lifetimes returns those of a live or pending block up to an event. A pending block was live before: it has
// two, and both get what is recorded of it while it is pending.
func (k *Tracker) lifetimes(s *ledger.Segment, to int64) []lifetime {
	l := lifetime{Block: s.Block(), from: s.Seq, to: to, kind: StretchLive, keys: k}
	var all []lifetime
	if seq, lost := s.Shrunk(); seq > 0 {
		larger := l
		larger.Size, larger.to, l.from = l.Size+lost, seq, seq
		all = append(all, larger)
	}
	if s.Kind != ledger.PendingSegment {
		return append(all, l)
	}
	pending := l
	pending.kind, pending.from, l.to = StretchPending, s.Freed, s.Freed
	return append(all, l, pending)
}

// Touched remembers r, mapped by the event seq, which is not untouched any more.
func (k *Tracker) Touched(arena int32, r ledger.Range, seq int64) {
	k.history.add(lifetime{
		Block: ledger.Block{Addr: r.From, Size: r.Bytes(), Arena: arena}, from: seq, to: k.history.Now, kind: StretchUntouched, keys: k,
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

// Map takes a mapping of an arena by the event seq, which may start a region.
func (k *Tracker) Map(arena int32, r ledger.Range, seq int64, region bool) {
	mapped := k.mappings[arena]
	if mapped == nil {
		mapped = &btree.Map[int64, mapping]{}
		k.mappings[arena] = mapped
	}
	mapped.Set(r.From, mapping{r, seq, region})
}

// Joined notes that what is mapped from addr on starts no region any more.
func (k *Tracker) Joined(arena int32, addr int64) {
	mapped := k.mappings[arena]
	if mapped == nil {
		return
	}
	m, ok := mapped.Get(addr)
	if !ok || !m.region {
		return
	}
	k.history.add(m.lifetime(arena, m.Range, k.history.Now, k))
	m.region, m.seq = false, k.history.Now
	mapped.Set(addr, m)
}

// mappingIn is the first of the mappings that has an address of r.
func mappingIn(mapped *btree.Map[int64, mapping], r ledger.Range) (found mapping, ok bool) {
	look := func(_ int64, m mapping) bool {
		found, ok = m, m.To > r.From && m.From < r.To
		return false
	}
	if mapped.Descend(r.From, look); !ok {
		mapped.Ascend(r.From, look)
	}
	return found, ok
}

// Unmap takes an unmapping of an arena.
func (k *Tracker) Unmap(arena int32, r ledger.Range) {
	mapped := k.mappings[arena]
	if mapped == nil {
		return
	}
	for {
		m, ok := mappingIn(mapped, r)
		if !ok {
			return
		}
		k.history.add(m.lifetime(arena, ledger.Range{From: max(m.From, r.From), To: min(m.To, r.To)}, k.history.Now, k))
		mapped.Delete(m.From)
		if m.From < r.From {
			mapped.Set(m.From, mapping{ledger.Range{From: m.From, To: r.From}, m.seq, m.region})
		}
		if m.To > r.To {
			mapped.Set(r.To, mapping{ledger.Range{From: r.To, To: m.To}, m.seq, false})
		}
	}
}

// lifetime is the part r of a mapping, up to an event.
func (m *mapping) lifetime(arena int32, r ledger.Range, to int64, k *Tracker) lifetime {
	return lifetime{
		Block: ledger.Block{Addr: r.From, Size: r.Bytes(), Arena: arena}, from: m.seq, to: to, kind: StretchMapped,
		region: m.region && r.From == m.From, keys: k,
	}
}

// End is what Finish needs of the end of the pass.
type End struct {
	Ledger      *ledger.Ledger
	Attribution *attribution.Tracker
	Last        ledger.Instant // the state after the last event
	// IterationAt, unless nil, gives the iteration of a seq: iterations were found at the end only.
	IterationAt func(seq int64) int
	Native      bool // an allocator that was only observed serves the device
}

// Finish says what the address space of the device was at its keyframes. An error is one that does not
// add up.
func (k *Tracker) Finish(end End) (*Result, error) {
	out := &Result{IterationsEach: k.iterations.size, EventsEach: k.events.size, GrowthsEach: k.each}
	out.Frames = k.frames()
	if n := len(out.Frames); n > 0 && end.Last.Seq >= out.Frames[n-1].At.Seq {
		out.Frames = mergeFrames(append(out.Frames, Frame{end.Last, IsLast, -1}))
	}
	for i := range out.Frames {
		f := &out.Frames[i].At
		if end.IterationAt != nil {
			f.Iteration = end.IterationAt(f.Seq)
		}
		if end.Native {
			f.C = -1
		}
	}
	b := builder{ledger: end.Ledger, who: end.Attribution, out: out, origins: map[originKey]int32{}, stacks: map[int64]int32{}}
	frames := out.Frames
	b.after = func(seq int64) int32 {
		at, _ := slices.BinarySearchFunc(frames, seq, func(f Frame, seq int64) int { return cmp.Compare(f.At.Seq, seq) })
		return int32(at)
	}
	for i := range k.history.gone {
		if l := &k.history.gone[i]; l.keys == k {
			b.add(l)
		}
	}
	k.lifetimesNow(end.Ledger, b.add)
	sortStretches(b.stretches)
	out.Stretches = b.stretches
	out.Exact = k.exactly(&b, &end)
	out.Largest = k.stripesOf(&b, &end)
	return out, out.check(end.Ledger.Arenas, end.Native)
}

func sortStretches(all []Stretch) {
	slices.SortFunc(all, func(x, y Stretch) int {
		return cmp.Or(cmp.Compare(x.Arena, y.Arena), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Addr, y.Addr),
			cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.From, y.From))
	})
}

// lifetimesNow are the stretches that the trace ends with.
func (k *Tracker) lifetimesNow(of *ledger.Ledger, add func(*lifetime)) {
	for _, ar := range of.Arenas {
		if ar.Device != k.device {
			continue
		}
		if mapped := k.mappings[ar.Index]; mapped != nil {
			mapped.Scan(func(_ int64, m mapping) bool {
				l := m.lifetime(ar.Index, m.Range, math.MaxInt64, k)
				add(&l)
				return true
			})
		}
		of.Each(ar, func(s *ledger.Segment) {
			switch s.Kind {
			case ledger.LiveSegment, ledger.PendingSegment:
				for _, l := range k.lifetimes(s, math.MaxInt64) {
					add(&l)
				}
			case ledger.UntouchedSegment:
				add(&lifetime{
					Block: ledger.Block{Addr: s.Addr, Size: s.Size, Arena: ar.Index}, from: s.Seq, to: math.MaxInt64, kind: StretchUntouched, keys: k,
				})
			}
		})
	}
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
func (k *Result) check(arenas []*ledger.Arena, native bool) error {
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
		if native { // C and the parts of what is free are not those of chunks
			found.C, found.Slack, found.Rounding, found.NotRequested = at.C, at.Slack, at.Rounding, at.NotRequested
			found.Stranded, found.Reserve, found.Reusable, found.External = at.Stranded, at.Reserve, at.Reusable, at.External
		}
		if found != at {
			return fmt.Errorf("keyframe %d does not add up: %+v, stretches %+v", i, at, found)
		}
	}
	return nil
}
