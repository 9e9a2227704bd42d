package view

import (
	"context"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

const (
	stateEvents = 1 << 16   // events between two states of an index: they are passed over in about 20 ms
	stateBytes  = 512 << 20 // of all states of a process: when there are more, every second one goes
)

// index has the state of a process before events that lie close enough to each other. In the beginning it has those
// that the parts open with.
type index struct {
	process *dataset.Process

	mutex  sync.Mutex
	states []state // by seq
	bytes  int
	each   int64
	read   int64 // events that build came by
}

// state restates what holds before the event seq.
type state struct {
	seq, time int64
	rows      []byte // packed; nil if a part opens with them
}

// newIndex is the index of a process whose parts begin at these events and times, with a state after each so many events.
func newIndex(p *dataset.Process, parts []state, each int64) *index {
	return &index{process: p, states: parts, each: each}
}

// build adds the states within parts in a pass over the process, which calls turn between batches.
func (x *index) build(ctx context.Context, turn func()) error {
	starts := x.process.PartStarts()
	for i, start := range starts {
		end := starts[0] + x.process.Events
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		if err := x.pass(ctx, state{seq: start}, end-1, func(seq int64) {
			turn()
			x.mutex.Lock()
			defer x.mutex.Unlock()
			x.read = seq - starts[0]
		}); err != nil {
			return err
		}
	}
	x.mutex.Lock()
	defer x.mutex.Unlock()
	x.read = x.process.Events
	return nil
}

// pass adds the states between one and an event of the same part. It calls progress with the first event of each batch.
func (x *index) pass(ctx context.Context, from state, until int64, progress func(seq int64)) error {
	src, err := x.from(ctx, from, until)
	if err != nil {
		return err
	}
	defer src.reader.Close()
	follower := dataset.NewOpener(x.process.Strings())
	next, e := from.seq+x.interval(), new(trace.Event)
	for {
		b, err := src.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		progress(max(from.seq, b.Seq[0]))
		for i := range b.Seq {
			b.Read(i, e)
			if e.Seq >= next {
				x.add(state{e.Seq, e.Time, trace.PackEvents(follower.Rows())})
				next = e.Seq + x.interval()
			}
			follower.Add(e)
		}
	}
}

// near is a state from which a pass to an event is short. It adds those that lie before the event, if build has not
// come there.
func (x *index) near(ctx context.Context, seq int64) (state, error) {
	start := x.before(seq)
	if seq-start.seq <= 2*x.interval() {
		return start, nil
	}
	if err := x.pass(ctx, start, seq, func(int64) {}); err != nil {
		return state{}, err
	}
	return x.before(seq), nil
}

func (x *index) interval() int64 {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	return x.each
}

func (x *index) add(s state) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	at := sort.Search(len(x.states), func(i int) bool { return x.states[i].seq > s.seq })
	if at > 0 && x.states[at-1].seq == s.seq {
		return // of another pass
	}
	x.states = slices.Insert(x.states, at, s)
	if x.bytes += len(s.rows); x.bytes > stateBytes {
		x.thin()
	}
}

// thin drops every second state that no part opens with.
func (x *index) thin() {
	spare := 0
	x.bytes, x.each = 0, 2*x.each
	x.states = slices.DeleteFunc(x.states, func(s state) bool {
		if s.rows != nil {
			if spare++; spare%2 == 0 {
				return true
			}
		}
		x.bytes += len(s.rows)
		return false
	})
}

func (x *index) progress() int64 {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	return x.read
}

// before is the state from which a pass to an event begins.
func (x *index) before(seq int64) state {
	return x.last(func(s *state) bool { return s.seq <= seq })
}

// beforeTime is the state from which a search for a time begins.
func (x *index) beforeTime(time int64) state {
	return x.last(func(s *state) bool { return s.time <= time })
}

// last is the last state that lies before what is looked for, the first if none does.
func (x *index) last(before func(s *state) bool) state {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	at := sort.Search(len(x.states), func(i int) bool { return !before(&x.states[i]) })
	return x.states[max(0, at-1)]
}

// eventAt is the last event at a time or before it; the first one if all come later.
func (x *index) eventAt(ctx context.Context, time int64) (int64, error) {
	start := x.beforeTime(time)
	reader, err := x.process.NewReaderAt(start.seq)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	last := start.seq
	for ctx.Err() == nil {
		b, err := reader.Next()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		for i, at := range b.Time {
			if at > time {
				return last, nil
			}
			last = b.Seq[i]
		}
	}
	return 0, ctx.Err()
}

// source reads a process from a state on, first the rows that restate it, up to an event.
type source struct {
	ctx    context.Context
	rows   []trace.Event
	reader *dataset.Reader
	until  int64 // the last event
	ended  bool
}

// from is the source that begins at a state.
func (x *index) from(ctx context.Context, s state, until int64) (*source, error) {
	out := &source{ctx: ctx, until: until}
	var err error
	if s.rows == nil {
		out.reader, err = x.process.NewReaderOfPart(s.seq)
	} else {
		out.rows = trace.UnpackEvents(s.rows)
		out.reader, err = x.process.NewReaderAt(s.seq)
	}
	return out, err
}

// Next is the next batch, as package analysis takes it.
func (s *source) Next() (*trace.Batch, error) {
	if len(s.rows) > 0 {
		b := trace.BatchOf(s.rows)
		s.rows = nil
		return b, nil
	}
	if err := s.ctx.Err(); err != nil || s.ended {
		if err == nil {
			err = io.EOF
		}
		return nil, err
	}
	b, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	if n := b.Len(); b.Seq[n-1] >= s.until {
		s.ended = true
		cut := sort.Search(n, func(i int) bool { return b.Seq[i] > s.until })
		if cut == 0 {
			return nil, io.EOF
		}
		b.Head(cut)
	}
	return b, nil
}
