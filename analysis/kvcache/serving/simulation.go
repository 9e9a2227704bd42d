package serving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/stores"
)

// Simulate runs the requests of src through a memory of o.Capacity slots under o.Policy.
//
// A step is, in this order:
//
//  1. requests that have arrived are in the queue; those that could never fit are rejected;
//  2. preempted requests come back, the earliest arrival first;
//  3. if none is left that is preempted, the queue is served in its order, up to the first
//     request that finds no room: whatever is behind it waits too;
//  4. every running request, the earliest arrival first, gets one more token a sequence. While one
//     finds no room, the latest arrival that runs is preempted, which may be itself;
//  5. the slots are counted, and the identity of package kvcache is checked;
//  6. requests that have their last token leave.
//
// The slots of a prompt are taken as soon as its request is admitted. Steps are numbered from 1. Under a
// constant StepTime step k starts at (k-1)·StepTime, prompts take no time, and steps in which nothing runs
// or waits are counted without being simulated. Under a Timing a step lasts as long as its [Work] takes, see
// compute in work.go, and nothing happens until the next arrival while nothing runs or waits.
//
// After mostRejected requests in a row that never fit, the simulation ends with an error, since a
// source may have no end.
//
// Requests are kept in host memory while they run, are preempted, or are at the head of the queue; those
// behind it are read and counted when they get there. Errors are of options, of a request that is out of
// range or out of order, of src, of ctx, and StepError.
func Simulate(ctx context.Context, src kvcache.Source, o kvcache.Options) (*kvcache.Result, error) {
	return SimulateIn(ctx, src, o, nil)
}

// SimulateIn is [Simulate] in an empty memory of the caller's, which need not be of o.Policy; nil is that of o.Policy.
func SimulateIn(ctx context.Context, src kvcache.Source, o kvcache.Options, memory kvcache.Store) (*kvcache.Result, error) {
	err := check(&o)
	if err == nil && memory == nil {
		memory, err = stores.New(o)
	}
	if err != nil {
		return nil, err
	}
	return newSimulation(src, o, memory).run(ctx)
}

// run takes turns until there is no more.
func (s *simulation) run(ctx context.Context) (*kvcache.Result, error) {
	for {
		switch done, err := s.turn(ctx); {
		case err != nil:
			return nil, err
		case done:
			return s.finish(), nil
		}
	}
}

