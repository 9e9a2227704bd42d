package analysis

import (
	"cmp"
	"github.com/memprof/memprof/analysis/ledger"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"pgregory.net/rapid"
)

// naive is the definition, executed: the state of every granule of 256 bytes, from which
// each term is counted anew.
type naive struct {
	text     func(context int32) string
	granules map[int64]*naiveGranule // mapped
	blocks   map[int64]*naiveBlock   // live or pending
	separate map[int32]bool          // arenas whose regions do not coalesce
	regions  []chunk                 // those that something is mapped of
}

type naiveGranule struct {
	arena   int32
	touched bool
	block   *naiveBlock
	start   bool // of a region, which no chunk reaches into from below
}

type naiveBlock struct {
	e       trace.Event
	shared  bool
	pending bool
}

func (n *naive) each(e *trace.Event, do func(addr int64)) {
	for at := e.Addr; at < e.Addr+e.Provided; at += 256 {
		do(at)
	}
}

func (n *naive) apply(e trace.Event) {
	switch e.Kind {
	case trace.KindArena:
		n.separate[e.Arena] = !strings.Contains(n.text(e.Context), "coalesces=1")
	case trace.KindMap:
		n.each(&e, func(at int64) { n.granules[at] = &naiveGranule{arena: e.Arena} })
		n.granules[e.Addr].start = n.separate[e.Arena] && n.startsRegion(&e)
	case trace.KindUnmap:
		n.each(&e, func(at int64) { delete(n.granules, at) })
		n.regions = slices.DeleteFunc(n.regions, func(r chunk) bool {
			for at := range n.granules {
				if r.from <= at && at < r.to {
					return false
				}
			}
			return true
		})
	case trace.KindAlloc:
		b := &naiveBlock{e: e}
		n.blocks[e.Addr] = b
		n.each(&e, func(at int64) {
			n.granules[at].block, n.granules[at].touched = b, true
			n.granules[at].start = n.granules[at].start && at == e.Addr // a block that reaches over the start joins the two
		})
	case trace.KindShrink:
		b := n.blocks[e.Addr]
		for at := e.Addr + e.Provided; at < b.e.Addr+b.e.Provided; at += 256 {
			n.granules[at].block = nil
		}
		b.e.Provided = e.Provided
	case trace.KindStreamUse:
		if b := n.blocks[e.Addr]; b.e.Stream != e.Stream {
			b.shared = true
		}
	case trace.KindFree, trace.KindFreeDone:
		b := n.blocks[e.Addr]
		if b.shared && e.Kind == trace.KindFree {
			b.pending = true
			return
		}
		delete(n.blocks, e.Addr)
		n.each(&b.e, func(at int64) { n.granules[at].block = nil })
	}
}

// count is the state of an arena, or of all for -1.
func (n *naive) count(arena int32) (s ledger.Split) {
	for _, g := range n.granules {
		if arena >= 0 && g.arena != arena {
			continue
		}
		s.R += 256
		switch {
		case g.block == nil && g.touched:
			s.Touched += 256
		case g.block == nil:
			s.Untouched += 256
		case g.block.pending:
			s.Pending += 256
		}
	}
	for _, b := range n.blocks {
		if arena >= 0 && b.e.Arena != arena || b.pending {
			continue
		}
		rounded := (b.e.Requested + 255) / 256 * 256
		s.Live++
		s.T += b.e.Requested
		s.C += b.e.Provided
		s.Rounding += rounded - b.e.Requested
		s.Slack += b.e.Provided - rounded
	}
	return s
}

// chunk is a free chunk and what of it was handed out before.
type chunk struct{ from, to, touched int64 }

// startsRegion says whether a mapping is the first of a region, or at the start of one.
func (n *naive) startsRegion(e *trace.Event) bool {
	for _, r := range n.regions {
		if e.Addr < r.to && r.from < e.Addr+e.Provided {
			return e.Addr == r.from
		}
	}
	n.regions = append(n.regions, chunk{from: e.Addr, to: e.Addr + e.Provided})
	return true
}

// largestFree is the longest run of free granules of an arena, of all for -1; of equal ones the first.
func (n *naive) largestFree(arena int32) (most chunk) {
	var run chunk
	for _, at := range slices.Sorted(maps.Keys(n.granules)) {
		g := n.granules[at]
		if arena >= 0 && g.arena != arena || g.block != nil {
			continue
		}
		if at != run.to || g.start {
			run = chunk{from: at}
		}
		if run.to = at + 256; g.touched {
			run.touched += 256
		}
		if run.to-run.from > most.to-most.from {
			most = run
		}
	}
	return most
}

