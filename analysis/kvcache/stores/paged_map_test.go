package stores

import (
	"maps"
	"slices"
)

// blockMap is a paged memory at some time.
type blockMap struct {
	BlockSize int
	Sequences []sequenceMap
	Blocks    []blockState // by physical number
	Count     int64
}

// sequenceMap is one sequence: its tokens and its block table.
type sequenceMap struct {
	Request, Sequence int64
	Tokens            int
	Table             []int32 // logical block -> physical block
}

// blockState is one physical block.
type blockState struct {
	References int32 // entries of block tables that name it
	Filled     int32 // slots that hold a token
	Cached     bool  // no sequence uses it, and its content can still be found
}

func (s *pagedStore) BlockMap() *blockMap {
	m := &blockMap{BlockSize: int(s.size), Count: int64(len(s.blocks))}
	for _, id := range slices.Sorted(maps.Keys(s.tables)) {
		t := s.tables[id]
		s.fillLast(t)
		for i, table := range t.of {
			m.Sequences = append(m.Sequences, sequenceMap{
				Request: id, Sequence: int64(i), Tokens: t.length, Table: slices.Clone(table),
			})
		}
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		state := blockState{References: b.references, Cached: b.references == 0 && s.keys.number(int32(i)) != 0}
		if b.references > 0 || state.Cached {
			state.Filled = b.filled
		}
		m.Blocks = append(m.Blocks, state)
	}
	return m
}
