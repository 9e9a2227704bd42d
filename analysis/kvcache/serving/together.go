package serving

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/mapped"
)

// Engine is one of several that serve on the same card.
type Engine struct {
	Name      string
	Source    kvcache.Source
	Options   kvcache.Options
	SlotBytes int64
}

// errWaits says that an engine can do nothing before another one gives memory back.
var errWaits = errors.New("waits for the memory of another engine")

// Together serves each engine's requests at the same time. Engines under Elastic map their pages from one memory of
// so many bytes, and each may hold all of it; others have what their Options say, for themselves. Steps of different
// engines do not slow each other: which of them the card computes is not simulated.
//
// held is of all engines, in bytes. At each moment the engine goes on whose next step begins first.
func Together(ctx context.Context, engines []Engine, memory int64) (results []*kvcache.Result, held *kvcache.Held, err error) {
	shared := mapped.NewMemory(memory)
	t := &together{}
	for _, e := range engines {
		if err := check(&e.Options); err != nil {
			return nil, nil, err
		}
		store, err := newStore(e.Options, shared)
		if err != nil {
			return nil, nil, err
		}
		if saturated(&e.Options) {
			return nil, nil, fmt.Errorf("%s: several engines need requests with times", e.Name)
		}
		s := newSimulation(e.Source, e.Options, store)
		s.shared = e.Options.Policy.Kind == kvcache.Elastic && len(engines) > 1
		s.result.Engine = e.Name
		t.engines = append(t.engines, s)
		t.slots = append(t.slots, float64(e.SlotBytes))
	}
	t.done = make([]bool, len(engines))
	if err := t.run(ctx); err != nil {
		return nil, nil, err
	}
	for _, s := range t.engines {
		results = append(results, s.finish())
	}
	return results, t.total(results), nil
}

// together is several engines at work.
type together struct {
	engines []*simulation
	slots   []float64 // bytes of a slot, by engine
	done    []bool

	at                  int64 // held and floor are summed up to here, ns
	held, floor         float64
	heldPeak, floorPeak float64
}

func (t *together) run(ctx context.Context) error {
	for {
		next := t.next(math.MinInt64, -1)
		if next < 0 {
			return nil
		}
		t.count(t.engines[next].now)
		done, err := t.engines[next].turn(ctx)
		if errors.Is(err, errWaits) {
			err = t.wait(next)
		}
		if err != nil {
			return err
		}
		t.done[next] = done
	}
}

// next is the engine whose next step begins first, and later than a moment; not itself, and -1 if there is none.
func (t *together) next(after int64, itself int) int {
	next := -1
	for i, s := range t.engines {
		if !t.done[i] && i != itself && s.now > after && (next < 0 || s.now < t.engines[next].now) {
			next = i
		}
	}
	return next
}

// wait lets an engine wait for the next step of another one that may give memory back.
func (t *together) wait(i int) error {
	s := t.engines[i]
	until := s.now + 1
	if other := t.next(s.now, i); other >= 0 {
		until = t.engines[other].now
	} else if t.next(s.now-1, i) < 0 {
		return fmt.Errorf("%s: nothing runs and its first request finds no room", s.result.Engine)
	}
	if s.options.Timing != nil {
		return s.count(0, until-s.now)
	}
	return s.count(1, s.options.StepTime)
}

// count adds what is held up to a moment.
func (t *together) count(until int64) {
	var held, floor float64
	for i, s := range t.engines {
		slots := s.options.Capacity
		if s.mapper != nil {
			slots, _, _ = s.mapper.Mappings()
		}
		held += float64(slots) * t.slots[i]
		floor += float64(s.memory.Shares(nil).Token) * t.slots[i]
	}
	if ns := until - t.at; ns > 0 {
		t.held += held * float64(ns)
		t.floor += floor * float64(ns)
		t.at = until
	}
	t.heldPeak, t.floorPeak = max(t.heldPeak, held), max(t.floorPeak, floor)
}

// total is what all engines held, in bytes.
func (t *together) total(results []*kvcache.Result) *kvcache.Held {
	out := &kvcache.Held{Peak: t.heldPeak, FloorPeak: t.floorPeak}
	if t.at > 0 {
		out.Mean, out.FloorMean = t.held/float64(t.at), t.floor/float64(t.at)
	}
	for _, r := range results {
		if r.Held != nil {
			out.Mapped += r.Held.Mapped
			out.Unmapped += r.Held.Unmapped
		}
	}
	return out
}
