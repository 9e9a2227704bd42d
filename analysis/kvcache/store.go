package kvcache

// Store is the memory under one policy, as the scheduler drives it. A group is a running
// request with all its sequences.
type Store interface {
	// Possible says whether the request fits into an empty memory.
	Possible(r *Request) bool
	// Admit places a request that waits, or was preempted; false: there is no room.
	Admit(g *Group) bool
	// Grow makes room for one more token of each sequence of the group, and fills it; false: no
	// room, and nothing has changed.
	Grow(g *Group) bool
	// Release frees the memory of a group that has ended, or is dropped to be computed again.
	Release(g *Group)
	// SwapOut moves the group to the host; false: the host is full. Only Paged has it.
	SwapOut(g *Group) bool
	// Shares returns the current shares; head is the first waiting request, or nil.
	Shares(head *Request) Shares
}

// BlockStore is a store that shares blocks, and has more to say.
type BlockStore interface {
	Store
	// AddSharing adds what blocks the present state saves to the sums of r, for the given steps.
	AddSharing(r *Result, steps int64)
	// AddCounters adds what was counted since the start to r: copies, swaps, hits.
	AddCounters(r *Result)
	// Swapped returns the slots copied between device and host so far, both ways, and in how many pieces.
	Swapped() (slots, pieces int64)
}

// KindStore is a store of layers of several kinds.
type KindStore interface {
	// Weigh counts the present state, with the steps or ns that it holds for.
	Weigh(weight int64)
	// Kinds returns the means of what was weighed.
	Kinds() []KindUse
}

// Group is a request that runs, or is preempted, as a store sees it.
type Group struct {
	ID        int64
	Request   Request
	Sequences int // at present
	Generated int // tokens of each sequence so far
	// Found is how many tokens of its prompt the store found when it was admitted last, at most Prompt.
	Found   int
	Private any // of the store
}

// Length returns the current tokens of each sequence of the group.
func (g *Group) Length() int { return g.Request.Prompt + g.Generated }
