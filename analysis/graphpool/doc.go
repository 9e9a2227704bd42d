// Package graphpool replays the allocations of CUDA-graph captures under other policies than
// the one they were recorded with: what would the same requests have used in a pool for each
// capture, in one pool in another order, or in ranges of addresses that share their physical
// memory? It runs the allocator on what was recorded and reads off what it mapped; nothing is
// estimated. It knows the allocator of package bfc, and nothing of traces.
//
// # Shapes
//
// A shape is what replays at one time: one capture, or the pieces of one that were captured
// apart. Shapes never replay at the same time; that is what makes it right for one to use
// another's memory. A [Shape] holds its requests and frees in the order they were made.
//
// What outlives its shape (an output that is kept) is freed later: it says after how many
// further shapes, so that the replay of another order can let it live as long.
//
//	recorded    A: +a +x -a       B: +b -x -b          C: ...
//	shape A     alloc a, alloc x, free a;  free x after 1 shape
//	C, A, B     +c … | +a +x -a | +b -b, then -x
//
// # Policies
//
//	separate        each shape has a pool of its own: the sum
//	shared          one pool for all shapes, one after the other. What was freed is used
//	                again; what outlives its shape is in the way of all that come later
//	aliased         each shape has a range of addresses of its own, from whose start it
//	                allocates, and page n of every range is the same memory: the greatest
//	                range, whatever the order. What outlives its shape must not lie in it,
//	                since the next shape writes there; [Shape.Outlives] says how much that is
//
// # Models
//
// A [Model] is the allocator of a pool. BFC is that of memprof as it serves private pools: by
// default no growth beyond the need, in pages of the device's granularity. Torch is torch's own caching
// allocator as far as it makes the memory of a private pool: requests rounded up to 512
// bytes; those of up to 1 MiB served from segments of 2 MiB, those below 10 MiB from segments
// of 20 MiB, others from their own, rounded up to 2 MiB; the best fit, split where the rest is at
// least 512 bytes (small) or more than 1 MiB (large); free neighbours in a segment merge, and
// segments of a pool are kept. It models neither expandable segments nor the options of
// PYTORCH_CUDA_ALLOC_CONF. In both a block is used again only by the stream that had it.
package graphpool
