package stores

import "github.com/memprof/memprof/analysis/kvcache"

// swapped is a group on the host: its tables name blocks of the list kept here.
type swapped struct {
	tables tables
	blocks []hosted
}

// hosted is one block of the device copied to the host.
type hosted struct {
	references    int32
	filled, final int32
	key, place    uint64
}

// SwapOut moves each block of the group once, however many of its sequences share it. A block
// shared with another group stays there as well.
func (s *pagedStore) SwapOut(g *kvcache.Group) bool {
	t := g.Private.(*tables)
	s.fillLast(t)
	out := &swapped{tables: *t}
	out.tables.of = make([][]int32, len(t.of))
	at := map[int32]int32{}
	for i, table := range t.of {
		for _, k := range table {
			h, ok := at[k]
			if !ok {
				h = int32(len(out.blocks))
				at[k] = h
				b := &s.blocks[k]
				out.blocks = append(out.blocks, hosted{filled: b.filled, final: b.final, key: s.keys.number(k), place: s.places.number(k)})
			}
			out.blocks[h].references++
			out.tables.of[i] = append(out.tables.of[i], h)
		}
	}
	if int64(len(out.blocks)) > s.host {
		return false
	}
	s.host -= int64(len(out.blocks))
	s.swappedOut += int64(len(out.blocks))
	s.Release(g)
	g.Private = out
	return true
}

// swapIn brings a group back if, beside its blocks, one for each sequence stays free to go on
// with; while nothing runs, if its blocks are free.
func (s *pagedStore) swapIn(g *kvcache.Group, in *swapped) bool {
	need := int64(len(in.blocks))
	if s.running > 0 {
		need += int64(len(in.tables.of))
	}
	if !s.allows(need) {
		return false
	}
	device := make([]int32, len(in.blocks))
	for h, b := range in.blocks {
		device[h] = s.take(b.filled, b.final)
		s.name(device[h], b.key, b.place)
		for range b.references - 1 {
			s.share(device[h])
		}
	}
	t := in.tables
	for _, table := range t.of {
		for j, h := range table {
			table[j] = device[h]
		}
	}
	s.enterGroup(g, &t)
	s.host += int64(len(in.blocks))
	s.swappedIn += int64(len(in.blocks))
	return true
}

func (s *pagedStore) Swapped() (slots, pieces int64) {
	pieces = s.swappedOut + s.swappedIn
	return pieces * int64(s.size), pieces
}
