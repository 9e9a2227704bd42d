package analysis

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
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

// chunk is a range of addresses: a free chunk, or a region.
type chunk struct{ from, to int64 }

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
		run.to = at + 256
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
	Kinds     map[int64]ledger.SpanKind
	Requested map[int64]int64
}

func (n *naive) picture(arena int32) picture {
	p := picture{map[int64]ledger.SpanKind{}, map[int64]int64{}}
	most := n.largestFree(arena)
	for at, g := range n.granules {
		if g.arena != arena {
			continue
		}
		switch {
		case g.block == nil && !g.touched:
			p.Kinds[at] = ledger.SpanReserve
		case g.block == nil && most.from <= at && at < most.to:
			p.Kinds[at] = ledger.SpanReusable
		case g.block == nil:
			p.Kinds[at] = ledger.SpanExternal
		case g.block.pending:
			p.Kinds[at] = ledger.SpanPending
		default:
			p.Kinds[at] = ledger.SpanLive
			p.Requested[g.block.e.Addr] = g.block.e.Requested
		}
	}
	return p
}

// drawn is what a map shows, in the same terms. Slack of a whole granule or more counts as
// live; a block's request is the live span.
func drawn(m ledger.ArenaMap) picture {
	p := picture{map[int64]ledger.SpanKind{}, map[int64]int64{}}
	at := int64(0)
	for _, s := range m.Spans {
		if s.Start != at {
			panic("spans do not tile")
		}
		at += s.Bytes
		if s.Kind == ledger.SpanUnmapped {
			continue
		}
		kind := s.Kind
		if kind == ledger.SpanSlack {
			kind = ledger.SpanLive
		}
		if s.Kind == ledger.SpanLive {
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

func (n *naive) none() picture { return picture{map[int64]ledger.SpanKind{}, map[int64]int64{}} }

// groups returns the live blocks by context and by size, the ten greatest of each.
func (n *naive) groups(r *modeltest.Recorder) (contexts, sizes []attribution.AllocationGroup) {
	byContext, bySize := map[string]*attribution.AllocationGroup{}, map[int64]*attribution.AllocationGroup{}
	for _, b := range n.blocks {
		if b.pending {
			continue
		}
		text := r.Strings.Text(b.e.Context)
		if byContext[text] == nil {
			byContext[text] = &attribution.AllocationGroup{Context: text}
		}
		if bySize[b.e.Requested] == nil {
			bySize[b.e.Requested] = &attribution.AllocationGroup{Size: b.e.Requested}
		}
		for _, h := range []*attribution.AllocationGroup{byContext[text], bySize[b.e.Requested]} {
			h.Blocks++
			h.Requested += b.e.Requested
			h.Provided += b.e.Provided
		}
	}
	top := func(all []attribution.AllocationGroup) []attribution.AllocationGroup {
		slices.SortFunc(all, func(x, y attribution.AllocationGroup) int {
			return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
				cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
		})
		return all[:min(10, len(all))]
	}
	for _, h := range slices.SortedFunc(maps.Values(byContext), func(x, y *attribution.AllocationGroup) int { return cmp.Compare(x.Context, y.Context) }) {
		contexts = append(contexts, *h)
	}
	for _, h := range bySize {
		sizes = append(sizes, *h)
	}
	return top(contexts), top(sizes)
}
