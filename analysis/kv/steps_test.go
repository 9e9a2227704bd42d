package kv

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// marks gives events in one batch.
type marks struct {
	batch trace.Batch
	done  bool
}

func (m *marks) Next() (*trace.Batch, error) {
	if m.done {
		return nil, io.EOF
	}
	m.done = true
	return &m.batch, nil
}

func (m *marks) add(kind trace.Kind, time, sequence, requested, provided int64) {
	m.batch.Append(&trace.Event{
		Seq: int64(m.batch.Len()), Time: time, Kind: kind, Arena: -1, Thread: 1, Stream: 5, Addr: sequence, Requested: requested, Provided: provided,
	})
}

// texts has the contexts that the marks below use.
func texts(context int32) string { return []string{"", "swap=out", "swap=in"}[context] }

// TestSteps: a prompt in two parts, a shared beginning, tokens for one and for all, by hand.
func TestSteps(t *testing.T) {
	m := &marks{}
	m.add(trace.KindKVAppend, 5, 1, 3, 0) // before the first iteration: of no step
	m.add(trace.KindIteration, 10, 0, 0, 0)
	m.add(trace.KindKVAppend, 11, 1, 4, 0) // the rest of a prompt of 7
	m.add(trace.KindIteration, 30, 0, 1, 0)
	m.add(trace.KindKVAppend, 31, 1, 1, 0) // the first generated token
	m.add(trace.KindKVShare, 32, 2, 0, 4)  // another one finds 4 tokens of its 6
	m.add(trace.KindKVAppend, 33, 2, 6, 0)
	m.add(trace.KindIteration, 60, 0, 2, 0)
	m.add(trace.KindIteration, 70, 0, 3, 0) // nothing computed
	m.add(trace.KindKVAppend, 71, trace.AllSequences, 1, 0)
	m.add(trace.KindIteration, 85, 0, 4, 0)
	m.add(trace.KindKVAppend, 86, 1, 0, 0) // it ends
	m.add(trace.KindKVAppend, 87, trace.AllSequences, 1, 0)
	m.add(trace.KindIteration, 95, 0, 5, 0)
	m.add(trace.KindKVReserve, 96, 3, 8, 32) // a third one with 32 slots goes to the host and comes back
	m.add(trace.KindKVAppend, 97, 3, 20, 0)
	m.add(trace.KindKVFree, 98, 3, 0, 0)
	m.batch.Context[len(m.batch.Context)-1] = 1
	m.add(trace.KindKVReserve, 99, 3, 4, 32)
	m.batch.Context[len(m.batch.Context)-1] = 2
	m.add(trace.KindIteration, 105, 0, 6, 0)
	got, err := Steps(m, texts)
	want := []serving.Step{
		{Work: kvcache.Work{Prefill: 4, Pairs: 4*3 + 10}, Time: 20},
		{Work: kvcache.Work{Prefill: 2, Pairs: 2*4 + 3, Decode: 1, Context: 8}, Time: 30},
		{Work: kvcache.Work{Decode: 2, Context: 9 + 7}, Time: 15},
		{Work: kvcache.Work{Decode: 1, Context: 8}, Time: 10},
		{Work: kvcache.Work{Prefill: 20, Pairs: 20 * 21 / 2, Swapped: 64}, Time: 10},
	}
	diff := cmp.Diff(want, got)
	assert.That(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
	if _, err := Steps(&marks{}, texts); !errors.Is(err, ErrNoSteps) {
		t.Errorf("no mark: %v", err)
	}
}
