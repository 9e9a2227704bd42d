package stores

import (
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
)

func (s *pagedStore) BlockMap() *kvcache.BlockMap {
	m := &kvcache.BlockMap{BlockSize: int(s.size), Count: int64(len(s.blocks))}
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		t := s.tables[id]
		s.fillLast(t)
		for i, table := range t.of {
			m.Sequences = append(m.Sequences, kvcache.SequenceMap{
				Request: id, Sequence: int64(i), Tokens: t.length, Table: slices.Clone(table),
			})
		}
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		state := kvcache.BlockState{References: b.references, Cached: b.references == 0 && s.keys.number(int32(i)) != 0, Null: int64(i) < s.null}
		if b.references > 0 || state.Cached {
			state.Filled = b.filled
		}
		m.Blocks = append(m.Blocks, state)
	}
	return m
}
