// Package stores has the memories of the policies of package kvcache, and says for each what its slots are used for. [New] makes
// that of a policy; a simulation drives it as a kvcache.Store.
//
// # Max, pow2 and oracle
//
// Each request reserves one contiguous piece of slots (contiguous.go): a row for each of its sequences, of as many slots as
// the policy says,
//
//	          c tokens so far    F in the end          R reserved
//	┌────────────────────────┬──────────────────────┬─────────────────────┐
//	│         token          │       reserve        │      internal       │
//	│         token          │       reserve        │      internal       │
//	└────────────────────────┴──────────────────────┴─────────────────────┘
//
// and an allocator returns a piece that may be larger: the difference is rounding. Each sequence has
// its own copy of a common prompt.
//
// Max reserves a fixed length, Pow2 the prompt plus the output rounded up to a power of two, Oracle the
// length that will be needed; none reserves more than the model's limit. A request that outgrows its
// reservation moves to a new one of twice the size, and the old one is freed after that. Until
// then its reserve ends at the end of the reservation.
//
// A buddy allocator (buddy.go) rounds pieces up to powers of two. Free slots are blocked while the first
// waiting request reserves more than all of them, fragmented while it does not and no free piece serves it, else idle.
//
// # Paged
//
// Sequences take blocks of equal size as their tokens come (paged.go), and share those of equal content.
//
// Each sequence has a block table, which lists the blocks that hold
// its tokens, in order. A block is taken when its first token is written. So rounding is only the
// part of the capacity that is no whole block, and internal at most part of one block a sequence.
//
// Sequences share blocks: see paged_sharing.go and paged_prefix.go. A block counts once: its filled
// slots are token, those that its sequences will fill are reserve, the rest is internal.
//
// A request is admitted if its blocks leave the watermark free; while nothing runs, if there
// are enough.
//
// chains.go finds blocks by the numbers that their content goes by; paged_pool.go has all blocks and the list of the
// free ones, from which the least recently used is taken first; paged_prefix.go names the blocks of prompts; paged_sharing.go
// shares the blocks of one prompt's samples or beams; paged_swap.go copies groups to the host and back; paged.go admits
// and grows groups.
//
// # Hybrid and uniform
//
// Layers do not all keep the same of a sequence (layered.go; package models has the kinds).
//
// Hybrid: layers form groups of equally many layers of one kind (models.Layout). Each group of a sequence has a block table of
// its own, and all blocks are pages of one size. So a sliding layer gives back the pages that its window has left. A
// group that has fewer layers leaves a part of each page empty; so do kinds whose tokens do not divide a page.
//
// Uniform: one block table is of all layers, and every layer that keeps tokens keeps all of them: caches before vLLM had
// pages for layers of several kinds.
package stores