// free gives every free granule its name, as requests of an arena see it.
func (n *naive) free(view int32) (f ledger.FreeTerms) {
	most := n.largestFree(view)
	for at, g := range n.granules {
		switch {
		case g.block != nil:
		case g.arena != view:
			f.Stranded += 256
		case !g.touched:
			f.Reserve += 256
		case most.from <= at && at < most.to:
			f.Reusable += 256
		default:
			f.External += 256
		}
	}
	return f
}

// view is the arena with the most reserved, of equal ones the first.
func (n *naive) view() (view int32) {
	mapped := map[int32]int64{}
	for _, g := range n.granules {
		mapped[g.arena] += 256
	}
	for _, arena := range slices.Sorted(maps.Keys(mapped)) {
		if mapped[arena] > mapped[view] {
			view = arena
		}
	}
	return view
}

// tooSmall are the bytes of an arena's free chunks below a size.
func (n *naive) tooSmall(arena int32, size int64) (bytes int64) {
	var run int64
	end := func() {
		if run < size {
			bytes += run
		}
		run = 0
	}
	next := int64(-1)
	for _, at := range slices.Sorted(maps.Keys(n.granules)) {
		g := n.granules[at]
		if g.arena != arena {
			continue
		}
		if at != next || g.block != nil || g.start {
			end()
		}
		if next = at + 256; g.block == nil {
			run += 256
		}
	}
	end()
	return bytes
}

// picture is the kind of every granule of an arena, and its blocks.
type picture struct {
	Kinds     map[int64]SpanKind
	Requested map[int64]int64
}

func (n *naive) picture(arena int32) picture {
	p := picture{map[int64]SpanKind{}, map[int64]int64{}}
	most := n.largestFree(arena)
	for at, g := range n.granules {
		if g.arena != arena {
			continue
		}
		switch {
		case g.block == nil && !g.touched:
			p.Kinds[at] = SpanReserve
		case g.block == nil && most.from <= at && at < most.to:
			p.Kinds[at] = SpanReusable
		case g.block == nil:
			p.Kinds[at] = SpanExternal
		case g.block.pending:
			p.Kinds[at] = SpanPending
		default:
			p.Kinds[at] = SpanLive
			p.Requested[g.block.e.Addr] = g.block.e.Requested
		}
	}
	return p
}

// drawn is what a map shows, in the same terms. Slack of a whole granule or more counts as
// live; a block's request is the live span.
func drawn(m ArenaMap) picture {
	p := picture{map[int64]SpanKind{}, map[int64]int64{}}
	at := int64(0)
	for _, s := range m.Spans {
		if s.Start != at {
			panic("spans do not tile")
		}
		at += s.Bytes
		if s.Kind == SpanUnmapped {
			continue
		}
		kind := s.Kind
		if kind == SpanSlack {
			kind = SpanLive
		}
		if s.Kind == SpanLive {
			p.Requested[m.Base+s.Start] = s.Bytes
		}
		for x := (m.Base + s.Start + 255) / 256 * 256; x < m.Base+s.Start+s.Bytes; x += 256 {
			p.Kinds[x] = kind
		}
	}
	if at != m.Extent {
		panic("spans do not fill the extent")
	}
	return p
}

