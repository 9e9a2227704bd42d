package kvcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache/models"
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
//  5. the slots are counted, and the identity of the package comment is checked;
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
func Simulate(ctx context.Context, src Source, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	memory, err := newStore(o, nil)
	if err != nil {
		return nil, err
	}
	s := newSimulation(src, o, memory)
	for {
		switch done, err := s.turn(ctx); {
		case err != nil:
			return nil, err
		case done:
			return s.finish(), nil
		}
	}
}

// mostRejected is how many requests in a row may be rejected.
const mostRejected = 1 << 20

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
func (o *Options) check() error {
	switch {
	case o.Capacity < 1:
		return fmt.Errorf("a memory of %d slots holds nothing", o.Capacity)
	case o.MaxLength < 0, o.StepTime < 0, o.Steps < 0, o.Warmup < 0, o.MaxPoints < 0, o.SwapBlocks < 0, o.Chunk < 0:
		return errors.New("a length, a time or a number of steps is negative")
	case !(o.Watermark >= 0 && o.Watermark < 1):
		return fmt.Errorf("the watermark %v is not in [0, 1)", o.Watermark)
	case !(o.Sampling.Keep >= 0 && o.Sampling.Keep <= 1):
		return fmt.Errorf("the chance %v that a beam keeps its place is not in [0, 1]", o.Sampling.Keep)
	case o.Sampling.Width < 0, o.Sampling.Kind == Greedy && o.Sampling.Width > 1:
		return fmt.Errorf("%d sequences a prompt is not what the sampling allows", o.Sampling.Width)
	}
	return nil
}

// saturated says whether some request waits at any time, whatever the arrivals say.
func (o *Options) saturated() bool { return o.Saturated || o.StepTime == 0 && o.Timing == nil }

// newStore makes the memory of the policy. Engines under Elastic map from the shared one, unless it is nil.
func newStore(o Options, shared *rowMemory) (store, error) {
	switch o.Policy.Kind {
	case Max, Pow2, Oracle:
		return newContiguous(o)
	case Paged:
		if o.Policy.Block < 1 || o.Policy.Block > math.MaxInt32 {
			return nil, fmt.Errorf("%d slots cannot be divided into blocks of %d", o.Capacity, o.Policy.Block)
		}
		if n := o.Capacity / int64(o.Policy.Block); n > mostBlocks {
			return nil, fmt.Errorf("%d slots are %d blocks of %d, and at most %d are simulated", o.Capacity, n, o.Policy.Block, mostBlocks)
		}
		return newPaged(o), nil
	case Hybrid, Uniform:
		return newHybridStore(o)
	case VMM, VAttention, Elastic:
		if o.Policy.Page < 1 || o.Policy.TokenSize < 1 || o.Policy.Tensors < 1 || o.Capacity > math.MaxInt64/o.Policy.TokenSize {
			return nil, fmt.Errorf("pages of %d bytes cannot hold %d tokens of %d", o.Policy.Page, o.Capacity, o.Policy.TokenSize)
		}
		if o.Policy.Kind != Elastic {
			return newVMM(o), nil
		}
		if o.Policy.Block < 1 || o.Policy.Page/o.Policy.TokenSize < int64(o.Policy.Block) {
			return nil, fmt.Errorf("pages of %d bytes hold no block of %d tokens of %d", o.Policy.Page, o.Policy.Block, o.Policy.TokenSize)
		}
		return newElastic(o, shared), nil
	}
	return nil, fmt.Errorf("policy %d is not known", o.Policy.Kind)
}

// newHybridStore is a memory of layers of several kinds.
func newHybridStore(o Options) (store, error) {
	if o.Policy.Block < 1 || o.Policy.Slot < 1 || len(o.Policy.Layers) == 0 || o.Capacity > math.MaxInt64/o.Policy.Slot {
		return nil, fmt.Errorf("blocks of %d tokens of %d bytes, in %d kinds of layers", o.Policy.Block, o.Policy.Slot, len(o.Policy.Layers))
	}
	for _, k := range o.Policy.Layers {
		if k.Layers < 1 || k.Bytes < 1 || k.Window < 1 && (k.Keep == models.Sliding || k.Keep == models.Chunked || k.Keep == models.Cross) {
			return nil, fmt.Errorf("%d layers of %v with %d bytes", k.Layers, k, k.Bytes)
		}
	}
	return newHybrid(o), nil
}

