// Package kvcache simulates the memory of keys and values in a language model's server, under
// contiguous and paged allocation, and says what each slot was used for at every step. It knows
// nothing of traces or reports; package requests reads and makes what is served.
//
// # The identity
//
// A slot holds the keys and values of one token in all layers. At every step, checked,
//
//	token + reserve + internal + external + cached + null = capacity
//
// where external is rounding, what an allocator gave beyond what was asked for; stranded, free
// while a request waits that no free piece serves; and idle, free otherwise. Reserve and internal
// look ahead: a request brings the length that it will have in the end.
//
// # Policies
//
// Under max, pow2 and oracle a request reserves one piece for all its sequences: for each the
// longest that may be, the prompt and the output rounded up to a power of two, or what it will
// need. A buddy allocator, first fit or the best fit of package bfc places it. Of a sequence with c tokens so
// far, F in the end and R reserved, c slots are token, F-c reserve and R-F internal; what the
// allocator gave beyond the rows of R is rounding. See contiguous.go and, for each allocator,
// buddy.go, firstfit.go and bestfit.go.
//
// Under paged a sequence takes blocks of B slots as its tokens come. A block with f slots filled,
// of which F will be filled while it is in use, counts f as token, F-f as reserve and B-F as
// internal, once, however many sequences share it. Blocks nobody uses are cached, if what they
// hold can still be found, or else free. See paged.go.
//
// Under vmm each sequence has contiguous addresses in every layer, and pages are mapped behind
// them as its tokens come; the slots of its pages count as those of a block do. See vmm.go.
//
// # Sharing
//
// Blocks are shared, by reference count, by the samples or beams of one prompt, which copy a block
// before they write into one that others name (paged_sharing.go), and by requests whose prompts
// begin with the same content, also after the first of them has gone, until its blocks are
// taken, the ones longest unused first (paged_prefix.go). Equal blocks at equal positions of
// requests that begin differently are counted and not shared. Contiguous reservations and mapped
// pages share nothing.
//
// # Scheduling
//
// Simulate goes step by step: first come, first served, nobody overtakes. Where a running request
// finds no room the latest arrival loses all it has, to be computed again or copied to the host
// and back (paged_swap.go), and nothing new is admitted before it is back. Steps and their order
// are described at Simulate.
//
// # Models and GPUs
//
// Model has the shapes that sizes follow from. With tensor parallelism each GPU holds its heads of
// every token: one block table steers all, their simulations are the same, and only the bytes of
// a slot are divided.
//
// # Recordings
//
// Recorded keeps the same account of what an engine's marks tell, in place of simulating it.
package kvcache