// scenario draws what two allocators of one device do.
func scenario(t *rapid.T) *modeltest.Recorder {
	r := modeltest.New()
	unit := rapid.SampledFrom([]uint64{256, 1024, 4096}).Draw(t, "granularity")
	var arenas []*modeltest.Arena
	for i := range 2 {
		options := bfc.Options{
			Limit:             rapid.Uint64Range(8<<10, 96<<10).Draw(t, "limit") &^ (unit - 1),
			Growth:            rapid.SampledFrom([]bfc.Growth{bfc.Double, bfc.Needed}).Draw(t, "growth"),
			GarbageCollection: rapid.Bool().Draw(t, "gc"),
		}
		refuse := rapid.IntRange(1, 40).Draw(t, "refuse")
		a, tries := (*modeltest.Arena)(nil), 0
		a, err := r.NewArena(0, options, bfc.NewDevice(bfc.DeviceOptions{
			VMM: i == 0 || rapid.Bool().Draw(t, "vmm"), Granularity: unit, Base: uint64(i+1) << 30,
			RefuseGrow: func(call int, _ uint64) bool { return call%refuse == 0 },
			RefuseMap:  func(call int, _, _ uint64) bool { return call%refuse == 0 },
		}), func(size uint64) bool {
			// What a trim unmaps, the attempt that comes to a refusal may have mapped: that
			// could go on for ever.
			tries++
			return tries%8 != 0 && a.Trim(size) > 0 && size < 2048
		})
		if err != nil {
			t.Fatal(err)
		}
		arenas = append(arenas, a)
	}
	type held struct {
		addr          uint64
		shared, freed bool
	}
	live := make([][]held, len(arenas))
	for range rapid.IntRange(1, 250).Draw(t, "steps") {
		which := rapid.IntRange(0, len(arenas)-1).Draw(t, "arena")
		a, blocks := arenas[which], &live[which]
		pick := func() int { return rapid.IntRange(0, len(*blocks)-1).Draw(t, "block") }
		switch op := rapid.IntRange(0, 20).Draw(t, "op"); {
		case op < 10:
			size := rapid.Uint64Range(1, 1<<rapid.IntRange(4, 14).Draw(t, "bits")).Draw(t, "size")
			if addr, ok := a.Alloc(size, rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "context")); ok {
				*blocks = append(*blocks, held{addr: addr})
			}
		case op < 16 && len(*blocks) > 0:
			i := pick()
			b := &(*blocks)[i]
			if b.shared && !b.freed {
				b.freed = true
				a.Free(b.addr, true)
				break
			}
			if b.freed {
				a.FreeDone(b.addr)
			} else {
				a.Free(b.addr, false)
			}
			*blocks = slices.Delete(*blocks, i, i+1)
		case op < 18 && len(*blocks) > 0:
			if b := &(*blocks)[pick()]; !b.freed {
				stream := rapid.Int64Range(0, 1).Draw(t, "stream")
				a.Use(b.addr, stream)
				b.shared = b.shared || stream != 0
			}
		case op == 18:
			a.Trim(rapid.Uint64Range(1, 32<<10).Draw(t, "trim"))
		case op == 19:
			r.Mark(int64(len(r.Events)))
		case len(*blocks) > 0:
			a.Shortage()
			for _, b := range *blocks {
				if !b.freed {
					a.Shrink(b.addr)
				}
			}
		}
	}
	return r
}

func TestEveryTermIsWhatItsDefinitionCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := scenario(t)
		a := newAnalyzer(Options{Text: r.Strings.Text})
		n := &naive{
			text: r.Strings.Text, granules: map[int64]*naiveGranule{}, blocks: map[int64]*naiveBlock{}, separate: map[int32]bool{},
		}
		var peak, maxima ledger.Split
		var peakSeq int64 = -1
		var pictures [2]picture
		var contexts, sizes []AllocationGroup
		var largestFree chunk
		var free ledger.FreeTerms
		var view int32
		for i := range r.Events {
			e := &r.Events[i]
			if err := a.event(e); err != nil {
				t.Fatal(err)
			}
			n.apply(*e)
			all := n.count(-1)
			if len(a.devices) > 0 {
				n.checkDevice(t, a.devices[0], e, all)
			}
			for _, ar := range a.arenas {
				n.checkArena(t, ar, e)
			}
			maxima.T, maxima.C, maxima.R = max(maxima.T, all.T), max(maxima.C, all.C), max(maxima.R, all.R)
			if all.R > peak.R || all.R == peak.R && all.T > peak.T {
				peak, peakSeq = all, e.Seq
				pictures = [2]picture{n.picture(0), n.picture(1)}
				contexts, sizes = n.groups(r)
				largestFree = n.largestFree(-1)
				free = n.free(n.view())
				view = n.view()
			}
		}
		result, err := a.finish()
		if err != nil {
			t.Fatal(err)
		}
		d := &result.Devices[0]
		want := Instant{Seq: peakSeq, Time: d.Peak.Time, Iteration: d.Peak.Iteration}
		peak.Fill(&want)
		free.Fill(&want)
		want.View = view
		if d.Peak != want {
			t.Fatalf("peak %+v\nwant %+v", d.Peak, want)
		}
		if d.MaxT != maxima.T || d.MaxC != maxima.C || d.MaxR != maxima.R {
			t.Fatalf("maxima %d %d %d, want %+v", d.MaxT, d.MaxC, d.MaxR, maxima)
		}
		if d.LargestFree != largestFree.to-largestFree.from {
			t.Fatalf("largest free %d, want %+v", d.LargestFree, largestFree)
		}
		got := [2]picture{n.none(), n.none()}
		for _, m := range d.Map.Arenas {
			got[m.Arena] = drawn(m)
		}
		if diff := gocmp.Diff(pictures, got); diff != "" && peakSeq >= 0 {
			t.Fatal(diff)
		}
		if diff := gocmp.Diff(contexts, d.TopContexts); diff != "" {
			t.Fatal(diff)
		}
		if diff := gocmp.Diff(sizes, d.TopSizes); diff != "" {
			t.Fatal(diff)
		}
	})
}