// blockStore is a store that shares blocks, and has more to say.
type blockStore interface {
	store
	// addSharing adds what blocks the present state saves to the sums of r, for the given steps.
	addSharing(r *Result, steps int64)
	// addCounters adds what was counted since the start to r: copies, swaps, hits.
	addCounters(r *Result)
	// blockMap draws the present state, without the step; nil where there are no blocks.
	blockMap() *BlockMap
	// swapped returns the slots copied between device and host so far, both ways, and in how many pieces.
	swapped() (slots, pieces int64)
}

// simulation is the scheduler at work.
type simulation struct {
	options Options
	source  Source
	memory  store
	blocks  blockStore // memory, if it is one; else nil
	mapper  mapper     // memory, if it is one; else nil
	kinds   kindStore  // memory, if it is one; else nil
	shared  bool       // other engines have memory of the same card

	next     *Request // read ahead: the first that has not arrived
	ended    bool     // nothing is behind next
	previous int64    // arrival of the last request that was read

	waiting   *Request // the head of the queue, if it has arrived
	first     *group   // of waiting, once it was asked for; nil before
	preempted []*group // by id, the earliest first
	again     Request  // the first of these as head returns it
	running   []*group // by id
	changed   bool     // other groups run, or compute prompts, than in the step before
	ending    bool     // a group has its last token

	step    int64 // steps so far
	now     int64 // when the step to come starts, ns
	groups  int64 // ids given
	refused int64 // requests in a row that were rejected
	work    Work  // of the present step, under a Timing
	swapped int64 // slots copied before the present step
	pieces  int64 // and the pieces they were in
	means   Means
	batch   float64 // sum of running requests over the counted steps, weighted as means are
	// Of what is held: the sum, weighted as means are, and the greatest; and the greatest of tokens.
	heldSum             float64
	heldPeak, floorPeak int64
	latency             latency
	series              series
	result              *Result
}

func newSimulation(src Source, o Options, memory store) *simulation {
	s := &simulation{options: o, source: src, memory: memory, series: newSeries(o.MaxPoints)}
	s.blocks, _ = memory.(blockStore)
	s.mapper, _ = memory.(mapper)
	s.kinds, _ = memory.(kindStore)
	s.result = &Result{Policy: o.Policy.String(), Capacity: o.Capacity}
	return s
}

// idle says whether no request is in the system.
func (s *simulation) idle() bool {
	return len(s.running) == 0 && len(s.preempted) == 0 && s.waiting == nil
}

