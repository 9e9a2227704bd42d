package ledger

// Block is an allocation, live or pending: what is kept of it when it is gone, and what breakdowns
// divide by.
type Block struct {
	Addr, Size int64 // of its chunk, bytes
	Requested  int64 // bytes
	Seq        int64 // of its alloc event
	Arena      int32 // index, in order of creation
	Context    int32 // of its alloc event
	Label      int32 // context of its last label event; 0 for none
	Phase      uint8 // number of the phase that was the innermost when it was allocated
	Born, Fate uint8 // when in its process it was allocated, and how its life ended; see package attribution
	Pending    bool  // it is freed and waits for other streams
}