// turn simulates a step, or skips to the next arrival. done: there is no more.
func (s *simulation) turn(ctx context.Context) (done bool, err error) {
	if s.options.Steps > 0 && s.step >= s.options.Steps {
		return true, nil
	}
	if s.step%1024 == 0 {
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
	if err := s.arrive(ctx); err != nil {
		return true, err
	}
	switch {
	case !s.idle():
		return false, s.advance(ctx)
	case s.ended:
		return true, nil
	}
	return false, s.skip()
}

// check returns an error for options that no simulation can have.
func check(o *kvcache.Options) error {
	switch {
	case o.Capacity < 1:
		return fmt.Errorf("a memory of %d slots: want at least 1", o.Capacity)
	case o.MaxLength < 0, o.StepTime < 0, o.Steps < 0, o.Warmup < 0, o.Chunk < 0:
		return errors.New("a length, a time or a number of steps is negative")
	case !(o.Watermark >= 0 && o.Watermark < 1):
		return fmt.Errorf("the watermark %v is not in [0, 1)", o.Watermark)
	case !(o.Sampling.Keep >= 0 && o.Sampling.Keep <= 1):
		return fmt.Errorf("the chance %v that a beam keeps its place is not in [0, 1]", o.Sampling.Keep)
	case o.Sampling.Width < 0, o.Sampling.Kind == kvcache.Greedy && o.Sampling.Width > 1:
		return fmt.Errorf("%d sequences a prompt is not what the sampling allows", o.Sampling.Width)
	}
	return nil
}

// saturated says whether some request waits at any time, whatever the arrivals say.
func saturated(o *kvcache.Options) bool { return o.Saturated || o.StepTime == 0 && o.Timing == nil }

// group is a request that runs, or is preempted.
type group struct {
	kvcache.Group
	swapped  bool
	admitted int64 // step in which it was admitted last
	// uncomputed is how many tokens of its prompts are still to be computed, and of what its sequences had
	// generated when it was preempted; 0 without a Timing. While it is above 0 nothing is generated.
	uncomputed int64
}

// simulation is the scheduler at work.
type simulation struct {
	options kvcache.Options
	source  kvcache.Source
	memory  kvcache.Store
	blocks  kvcache.BlockStore // memory, if it is one; else nil
	kinds   kvcache.KindStore  // memory, if it is one; else nil

	next     *kvcache.Request // read ahead: the first that has not arrived
	ended    bool             // nothing is behind next
	previous int64            // arrival of the last request that was read

	waiting   *kvcache.Request // the head of the queue, if it has arrived
	first     *group           // of waiting, once it was asked for; nil before
	preempted []*group         // by id, the earliest first
	again     kvcache.Request  // the first of these as head returns it
	running   []*group         // by id
	changed   bool             // other groups run, or compute prompts, than in the step before
	ending    bool             // a group has its last token

	step    int64        // steps so far
	now     int64        // when the step to come starts, ns
	groups  int64        // ids given
	refused int64        // requests in a row that were rejected
	work    kvcache.Work // of the present step, under a Timing
	swapped int64        // slots copied before the present step
	pieces  int64        // and the pieces they were in
	means   kvcache.Means
	batch   float64 // sum of running requests over the counted steps, weighted as means are
	latency latency
	series  kvcache.Series
	result  *kvcache.Result
}

func newSimulation(src kvcache.Source, o kvcache.Options, memory kvcache.Store) *simulation {
	s := &simulation{options: o, source: src, memory: memory, series: kvcache.NewSeries()}
	s.blocks, _ = memory.(kvcache.BlockStore)
	s.kinds, _ = memory.(kvcache.KindStore)
	s.result = &kvcache.Result{Policy: o.Policy.String(), Capacity: o.Capacity}
	return s
}

// idle says whether no request is in the system.
func (s *simulation) idle() bool {
	return len(s.running) == 0 && len(s.preempted) == 0 && s.waiting == nil
}

// advance simulates one step.
func (s *simulation) advance(ctx context.Context) error {
	s.restore()
	if len(s.preempted) == 0 {
		if err := s.admit(ctx); err != nil {
			return err
		}
	}
	if len(s.running) == 0 {
		return fmt.Errorf("step %d: %s: an empty memory has no room for a request that it could hold", s.step+1, s.result.Policy)
	}
	s.compute()
	if err := s.grow(); err != nil {
		return err
	}
	if err := s.count(1, s.duration()); err != nil {
		return err
	}
	s.leave()
	return nil
}

// restore brings preempted requests back, in their order.
func (s *simulation) restore() {
	back := 0
	for _, g := range s.preempted {
		if !s.memory.Admit(&g.Group) {
			break
		}
		if !g.swapped {
			s.result.Recomputed += int64(g.Sequences) * int64(g.Length())
			g.uncomputed = s.uncomputed(g)
		}
		g.swapped = false
		s.start(g)
		back++
	}
	s.preempted = slices.Delete(s.preempted, 0, back)
}

// admit serves the queue up to the first request that finds no room.
func (s *simulation) admit(ctx context.Context) error {
	for s.waiting != nil {
		if s.first == nil {
			s.first = &group{Group: kvcache.Group{ID: s.groups, Request: *s.waiting}}
			s.first.Sequences = s.waiting.PromptCount() * max(s.options.Sampling.Width, 1)
		}
		g := s.first
		if !s.memory.Admit(&g.Group) {
			return nil
		}
		s.groups++
		s.waiting, s.first = nil, nil
		g.uncomputed = s.uncomputed(g)
		s.latency.admitted(s.now-g.Request.Arrival, s.counts())
		s.start(g)
		if err := s.arrive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start puts a group that was admitted at its place among those that run.
func (s *simulation) start(g *group) {
	g.admitted = s.step + 1
	s.changed = true
	i, _ := slices.BinarySearchFunc(s.running, g.ID, byID)
	s.running = slices.Insert(s.running, i, g)
}

func byID(g *group, id int64) int { return int(g.ID - id) }

// grow adds a token to each sequence of each running group whose prompt is computed, and preempts where there
// is no room.
func (s *simulation) grow() error {
	for i := 0; i < len(s.running); i++ {
		g := s.running[i]
		if g.uncomputed > 0 {
			continue
		}
		for !s.memory.Grow(&g.Group) {
			latest := s.running[len(s.running)-1]
			if len(s.running) == 1 && g.admitted == s.step+1 {
				return fmt.Errorf("step %d: %s: a request that runs alone has no room for a token", s.step+1, s.result.Policy)
			}
			s.preempt(latest)
			if latest == g {
				return nil
			}
		}
		g.Generated++
		if g.Generated >= g.Request.Output {
			s.ending = true
		}
	}
	return nil
}

// preempt frees all memory of the running group that arrived last.
func (s *simulation) preempt(g *group) {
	s.result.Preemptions++
	s.changed = true
	s.running = s.running[:len(s.running)-1]
	if s.options.Preempt == kvcache.Swap && s.memory.SwapOut(&g.Group) {
		g.swapped = true
	} else {
		s.memory.Release(&g.Group)
	}
	i, _ := slices.BinarySearchFunc(s.preempted, g.ID, byID)
	s.preempted = slices.Insert(s.preempted, i, g)
}

// leave releases the groups that have ended with the step before now.
func (s *simulation) leave() {
	if !s.ending {
		return
	}
	s.ending, s.changed = false, true
	s.running = slices.DeleteFunc(s.running, func(g *group) bool {
		if g.Generated < g.Request.Output {
			return false
		}
		s.memory.Release(&g.Group)
		s.result.Finished++
		s.latency.finished(s.now-g.Request.Arrival, g, s.counts())
		return true
	})
}
