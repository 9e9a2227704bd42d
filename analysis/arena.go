package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/trace"
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

// arenaOf is the arena of an event, which must have been described.
func (a *analyzer) arenaOf(e *trace.Event) (*arena, error) {
	if ar := a.last; ar != nil && ar.Info.ID == e.Arena && !ar.Released { // of most events
		return ar, nil
	}
	of, err := a.ledger.ArenaOf(e)
	if err != nil {
		return nil, err
	}
	a.last = a.arenas[of.Index]
	return a.last, nil
}

// lookup is the arena with an ID, released ones too, or nil.
func (a *analyzer) lookup(id int32) *arena {
	if ar := a.ledger.Lookup(id); ar != nil {
		return a.arenas[ar.Index]
	}
	return nil
}

// now is the state of the arena by itself.
func (ar *arena) now(seq, time int64) ledger.Instant {
	i := ledger.Instant{Seq: seq, Time: time, Iteration: ar.device.Iteration}
	ar.Fill(&i)
	return i
}

// tagUse follows the arenas of a tag.
type tagUse struct {
	TagUse
	arenas []*arena
}

// tagged joins an arena to those of its tag on its device.
func (ar *arena) tagged() {
	tag := ar.Info.Options["tag"]
	if tag == "" || ar.Over {
		return
	}
	d := ar.device
	at := slices.IndexFunc(d.tags, func(u *tagUse) bool { return u.Tag == tag })
	if at < 0 {
		at = len(d.tags)
		d.tags = append(d.tags, &tagUse{TagUse: TagUse{Tag: tag}})
	}
	ar.use = d.tags[at]
	ar.use.arenas = append(ar.use.arenas, ar)
}

// observe notes the state after an event of one of the arenas.
func (u *tagUse) observe() {
	var t, c, r int64
	for _, ar := range u.arenas {
		if !ar.Paused() {
			t, c, r = t+ar.T, c+ar.C, r+ar.R
		}
	}
	u.MaxT, u.MaxC, u.MaxR = max(u.MaxT, t), max(u.MaxC, c), max(u.MaxR, r)
}
