package page

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/keyframes"
)

// placing predicts where allocations lie, so that the page need not store their addresses and chunks: best fit takes
// the smallest free range that an allocation fits in, the lowest of equal ones, from its start; all of it if less than
// half of it, and less than 128 MiB, would remain. The page's script (html/bestfit.js) predicts the same. A wrong
// prediction costs bytes of the page, nothing else: what lies elsewhere is stored.
type placing struct {
	rows   []analysis.Stretch // by From
	base   func(arena int32) int64
	arenas map[int32]*freeRanges
	taken  []bool  // of each row that began: it took memory that was free
	ends   []int32 // rows, by To
	ended  int     // of ends
}

func newPlacing(rows []analysis.Stretch, base func(arena int32) int64) *placing {
	p := &placing{rows: rows, base: base, arenas: map[int32]*freeRanges{}, taken: make([]bool, len(rows)), ends: make([]int32, len(rows))}
	for i := range p.ends {
		p.ends[i] = int32(i)
	}
	slices.SortFunc(p.ends, func(a, b int32) int { return cmp.Compare(rows[a].To, rows[b].To) })
	return p
}

// next takes row i, the one after the last. It predicts the offset of an allocation, and the bytes of its chunk; ok is
// false if it predicts nothing.
func (p *placing) next(i int) (at, bytes int64, ok bool) {
	s := &p.rows[i]
	for ; p.rows[p.ends[p.ended]].To <= s.From; p.ended++ {
		if end := p.ends[p.ended]; p.taken[end] {
			gone := &p.rows[end]
			p.arenas[gone.Arena].free(gone.Addr-p.base(gone.Arena), gone.Bytes)
		}
	}
	free := p.arenas[s.Arena]
	if free == nil {
		free = newFreeRanges()
		p.arenas[s.Arena] = free
	}
	offset := s.Addr - p.base(s.Arena)
	switch s.Kind {
	case keyframes.StretchMapped:
		free.grow(offset, s.Bytes, s.Region)
		return 0, 0, false
	case keyframes.StretchUntouched:
		return 0, 0, false
	case keyframes.StretchLive:
		at, bytes, ok = free.bestFit(roundedUp(s.Requested))
	}
	p.taken[i] = free.take(offset, s.Bytes)
	return at, bytes, ok
}

// roundedUp are requested bytes as they are provided, at least.
func roundedUp(requested int64) int64 { return (requested + 255) &^ 255 }

// freeRanges are the ranges of an arena that are free, in offsets from its base.
type freeRanges struct {
	bySize *btree.BTreeG[freeRange]
	byAt   btree.Map[int64, int64] // bytes of each
	mapped btree.Map[int64, int64] // bytes of the ranges that were ever mapped
	walls  map[int64]bool          // starts of regions, which no free range crosses
}

type freeRange struct{ at, bytes int64 }

func newFreeRanges() *freeRanges {
	smaller := func(a, b freeRange) bool {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.at, b.at)) < 0
	}
	return &freeRanges{bySize: btree.NewBTreeGOptions(smaller, btree.Options{NoLocks: true}), walls: map[int64]bool{}}
}

// most is how much a chunk may be longer than what is needed of it.
const most = 128 << 20

func (f *freeRanges) bestFit(needed int64) (at, bytes int64, ok bool) {
	f.bySize.Ascend(freeRange{bytes: needed}, func(r freeRange) bool {
		at, bytes, ok = r.at, r.bytes, true
		return false
	})
	if rest := bytes - needed; rest >= needed || rest >= most {
		bytes = needed
	}
	return at, bytes, ok
}

// grow takes mapped memory. What was mapped before is passed over: a chunk keeps its addresses when its memory is
// unmapped, and that is mapped again when the chunk is handed out.
func (f *freeRanges) grow(at, bytes int64, region bool) {
	if region {
		f.walls[at] = true
	}
	end := at + bytes
	if start, size, ok := atOrBefore(&f.mapped, at); ok {
		at = max(at, start+size)
	}
	for at < end {
		until, next := end, end
		f.mapped.Ascend(at, func(start, size int64) bool {
			if start < end {
				until, next = start, start+size
			}
			return false
		})
		if at < until {
			f.mapped.Set(at, until-at)
			f.free(at, until-at)
		}
		at = next
	}
}

// take has a range be free no more. It says whether all of it was in one free range.
func (f *freeRanges) take(at, bytes int64) bool {
	start, size, ok := atOrBefore(&f.byAt, at)
	if !ok || start+size < at+bytes {
		return false
	}
	f.remove(freeRange{start, size})
	f.add(freeRange{start, at - start})
	f.add(freeRange{at + bytes, start + size - at - bytes})
	return true
}

// free has a range be free, and joins it with the free ranges that it touches.
func (f *freeRanges) free(at, bytes int64) {
	if size, ok := f.byAt.Get(at + bytes); ok && !f.walls[at+bytes] {
		f.remove(freeRange{at + bytes, size})
		bytes += size
	}
	if start, size, ok := atOrBefore(&f.byAt, at); ok && start+size == at && !f.walls[at] {
		f.remove(freeRange{start, size})
		at, bytes = start, size+bytes
	}
	f.add(freeRange{at, bytes})
}

func (f *freeRanges) add(r freeRange) {
	if r.bytes > 0 {
		f.byAt.Set(r.at, r.bytes)
		f.bySize.Set(r)
	}
}

func (f *freeRanges) remove(r freeRange) {
	f.byAt.Delete(r.at)
	f.bySize.Delete(r)
}

// atOrBefore is the last entry whose key is not above at.
func atOrBefore(m *btree.Map[int64, int64], at int64) (key, value int64, ok bool) {
	m.Descend(at, func(k, v int64) bool {
		key, value, ok = k, v, true
		return false
	})
	return key, value, ok
}
