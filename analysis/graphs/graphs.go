// Package graphs follows the memory of CUDA graphs of a process: the captures in private pools, and the ranges
// of graph memories. At the end of the pass it replays the requests of captures
// in other pools.
//
// It knows the ledger, in which the store of a graph memory is an arena like any other. Blocks in ranges
// of a graph memory share physical memory: they are kept here and not in the ledger.
package graphs

// Result is the memory of the CUDA graphs of a device.
//
// A shape is what replays at one time: the captures of one range of a graph memory, or those of
// one pool that have one name, or a capture without a name. A store is physical memory that
// shapes use: a private pool, or a graph memory, whose shapes have ranges of addresses over it.
//
// A shape's footprint are the pages of the store that it was handed any byte of, each counted
// once: own those that no other shape was handed, shared the rest. Pages are the granules of
// the device; in a native allocator they are its segments. So, in every store,
//
//	Σ footprint = distinct + saved
//	physical    = distinct + untouched
//
//	distinct   pages that any shape was handed, each counted once
//	saved      what the same footprints would take apart: by reuse in a pool, by aliasing in
//	           a graph memory. It is in no term of waste
//	untouched  mapped for no shape; negative where memory was unmapped and other memory
//	           mapped for it, since physical is the greatest at any moment
//
// Blocks in a range of a graph memory are in no T or C of the device: their addresses are
// others' memory too. The store's bytes are in R once; what has been handed out of them is
// external, as in a pool whose graph has been captured.
type Result struct {
	Captures int64   // that ended
	Stores   []Store // in the order they were first used in
	// WhatIfs are of the captures in pools: first of those that have a pool to themselves,
	// then of each pool with several shapes.
	WhatIfs []WhatIf
}

// Store is a private pool that was captured in, or a graph memory.
type Store struct {
	Memory   string // the number of the graph memory; "" for a pool
	Pool     string // the pool's name; "" for a graph memory
	Released bool   // before the end of the trace
	Shapes   []Shape

	Physical, Final int64 // greatest R, and R after the last event
	Sum             int64 // Σ footprint
	Max             int64 // the greatest footprint
	Distinct        int64
	Saved           int64 // Sum - Distinct
	Untouched       int64 // Physical - Distinct
	Aliased         int64 // greatest sum of bytes mapped in ranges; 0 for a pool
	Inputs          Inputs
}

// Inputs are the persistent inputs of a store's shapes, as far as captures recorded them.
// The job reports them. Inputs lie on the device, so a report above what the process ever had there is wrong:
// then both are -1.
type Inputs struct {
	Sum     int64 // bytes that each shape used of them, summed
	Max     int64 // the most that a shape used: what one set of buffers for all takes
	Unknown int   // shapes that reported more than there can be
}

func (in *Inputs) add(bytes int64) {
	if bytes < 0 {
		in.Unknown++
	}
	if in.Unknown > 0 {
		in.Sum, in.Max = -1, -1
		return
	}
	in.Sum, in.Max = in.Sum+bytes, max(in.Max, bytes)
}

// Shape is one shape of a store.
type Shape struct {
	Name       string
	Seq, Start int64 // of its first capture, or of its range
	Captures   int64
	Time       int64 // ns from begin to end of its captures, summed
	Requested  int64 // greatest bytes of its live blocks
	Provided   int64 // greatest bytes of their chunks; -1 if unknown
	Own        int64
	Shared     int64
	Address    int64 // bytes of addresses it may use: its range, or what it was handed pages of
	Outputs    int64 // requested by its blocks that were live when its last capture ended
	Inputs     int64 // bytes of the persistent inputs it uses; 0 where that was not reported, -1 where it cannot be
	Released   bool  // its address range was released
}

// Footprint is the physical memory of the shape.
func (s *Shape) Footprint() int64 { return s.Own + s.Shared }

// WhatIf is what the captures of pools would have used under other policies: their
// requests replayed, by the allocator's own policy; see [Separate].
type WhatIf struct {
	Pool    string // of the captures; "" for those that have a pool each
	Shapes  int
	Unnamed int    // shapes that are a capture without a name: it may be a piece of a larger one
	Model   string // "bfc", "torch": whose policy was replayed
	Why     string // nothing was replayed; "" if it was

	Physical  int64 // what was recorded, for comparison: as Store.Physical, summed
	Recorded  int64 // replayed as recorded; the same as Physical if the model is right
	Separate  int64
	Largest   int64 // the greatest alone
	Descended int64 // one pool, largest first
	Ascended  int64 // one pool, smallest first
	Aliased   int64 // ranges over one memory, which splits wherever anything is left over
	Outlive   int64 // requested by what outlives its shape, which aliasing must place elsewhere
}
