// Package kvcache has the terms in which the KV cache of a language model's server is simulated and
// recorded: requests, policies, stores, shares of slots, results. It knows nothing of traces or reports.
//
// # The way of the data
//
//	models ─▶ Policy, Options ─┐
//	requests ─▶ Request ───────┼─▶ serving ─▶ Result
//	                                  │
//	                     Store: stores.New
//	marks of an engine ─▶ analysis/kv ─▶ Result
//
// Package models describes language models, requests reads and makes what is served. Package serving drives the Store of
// the policy from step to step, each of which takes what its Timing says. Package analysis/kv computes a
// Result from an engine's marks. All but models import this package, and this one only models.
//
// # Slots
//
// A slot holds the keys and values of one token in all layers. After every step, checked,
//
//	token + reserve + internal + rounding + fragmented + blocked + idle + cached + null = capacity
//
//	token       holds a token of a running request
//	reserve     will hold a future token of a running request
//	internal    of a reservation or block, and will never hold a token
//	rounding    allocated beyond the reservation, or in no whole block
//	fragmented  free, and enough for the first waiting request, but in pieces too small for it
//	blocked     free, but the first waiting request needs more than all that is free
//	idle        free otherwise
//	cached      holds content of requests that have ended, and can be reused or evicted
//	null        the null block
//
// External is rounding + fragmented. What is blocked is not lost: it waits for more to become free, since nothing
// overtakes the first waiting request, be that new or preempted, and the watermark may have to stay free. Reserve and internal know the future: a request has the length
// that it will have in the end.
//
// # Policies
//
// Under max, pow2 and oracle a request reserves one contiguous piece for all its sequences. Per
// sequence that is: the longest possible one; the prompt plus the output rounded up to a power of two;
// or what it will need. A buddy allocator places it. A
// sequence with c tokens so far, F in the end and R reserved has c slots of token, F-c of reserve and
// R-F of internal; what the allocator adds to the reservation is rounding.
//
// Under paged a sequence gets blocks of B slots as its tokens come. A block with f slots filled, F of
// which will be filled while it is in use, has f slots of token, F-f of reserve and B-F of internal,
// counted once, however many sequences share it. Blocks of no sequence are cached if their content
// can still be found, else free.
//
// Under hybrid each group of layers that keep the same has a block table; under uniform all layers keep all
// tokens. Package stores has the memory of each.
//
// # Sharing
//
// Blocks are shared, with reference counts, by the samples or beams of one prompt, which copy a block
// before they write into one that others use; and by requests whose prompts begin with the same content,
// also after the first of them has ended, until its blocks are evicted, the least recently used first.
// Equal blocks at equal positions of requests that begin differently are counted and not shared. Contiguous reservations are not shared.
//
// # Scheduling
//
// serving.Simulate goes step by step: first come, first served, without overtaking. Where a running request
// finds no room, the latest arrival is preempted: its memory is dropped and computed again, or copied
// to the host and back. Nothing new is admitted before it is back. The comment of serving.Simulate
// has the parts of a step and their order.
//
// # Models and GPUs
//
// models.Model has the shapes that sizes follow from. With tensor parallelism each GPU has its heads of every
// token. One block table is used by all, so that their simulations are equal, and only the bytes of a
// slot are divided.
//
// # Recordings
//
// Package analysis/kv computes the same shares from the marks of an engine, without a simulation.
package kvcache
