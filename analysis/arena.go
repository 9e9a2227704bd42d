package analysis

import (
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
)

// arena is an arena of the ledger, and what the trackers keep of it.
type arena struct {
	*ledger.Arena
	device *device
	tag    *pause.Arena // nil while its device has no tags
	use    *tagUse      // of its tag; nil without one

	graphs *graphs.Arena

	growth arenaGrowths
}

// now is the state of the arena by itself.
func (ar *arena) now(seq, time int64) Instant {
	i := Instant{Seq: seq, Time: time, Iteration: ar.device.Iteration}
	ar.Fill(&i)
	if ar.Native {
		i.C = -1
	}
	return i
}