// checkDevice holds the state of a device against the granules.
func (n *naive) checkDevice(t *rapid.T, d *device, e *trace.Event, all ledger.Split) {
	t.Helper()
	if d.Split != all {
		t.Fatalf("seq %d %s: device %+v\nwant %+v", e.Seq, e.Kind, d.Split, all)
	}
	got := d.Instant(e.Seq, e.Time)
	want := got
	n.free(n.view()).Fill(&want)
	want.View = n.view()
	if got != want {
		t.Fatalf("seq %d %s: device %+v\nwant %+v", e.Seq, e.Kind, got, want)
	}
	if sum := got.T + got.Internal() + got.Pending + got.Stranded + got.Reserve + got.Reusable + got.External; sum != got.R {
		t.Fatalf("seq %d %s: the terms are %d bytes, R %d", e.Seq, e.Kind, sum, got.R)
	}
	for i := range d.result.OOMs {
		o := &d.result.OOMs[i]
		if o.Seq != e.Seq {
			continue
		}
		free, small := n.free(o.Arena), n.tooSmall(o.Arena, o.Request)
		n.free(o.Arena).Fill(&want)
		want.View = o.Arena
		if o.At != want || o.TooSmall != small || o.Stranded != free.Stranded || o.Free != all.Free() {
			t.Fatalf("OOM %+v\nwant %+v, too small %d", o, want, small)
		}
	}
}

// checkArena holds the state of an arena by itself against the granules.
func (n *naive) checkArena(t *rapid.T, ar *arena, e *trace.Event) {
	t.Helper()
	if want := n.count(ar.Index); ar.Split != want {
		t.Fatalf("seq %d %s: arena %d %+v\nwant %+v", e.Seq, e.Kind, ar.Index, ar.Split, want)
	}
	want := n.free(ar.Index)
	want.Stranded = 0
	if got := ar.OwnTerms(); got != want {
		t.Fatalf("seq %d %s: arena %d %+v\nwant %+v", e.Seq, e.Kind, ar.Index, got, want)
	}
	if most := n.largestFree(ar.Index); ar.LargestFree() != most.to-most.from {
		t.Fatalf("seq %d %s: arena %d: largest free chunk %d, want %+v", e.Seq, e.Kind, ar.Index, ar.LargestFree(), most)
	}
}

func (n *naive) none() picture { return picture{map[int64]SpanKind{}, map[int64]int64{}} }

// groups returns the live blocks by context and by size, the ten greatest of each.
func (n *naive) groups(r *modeltest.Recorder) (contexts, sizes []AllocationGroup) {
	byContext, bySize := map[string]*AllocationGroup{}, map[int64]*AllocationGroup{}
	for _, b := range n.blocks {
		if b.pending {
			continue
		}
		text := r.Strings.Text(b.e.Context)
		if byContext[text] == nil {
			byContext[text] = &AllocationGroup{Context: text}
		}
		if bySize[b.e.Requested] == nil {
			bySize[b.e.Requested] = &AllocationGroup{Size: b.e.Requested}
		}
		for _, h := range []*AllocationGroup{byContext[text], bySize[b.e.Requested]} {
			h.Blocks++
			h.Requested += b.e.Requested
			h.Provided += b.e.Provided
		}
	}
	top := func(all []AllocationGroup) []AllocationGroup {
		slices.SortFunc(all, func(x, y AllocationGroup) int {
			return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
				cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
		})
		return all[:min(10, len(all))]
	}
	for _, h := range slices.SortedFunc(maps.Values(byContext), func(x, y *AllocationGroup) int { return cmp.Compare(x.Context, y.Context) }) {
		contexts = append(contexts, *h)
	}
	for _, h := range bySize {
		sizes = append(sizes, *h)
	}
	return top(contexts), top(sizes)
}
