package kvcache

// BlockMap is a paged memory after a step.
type BlockMap struct {
	Step      int64
	BlockSize int
	Sequences []SequenceMap
	Blocks    []BlockState // by physical number, at least up to the last that is not free
	Count     int64        // of all blocks; those behind Blocks are free
}

// SequenceMap is one sequence: its tokens and its block table.
type SequenceMap struct {
	Request, Sequence int64
	Tokens            int
	Table             []int32 // logical block -> physical block
}

// BlockState is one physical block.
type BlockState struct {
	References int32 // entries of block tables that name it
	Filled     int32 // slots that hold a token
	Cached     bool  // no sequence uses it, and its content can still be found
	Null       bool  // set aside, never handed out
}

// MostBlocks is more than any memory has; larger numbers are errors.
const MostBlocks = 1 << 24
