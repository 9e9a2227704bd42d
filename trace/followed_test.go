package trace_test

import (
	"testing"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A replay of the events in memory has, of each event, the effect that Live finds, and all that replays read. Of allocs before the opening
// it has the place.
func TestFollowed(t *testing.T) {
	const opening = 40
	training, _ := tracetest.Training(5000)
	for name, events := range map[string][]trace.Event{"mixed": tracetest.Mixed().Events, "training": training} {
		given := 0
		f, err := trace.Follow(modeltest.Source(events, 100), opening, func(e *trace.Event) {
			assert.Must(t, *e == events[given], "%s: event %d is %+v", name, given, *e)
			given++
		})
		assert.NoError(t, err)
		assert.Equal(t, given, len(events), "%s: events given", name)
		live, at, effects := trace.NewLive(), 0, 0
		source := f.Source()
		for b, err := source.Next(); err == nil; b, err = source.Next() {
			for i, effect := range b.Effects {
				got, want := b.Event(i), events[at]
				outcome, block := live.Add(&want)
				at++
				assert.Must(t, got.Kind == want.Kind && got.Seq == want.Seq && got.Time == want.Time, "%s: %+v, want %+v", name, got, want)
				if effect.Slot >= 0 {
					effects++
					assert.Must(t, block != nil && effect.Slot == block.Slot && effect.Outcome == outcome && got.Arena == want.Arena && (want.Kind != trace.KindAlloc || got.Requested == want.Requested), "%s: %+v of %+v", name, effect, want)
					if placed := want.Kind == trace.KindAlloc && want.Seq < opening; placed {
						assert.Must(t, got.Addr == want.Addr && got.Provided == want.Provided, "%s: %+v, want %+v", name, got, want)
					} else {
						assert.Must(t, got.Addr == 0 && got.Provided == 0, "%s: %+v has a place", name, got)
					}
					continue
				}
				switch want.Kind {
				case trace.KindIteration, trace.KindPhaseBegin, trace.KindPhaseEnd, trace.KindLabel, trace.KindStack:
				default:
					assert.Must(t, got == want, "%s: %+v, want %+v", name, got, want)
				}
			}
		}
		assert.Equal(t, at, len(events), "%s: events kept", name)
		assert.That(t, effects > 0, "%s: no event has an effect", name)
	}
}
