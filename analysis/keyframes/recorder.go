package keyframes

import (
	"math"
	"slices"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/analysis/ledger"
)

// MostStretches is how many stretches the recorders of a process remember for keyframes before they give some up.
const MostStretches = 400_000

// Recorder remembers what a device was like after wanted events: which stretches of addresses were there after one of
// them and have gone since. With those that are still there it knows the device after each. In a first pass one event is
// wanted, the peak so far. In a second pass those are the keyframes and the events of spans, all known before.
//
// Host memory is bounded by what was live at the wanted events. Where too much is remembered for keyframes, every second
// one that is not essential is given up.
type Recorder struct {
	device   *ledger.Device
	history  *History
	frames   []Frame                              // wanted, ascending by seq
	gone     []lifetime                           // that were there at one of frames
	exact    []lifetime                           // that were there at an event of the spans
	mappings map[int32]*btree.Map[int64, mapping] // by arena and address, each as it was mapped

	largest   stripes
	paused    []pausedSince
	pausedNow int64
}

// lifetime is a stretch that was there after the events [from, to).
type lifetime struct {
	ledger.Block
	from, to int64
	kind     StretchKind
	region   bool
}

// mapping is a range of an arena and the event that mapped it.
type mapping struct {
	ledger.Range
	seq    int64
	region bool
}

// NewRecorder is the Recorder of a device, whose Keeper it becomes. It wants nothing yet.
func NewRecorder(d *ledger.Device, h *History) *Recorder {
	r := &Recorder{device: d, history: h, mappings: map[int32]*btree.Map[int64, mapping]{}}
	h.recorders = append(h.recorders, r)
	d.Keeper = r
	if h.second {
		d.KeepUntil(math.MaxInt64)
	}
	return r
}

// Want has the device be remembered after keyframes of a second pass.
func (r *Recorder) Want(frames []Frame) { r.frames = slices.Clone(frames) }

// Peak has the device be remembered after the event of a new peak, in place of the last one.
func (r *Recorder) Peak(at ledger.Instant) {
	if r.history.second {
		return
	}
	r.frames, r.gone = r.frames[:0], r.gone[:0]
	r.Wanted(at)
	r.device.KeepUntil(at.Seq)
}

// Wanted has the device be remembered after the event at hand, too.
func (r *Recorder) Wanted(at ledger.Instant) {
	r.frames = append(r.frames, Frame{At: at, Why: essential})
}

// framed says whether a keyframe lies in [from, to).
func (r *Recorder) framed(from, to int64) bool {
	if n := len(r.frames); n == 0 || r.frames[n-1].At.Seq < from {
		return false
	}
	at := after(r.frames, from)
	return int(at) < len(r.frames) && r.frames[at].At.Seq < to
}

// add remembers a stretch, if it was there after a wanted event.
func (r *Recorder) add(l *lifetime) {
	if r.history.has(l.from, l.to) {
		r.exact = append(r.exact, *l)
	}
	if !r.framed(l.from, l.to) {
		return
	}
	if len(r.gone) >= r.history.limit {
		r.prune()
	}
	r.gone = append(r.gone, *l)
}

// prune gives keyframes up and forgets what only they needed.
func (r *Recorder) prune() {
	for len(r.gone) > r.history.limit/2 {
		kept := EverySecond(r.frames)
		if len(kept) == len(r.frames) {
			r.history.limit = max(r.history.limit, 2*len(r.gone))
			return
		}
		r.frames = kept
		r.gone = slices.DeleteFunc(r.gone, func(l lifetime) bool { return !r.framed(l.from, l.to) })
	}
}

// EverySecond drops every second of the frames that are not essential.
func EverySecond(frames []Frame) (kept []Frame) {
	spare := 0
	for i := range frames {
		if !frames[i].Essential() {
			if spare++; spare%2 != 0 {
				continue
			}
		}
		kept = append(kept, frames[i])
	}
	return kept
}

// Gone remembers a block, live or pending, that becomes free.
func (r *Recorder) Gone(s *ledger.Segment) {
	if r.history.second && len(r.frames) > 0 { // stripes are shown with keyframes
		r.stripeGone(s)
	}
	now := r.history.Now
	if !r.framed(s.Seq, now) && !r.history.has(s.Seq, now) {
		return
	}
	lives, n := livesOf(s, now)
	for i := range lives[:n] {
		r.add(&lives[i])
	}
}

