// # Other pools
//
// The replays run the allocations of captures under other policies than the recorded one: with a pool for each capture,
// with one pool in another order, or with ranges of addresses that share their physical memory. They run an allocator on the
// recorded requests and return the bytes it mapped; nothing is estimated.
//
// # Shapes
//
// A shape is one capture, or several captures that replay together. Two shapes never replay at the same
// time, so they may use the same memory. A [Sequence] has its requests and frees in their recorded order.
//
// A block that outlives its shape (a kept output) is freed later. [Late] gives the number of further shapes
// after which, so that it lives as long in a replay of another order.
//
//	recorded    A: +a +x -a       B: +b -x -b          C: ...
//	shape A     alloc a, alloc x, free a;  free x after 1 shape
//	C, A, B     +c … | +a +x -a | +b -b, then -x
//
// # Policies
//
//	separate        each shape has a pool of its own: the sum
//	shared          one pool for all shapes in sequence. Freed memory is used again; a
//	                block that outlives its shape stays occupied for later shapes
//	aliased         each shape allocates from the start of its own range of addresses, and
//	                page n of every range is the same memory: the greatest range, in any
//	                order. A block that outlives its shape must not be in the range, since
//	                the next shape writes there; [Sequence.Outlives] gives those bytes
//
// # Models
//
// A [Model] is the allocator of a pool. BFC is memprof's for private pools: by
// default it grows by what a request needs, in pages of the device's granularity. Torch is PyTorch's caching
// allocator without expandable segments, as package torchalloc has it. In both models a block is used again only by its stream.
package graphs
