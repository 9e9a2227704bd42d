package serving

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/kvcache/stores"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A request of several prompts, each sampled twice, reserves one rectangle.
func TestSeveralPromptsReserveARectangle(t *testing.T) {
	for _, test := range []struct {
		policy kvcache.Policy
		want   kvcache.Shares
	}{
		{kvcache.Policy{Kind: kvcache.Max, Length: 20}, kvcache.Shares{Token: 48, Reserve: 24, Internal: 48, Rounding: 8, Idle: 128}},
		{kvcache.Policy{Kind: kvcache.Pow2}, kvcache.Shares{Token: 48, Reserve: 24, Internal: 18, Rounding: 38, Idle: 128}},
		{kvcache.Policy{Kind: kvcache.Oracle}, kvcache.Shares{Token: 48, Reserve: 24, Rounding: 56, Idle: 128}},
	} {
		o := kvcache.Options{Policy: test.policy, Capacity: 256, Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: 2}}
		r := simulate(t, o, kvcache.Request{Prompt: 7, Output: 5, Prompts: 3})
		assert.Diff(t, test.want, at(t, r, 1).Shares, "%v", test.policy)
	}
}

// simulate runs requests to their end.
func simulate(t *testing.T, o kvcache.Options, requests ...kvcache.Request) *kvcache.Result {
	t.Helper()
	source := kvtest.List(requests)
	r, err := Simulate(context.Background(), &source, o)
	assert.NoError(t, err)
	return r
}

// at is the point of a step; the series must be short enough to have it.
func at(t *testing.T, r *kvcache.Result, step int64) kvcache.Point {
	t.Helper()
	for _, p := range r.Series {
		if p.Step == step {
			return p
		}
	}
	t.Fatalf("no point of step %d in %+v", step, r.Series)
	return kvcache.Point{}
}

// Four sequences of 4 tokens, with the gaps of four that have gone between them: 16 cells are
// free, and none of the gaps holds a sequence of 8.
func TestSixteenFreeCellsCannotServeEight(t *testing.T) {
	short, long := kvcache.Request{Prompt: 3, Output: 1}, kvcache.Request{Prompt: 1, Output: 3}
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 32}
	r := simulate(t, o, short, long, short, long, short, long, short, long, kvcache.Request{Prompt: 4, Output: 4})
	want := kvcache.Point{Step: 2, Running: 4, Waiting: 1, Shares: kvcache.Shares{Token: 12, Reserve: 4, Fragmented: 16}}
	assert.Diff(t, want, at(t, r, 2), "%v", o.Policy)
	// The four leave together after step 3, and the last has room.
	assert.Diff(t, kvcache.Shares{Token: 5, Reserve: 3, Idle: 24}, at(t, r, 4).Shares, "%v", o.Policy)
	assert.That(t, r.Steps == 7 && r.Finished == 9 && r.Peak == 8,
		"%v: %d steps, %d finished, peak %d; want 7, 9, 8", o.Policy, r.Steps, r.Finished, r.Peak)
}

func TestWhoWaitsBehindTheHeadWaitsToo(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 10, StepTime: 10}
	r := simulate(t, o,
		kvcache.Request{Prompt: 4, Output: 3}, // 8 slots for 3 steps
		kvcache.Request{Prompt: 7, Output: 1}, // no room until then
		kvcache.Request{Prompt: 1, Output: 1}) // would fit at once
	want := []kvcache.Point{
		{Step: 1, Time: 0, Running: 1, Waiting: 1, Shares: kvcache.Shares{Token: 5, Reserve: 2, Rounding: 1, Blocked: 2}},
		{Step: 2, Time: 10, Running: 1, Waiting: 1, Shares: kvcache.Shares{Token: 6, Reserve: 1, Rounding: 1, Blocked: 2}},
		{Step: 3, Time: 20, Running: 1, Waiting: 1, Shares: kvcache.Shares{Token: 7, Rounding: 1, Blocked: 2}},
		{Step: 4, Time: 30, Running: 2, Shares: kvcache.Shares{Token: 10}},
	}
	assert.Diff(t, want, r.Series)
	assert.That(t, r.Batch == 1.25, "%v requests run on average, want 1.25", r.Batch)
}

