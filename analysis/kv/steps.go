package kv

import (
	"errors"
	"io"

	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace"
)

// ErrNoSteps is of a recording whose steps cannot be distinguished.
var ErrNoSteps = errors.New("no step of an engine was recorded: mark the KV cache with memprof.kv, and the end of every step, after the GPU is done with it, with memprof.iteration()")

// Steps returns what an engine's steps computed, and how long each took. A step is an iteration in which tokens came
// to a KV cache: the first mark of an iteration only begins a step. One token for a sequence that has some is
// generated; more are of its prompt, without those that were found in shared blocks. Sequences that go to the host and
// come back have all their blocks copied. Steps that compute nothing are left out. text is that of contexts.
func Steps(source interface{ Next() (*trace.Batch, error) }, text func(context int32) string) ([]serving.Step, error) {
	f := &stepFollower{text: text, caches: map[int64]map[int64]*lengths{}, begin: -1}
	for {
		batch, err := source.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for i := range batch.Len() {
			e := batch.Event(i)
			f.event(&e)
		}
	}
	if len(f.steps) == 0 {
		return nil, ErrNoSteps
	}
	return f.steps, nil
}

// stepFollower follows the lengths of sequences.
type stepFollower struct {
	text   func(context int32) string
	caches map[int64]map[int64]*lengths // by cache and sequence
	begin  int64                        // of the present step, ns; -1 before the first iteration
	now    serving.Step
	steps  []serving.Step
}

// lengths are the tokens of a sequence, slots that it shares whose tokens it has not said yet, and slots in its blocks.
type lengths struct{ tokens, shared, held int64 }

func (f *stepFollower) event(e *trace.Event) {
	switch e.Kind {
	case trace.KindIteration:
		if w := f.now.Work; f.begin >= 0 && w.Prefill+w.Decode > 0 && e.Time > f.begin {
			f.now.Time = float64(e.Time - f.begin)
			f.steps = append(f.steps, f.now)
		}
		f.begin, f.now = e.Time, serving.Step{}
	case trace.KindKVAppend:
		if e.KVSequence() == trace.AllSequences {
			for _, s := range f.caches[e.KVCache()] {
				if s.tokens > 0 {
					f.append(s, e.KVTokens())
				}
			}
			return
		}
		f.append(f.sequence(e), e.KVTokens())
	case trace.KindKVReserve:
		if e.KVSequence() != trace.AllSequences {
			f.sequence(e).held += e.KVSlots()
		}
		if f.swaps(e) {
			f.now.Swapped += e.KVSlots()
		}
	case trace.KindKVShare:
		if e.KVSequence() != trace.AllSequences {
			s := f.sequence(e)
			s.shared += e.KVSlots()
			s.held += e.KVSlots()
		}
	case trace.KindKVFree:
		if f.swaps(e) {
			s := f.sequence(e)
			f.now.Swapped += s.held
			s.held = 0
			return
		}
		if e.KVSequence() == trace.AllSequences {
			delete(f.caches, e.KVCache())
			return
		}
		delete(f.caches[e.KVCache()], e.KVSequence())
	}
}

// swaps says whether a mark is about a copy between device and host.
func (f *stepFollower) swaps(e *trace.Event) bool {
	return e.Context != 0 && trace.ParseContext(e.Kind, f.text(e.Context)).Get("swap") != ""
}

func (f *stepFollower) sequence(e *trace.Event) *lengths {
	of := f.caches[e.KVCache()]
	if of == nil {
		of = map[int64]*lengths{}
		f.caches[e.KVCache()] = of
	}
	s := of[e.KVSequence()]
	if s == nil {
		s = &lengths{}
		of[e.KVSequence()] = s
	}
	return s
}

// append adds tokens of a sequence to the work of the step; none ends it.
func (f *stepFollower) append(s *lengths, tokens int64) {
	if tokens == 0 {
		s.tokens = 0
		return
	}
	found := min(tokens, s.shared)
	s.shared -= found
	computed := tokens - found
	w := &f.now.Work
	if tokens == 1 && s.tokens > 0 {
		w.Decode++
		w.Context += s.tokens + 1
	} else if computed > 0 {
		w.Prefill += computed
		w.Pairs += float64(computed) * (float64(s.tokens+found) + float64(computed+1)/2)
	}
	s.tokens += tokens
}
