package analysis

import (
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
)

// arena is an arena of the ledger, and what the trackers keep of it.
type arena struct {
	*ledger.Arena
	device *device
	pooled bool         // its options name a pool
	tag    *pause.Arena // nil while its device has no tags
	use    *tagUse      // of its tag; nil without one

	store  *graphStore // that it is memory of
	window *graphRange // it is a range of a graph memory, and nothing of it is mapped

	waiting []waitingGrowth // growths of a request whose end has not been seen
	runs    int             // sizes of free chunks kept in them
}