// The reservation of 4 is outgrown with the fifth token, and the one of 8 with the ninth.
func TestAReservationThatIsOutgrownIsMadeAnew(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Max, Length: 4}, Capacity: 40, MaxLength: 10}
	r := simulate(t, o, kvcache.Request{Prompt: 3, Output: 7})
	var got []kvcache.Shares
	for _, p := range r.Series {
		got = append(got, p.Shares)
	}
	want := []kvcache.Shares{
		{Token: 4, Idle: 36},
		{Token: 5, Reserve: 3, Idle: 32}, {Token: 6, Reserve: 2, Idle: 32},
		{Token: 7, Reserve: 1, Idle: 32}, {Token: 8, Idle: 32},
		{Token: 9, Reserve: 1, Rounding: 6, Idle: 24}, {Token: 10, Rounding: 6, Idle: 24}, // a reservation of 16 would be beyond the model's limit
	}
	assert.Diff(t, want, got)
}

// Two requests outgrow 4 slots in a memory of 12: the first needs 8 more, and takes them from the
// second. A third one that comes then waits for the second to be back, though 4 slots would do.
func TestTheLatestArrivalIsPreemptedAndComesBackFirst(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Max, Length: 4}, Capacity: 12, StepTime: 1}
	r := simulate(t, o, kvcache.Request{Prompt: 3, Output: 5}, kvcache.Request{Prompt: 3, Output: 3}, kvcache.Request{Arrival: 2, Prompt: 1, Output: 1})
	want := []kvcache.Point{
		{Step: 1, Time: 0, Running: 2, Shares: kvcache.Shares{Token: 8, Idle: 4}},
		{Step: 2, Time: 1, Running: 1, Waiting: 1, Shares: kvcache.Shares{Token: 5, Reserve: 3, Blocked: 4}},
		{Step: 3, Time: 2, Running: 1, Waiting: 2, Shares: kvcache.Shares{Token: 6, Reserve: 2, Blocked: 4}},
		{Step: 4, Time: 3, Running: 1, Waiting: 2, Shares: kvcache.Shares{Token: 7, Reserve: 1, Blocked: 4}},
		{Step: 5, Time: 4, Running: 1, Waiting: 2, Shares: kvcache.Shares{Token: 8, Blocked: 4}},
		{Step: 6, Time: 5, Running: 2, Shares: kvcache.Shares{Token: 7, Reserve: 1, Internal: 4}},
		{Step: 7, Time: 6, Running: 1, Shares: kvcache.Shares{Token: 6, Internal: 2, Idle: 4}},
	}
	assert.Diff(t, want, r.Series)
	assert.That(t, r.Preemptions == 1 && r.Recomputed == 4 && r.Finished == 3,
		"%d preemptions, %d tokens again, %d finished; want 1, 4, 3", r.Preemptions, r.Recomputed, r.Finished)
}

func TestWhatCanNeverFitIsRejected(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 48, MaxLength: 40}
	r := simulate(t, o,
		kvcache.Request{Prompt: 40, Output: 1},             // beyond the model's limit
		kvcache.Request{Prompt: 32, Output: 1},             // the largest block of 32+16 is 32
		kvcache.Request{Prompt: 10, Output: 1, Prompts: 3}, // 33 slots
		kvcache.Request{Prompt: 31, Output: 1},
		kvcache.Request{Prompt: 7, Output: 1, Prompts: 4})
	assert.That(t, r.Requests == 5 && r.Rejected == 3 && r.Finished == 2,
		"%d requests, %d rejected, %d finished; want 5, 3, 2", r.Requests, r.Rejected, r.Finished)
}

// A request at 0 runs for one step, the next one comes at 95 ns: nine steps of nothing, of which
// those before the end of the warm-up do not count.
func TestStepsInWhichNothingRunsAreCounted(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 16, StepTime: 10, Warmup: 4}
	r := simulate(t, o, kvcache.Request{Prompt: 1, Output: 1}, kvcache.Request{Arrival: 95, Prompt: 3, Output: 1})
	assert.That(t, r.Steps == 7 && r.Batch == 1.0/7 && r.Mean.Token == 4.0/16/7 && r.Mean.Idle == (6*16.0+12)/16/7,
		"%d steps with %v running, mean %+v", r.Steps, r.Batch, r.Mean)
	p := at(t, r, 11)
	assert.That(t, p.Time == 100 && p.Running == 1, "step 11 is %+v, want one request at 100 ns", p)
	o.Steps = 6
	if r := simulate(t, o, kvcache.Request{Prompt: 1, Output: 1}, kvcache.Request{Arrival: 95, Prompt: 3, Output: 1}); r.Steps != 2 || r.Mean.Idle != 1 {
		t.Errorf("until step 6: %d steps counted, mean %+v; want 2 idle ones", r.Steps, r.Mean)
	}
}