// peek reads the next request of the source into s.next, unless it is there or there is none.
func (s *simulation) peek() error {
	if s.next != nil || s.ended {
		return nil
	}
	r, err := s.source.Next()
	if errors.Is(err, io.EOF) {
		s.ended = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.checkRequest(&r); err != nil {
		return err
	}
	s.previous = r.Arrival
	s.next = &r
	return nil
}

// checkRequest returns an error, with the line if it has one, for a request that cannot be.
func (s *simulation) checkRequest(r *Request) error {
	const most = 1 << 30 // keeps all products of lengths and sequences within 64 bits
	var what string
	switch {
	case r.Prompt < 1 || r.Prompt > most:
		what = fmt.Sprintf("a prompt of %d tokens", r.Prompt)
	case r.Output < 1 || r.Output > most:
		what = fmt.Sprintf("an output of %d tokens", r.Output)
	case r.Prompts < 0 || r.Prompts > 1<<16:
		what = fmt.Sprintf("%d prompts in one request", r.Prompts)
	case !s.options.saturated() && r.Arrival < s.previous:
		what = fmt.Sprintf("an arrival at %d ns after one at %d ns", r.Arrival, s.previous)
	default:
		return nil
	}
	if r.Line > 0 {
		return fmt.Errorf("line %d: %s", r.Line, what)
	}
	return fmt.Errorf("request %d: %s", s.result.Requests+1, what)
}

// arrive puts the next request that has arrived by now at the head of the queue, if the place is
// empty. With a queue that is always full it has arrived.
func (s *simulation) arrive(ctx context.Context) error {
	for s.waiting == nil {
		if err := s.peek(); err != nil {
			return err
		}
		if s.next == nil || !s.options.saturated() && s.next.Arrival > s.now {
			return nil
		}
		s.result.Requests++
		if s.result.Requests%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if s.fits(s.next) {
			s.waiting, s.refused = s.next, 0
		} else {
			s.result.Rejected++
			s.refused++
		}
		if s.refused == mostRejected {
			return fmt.Errorf("%s: %d requests in a row do not fit, the last of %d tokens: raise the memory or the length, or take smaller blocks", s.result.Policy, s.refused, s.next.Length())
		}
		s.next = nil
	}
	return nil
}

// fits says whether r is within the model's limit and could run alone.
func (s *simulation) fits(r *Request) bool {
	if s.options.MaxLength > 0 && r.Length() > s.options.MaxLength {
		return false
	}
	return s.memory.possible(r)
}

// skip skips to the step in which the next request arrives. Nothing runs or waits.
func (s *simulation) skip() error {
	behind := s.next.Arrival - s.now
	if s.options.Timing != nil {
		return s.count(0, behind)
	}
	steps := (behind + s.options.StepTime - 1) / s.options.StepTime
	if limit := s.options.Steps; limit > 0 {
		steps = min(steps, limit-s.step)
	}
	return s.count(steps, steps*s.options.StepTime)
}

// advance simulates one step.
func (s *simulation) advance(ctx context.Context) error {
	s.restore()
	if len(s.preempted) == 0 {
		if err := s.admit(ctx); err != nil {
			return err
		}
	}
	if len(s.running) == 0 && s.shared {
		return errWaits
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
		if !s.memory.admit(g) {
			break
		}
		if !g.swapped {
			s.result.Recomputed += int64(g.sequences) * int64(g.length())
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
			s.first = &group{id: s.groups, request: *s.waiting}
			s.first.sequences = s.waiting.prompts() * max(s.options.Sampling.Width, 1)
		}
		g := s.first
		if !s.memory.admit(g) {
			return nil
		}
		s.groups++
		s.waiting, s.first = nil, nil
		g.uncomputed = s.uncomputed(g)
		s.latency.admitted(s.now-g.request.Arrival, s.counts())
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
	i, _ := slices.BinarySearchFunc(s.running, g.id, byID)
	s.running = slices.Insert(s.running, i, g)
}

func byID(g *group, id int64) int { return int(g.id - id) }

// grow adds a token to each sequence of each running group whose prompt is computed, and preempts where there
// is no room.
func (s *simulation) grow() error {
	for i := 0; i < len(s.running); i++ {
		g := s.running[i]
		if g.uncomputed > 0 {
			continue
		}
		for !s.memory.grow(g) {
			latest := s.running[len(s.running)-1]
			if len(s.running) == 1 && g.admitted == s.step+1 && !s.shared {
				return fmt.Errorf("step %d: %s: a request that runs alone has no room for a token", s.step+1, s.result.Policy)
			}
			s.preempt(latest)
			if latest == g {
				return nil
			}
		}
		g.generated++
		if g.generated >= g.request.Output {
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
	if s.options.Preempt == Swap && s.memory.swapOut(g) {
		g.swapped = true
	} else {
		s.memory.release(g)
	}
	i, _ := slices.BinarySearchFunc(s.preempted, g.id, byID)
	s.preempted = slices.Insert(s.preempted, i, g)
}

// leave releases the groups that have ended with the step before now.
func (s *simulation) leave() {
	if !s.ending {
		return
	}
	s.ending, s.changed = false, true
	s.running = slices.DeleteFunc(s.running, func(g *group) bool {
		if g.generated < g.request.Output {
			return false
		}
		s.memory.release(g)
		s.result.Finished++
		s.latency.finished(s.now-g.request.Arrival, g, s.counts())
		return true
	})
}

// head is the request that the next free memory is for, or nil. What a preempted one has
// generated has joined its prompt.
func (s *simulation) head() *Request {
	if len(s.preempted) > 0 {
		g := s.preempted[0]
		s.again = g.request
		s.again.Prompt += g.generated
		s.again.Output -= g.generated
		return &s.again
	}
	return s.waiting
}