// livesOf are the stretches of a live or pending block up to an event. A pending block was live before, and one that was
// shrunk was larger. All get what is recorded of the block while it is pending.
func livesOf(s *ledger.Segment, to int64) (all [3]lifetime, n int) {
	put := func(l lifetime) {
		all[n] = l
		n++
	}
	l := lifetime{Block: s.Block(), from: s.Seq, to: to, kind: StretchLive}
	if seq, lost := s.Shrunk(); seq > 0 {
		larger := l
		larger.Size, larger.to, l.from = l.Size+lost, seq, seq
		put(larger)
	}
	if s.Kind == ledger.PendingSegment {
		pending := l
		pending.kind, pending.from, l.to = StretchPending, s.Freed, s.Freed
		put(pending)
	}
	put(l)
	return all, n
}

// Touched remembers x, mapped by the event seq, which is not untouched any more.
func (r *Recorder) Touched(arena int32, x ledger.Range, seq int64) {
	l := lifetime{Block: ledger.Block{Addr: x.From, Size: x.Bytes(), Arena: arena}, from: seq, to: r.history.Now, kind: StretchUntouched}
	if n := len(r.gone); n > 0 && !r.history.second && r.framed(l.from, l.to) {
		// Requests often take neighbouring ranges one after the other. Joined, they keep the log short.
		if last := &r.gone[n-1]; last.kind == StretchUntouched && last.Arena == arena && (last.Addr+last.Size == x.From || x.To == last.Addr) {
			last.Addr, last.Size = min(last.Addr, x.From), last.Size+l.Size
			return
		}
	}
	r.add(&l)
}

// Map takes a mapping of an arena by the event seq, which may start a region.
func (r *Recorder) Map(arena int32, x ledger.Range, seq int64, region bool) {
	mapped := r.mappings[arena]
	if mapped == nil {
		mapped = &btree.Map[int64, mapping]{}
		r.mappings[arena] = mapped
	}
	mapped.Set(x.From, mapping{x, seq, region})
}

// Joined notes that what is mapped from addr on starts no region any more.
func (r *Recorder) Joined(arena int32, addr int64) {
	mapped := r.mappings[arena]
	if mapped == nil {
		return
	}
	m, ok := mapped.Get(addr)
	if !ok || !m.region {
		return
	}
	l := m.lifetime(arena, m.Range, r.history.Now)
	r.add(&l)
	m.region, m.seq = false, r.history.Now
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
func (r *Recorder) Unmap(arena int32, x ledger.Range) {
	mapped := r.mappings[arena]
	if mapped == nil {
		return
	}
	for {
		m, ok := mappingIn(mapped, x)
		if !ok {
			return
		}
		l := m.lifetime(arena, ledger.Range{From: max(m.From, x.From), To: min(m.To, x.To)}, r.history.Now)
		r.add(&l)
		mapped.Delete(m.From)
		if m.From < x.From {
			mapped.Set(m.From, mapping{ledger.Range{From: m.From, To: x.From}, m.seq, m.region})
		}
		if m.To > x.To {
			mapped.Set(x.To, mapping{ledger.Range{From: x.To, To: m.To}, m.seq, false})
		}
	}
}

// lifetime is the part x of a mapping, up to an event.
func (m *mapping) lifetime(arena int32, x ledger.Range, to int64) lifetime {
	return lifetime{
		Block: ledger.Block{Addr: x.From, Size: x.Bytes(), Arena: arena}, from: m.seq, to: to, kind: StretchMapped,
		region: m.region && x.From == m.From,
	}
}

// present are the stretches that are there after the last event.
func (r *Recorder) present(of *ledger.Ledger, add func(*lifetime)) {
	for _, ar := range of.Arenas {
		if ar.Device != r.device {
			continue
		}
		if mapped := r.mappings[ar.Index]; mapped != nil {
			mapped.Scan(func(_ int64, m mapping) bool {
				l := m.lifetime(ar.Index, m.Range, math.MaxInt64)
				add(&l)
				return true
			})
		}
		of.Each(ar, func(s *ledger.Segment) {
			switch s.Kind {
			case ledger.LiveSegment, ledger.PendingSegment:
				lives, n := livesOf(s, math.MaxInt64)
				for i := range lives[:n] {
					add(&lives[i])
				}
			}
		})
		ar.EachUntouched(func(x ledger.Range, seq int64) {
			add(&lifetime{Block: ledger.Block{Addr: x.From, Size: x.Bytes(), Arena: ar.Index}, from: seq, to: math.MaxInt64, kind: StretchUntouched})
		})
	}
}
