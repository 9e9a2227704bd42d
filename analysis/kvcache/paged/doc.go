// Package paged is the memory of the policy paged: sequences take blocks of equal size as their tokens come, and
// share those of equal content. It also says what prefix caches of several sizes find ([HitsBySize]).
//
// # Block tables
//
// Each sequence has a block table, which lists the blocks that hold
// its tokens, in order. A block is taken when its first token is written. So rounding is only the
// part of the capacity that is no whole block, and internal at most part of one block a sequence.
//
// Sequences share blocks: see sharing.go and prefix.go. A block counts once: its filled
// slots are token, those that its sequences will fill are reserve, the rest is internal.
//
// A request is admitted if its blocks leave the watermark free; while nothing runs, if there
// are enough.
//
// # Files
//
// chains.go finds blocks by the numbers that their content goes by; pool.go has all blocks and the list of the
// free ones, from which the least recently used is taken first; prefix.go names the blocks of prompts; sharing.go
// shares the blocks of one prompt's samples or beams; swap.go copies groups to the host and back; store.go admits
// and grows groups.
package paged