func TestRequestsAndOptionsThatCannotBe(t *testing.T) {
	fine := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 16}
	for _, test := range []struct {
		change   func(*kvcache.Options)
		requests kvtest.List
		want     string
	}{
		{func(o *kvcache.Options) { o.Capacity = 0 }, nil, "a memory of 0 slots"},
		{func(o *kvcache.Options) { o.Policy.Kind = 99 }, nil, "policy 99 is not known"},
		{func(o *kvcache.Options) { o.Policy.Kind = kvcache.Max }, nil, "max needs the length"},
		{func(o *kvcache.Options) { o.Policy = kvcache.Policy{Kind: kvcache.Paged} }, nil, "16 slots cannot be divided into blocks of 0"},
		{func(o *kvcache.Options) { o.Policy, o.Capacity = kvcache.Policy{Kind: kvcache.Paged, Block: 2}, 1<<27 }, nil, "134217728 slots are 67108864 blocks of 2, and at most 16777216"},
		{func(o *kvcache.Options) { o.Watermark = 1 }, nil, "the watermark 1"},
		{func(o *kvcache.Options) { o.Steps = -1 }, nil, "is negative"},
		{func(o *kvcache.Options) { o.Sampling.Width = 2 }, nil, "2 sequences a prompt"},
		{func(o *kvcache.Options) {}, kvtest.List{{Prompt: 0, Output: 1, Line: 7}}, "line 7: a prompt of 0 tokens"},
		{func(o *kvcache.Options) {}, kvtest.List{{Prompt: 1, Output: 1}, {Prompt: 1, Output: -4}}, "request 2: an output of -4 tokens"},
		{func(o *kvcache.Options) {}, kvtest.List{{Prompt: 1, Output: 1, Prompts: -1}}, "-1 prompts"},
		{func(o *kvcache.Options) { o.StepTime = 1 }, kvtest.List{{Arrival: 5, Prompt: 1, Output: 1}, {Arrival: 4, Prompt: 1, Output: 1, Line: 3}}, "line 3: an arrival at 4 ns after one at 5 ns"},
	} {
		o := fine
		test.change(&o)
		_, err := Simulate(context.Background(), &test.requests, o)
		assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "%v, want %q", err, test.want)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Simulate(gone, &kvtest.List{{Prompt: 1, Output: 1}}, fine)
	assert.That(t, errors.Is(err, context.Canceled), "%v, want %v", err, context.Canceled)
}

// A state that does not add up ends the simulation, even if the sum happens to be right.
func TestTheIdentityIsChecked(t *testing.T) {
	for _, wrong := range []kvcache.Shares{{Token: 15}, {Token: 17}, {Token: 20, Idle: -4}} {
		o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Oracle}, Capacity: 16}
		source := kvtest.List{{Prompt: 1, Output: 1}}
		memory, err := stores.New(o)
		assert.NoError(t, err)
		_, err = SimulateIn(context.Background(), &source, o, lying{memory, wrong})
		var step *kvcache.StepError
		assert.That(t, errors.As(err, &step) && step.Step == 1 && step.Shares == wrong, "%+v: %v, want a StepError of step 1", wrong, err)
	}
}

// lying is a store that says something else of its slots.
type lying struct {
	kvcache.Store
	says kvcache.Shares
}

func (l lying) Shares(*kvcache.Request) kvcache.Shares { return l.says }

// However many requests have arrived and wait, of those behind the head none is kept.
func TestTheQueueIsNotKept(t *testing.T) {
	source := &crowd{}
	r, err := Simulate(context.Background(), source, kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 200, StepTime: 1e6, Steps: 2000})
	assert.NoError(t, err)
	last := r.Series[len(r.Series)-1]
	assert.Must(t, last.Waiting != 0, "the last point is %+v: nobody waits", last)
	most := r.Finished + r.Peak + r.Preemptions + 2
	assert.That(t, source.read <= most, "%d requests were read to serve %d at a time to the end of %d", source.read, r.Peak, r.Finished)
	waited := r.Steps - source.read
	assert.That(t, waited >= 1000, "of %d that arrived all but %d were read", r.Steps, waited)
}

// crowd has a request arrive every millisecond without end.
type crowd struct{ read int64 }

func (c *crowd) Next() (kvcache.Request, error) {
	c.read++
	return kvcache.Request{Arrival: (c.read - 1) * 1e6, Prompt: 20, Output: 20}, nil
}
