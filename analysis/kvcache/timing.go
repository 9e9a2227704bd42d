package kvcache

// Timing says how long steps take. Package timing has what was measured on GPUs.
type Timing interface {
	// Step returns how long a step takes, ns, at least 1.
	Step(w Work) int64
}

// Work is what one step computes and copies.
type Work struct {
	// Prefill is tokens of prompts, and generated ones that are computed again after a preemption. A prompt
	// is computed once for all its sequences.
	Prefill int64
	// Pairs is, over the tokens of Prefill, how many tokens each attends to, itself included.
	Pairs float64
	// Decode is how many sequences generate a token in the step. A prompt's last token generates one, too,
	// and is in Prefill only.
	Decode int64
	// Context is slots that sequences of Decode read: their tokens, once for each sequence.
	Context int64
	// Blocks is about how many blocks these slots are in: as many as they fill, and one for each sequence. 0 but
	// under paged.
	Blocks int64
	// Swapped is slots copied between device and host, both ways, and Pieces the blocks, or rows of pages, that
	// they are copied in.
	Swapped, Pieces int64
}
