package kv

import (
	"fmt"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Description is how an engine describes one of its caches.
type Description struct {
	Engine, Name string
	Device       int32
	TokenBytes   int64 // bytes of a slot
	Block        int64 // slots of a block; 0: contiguous
	Beams        int64 // sequences for each prompt, each with its own keys and values; 0: one
}

// Account is the caches of one description in a recording, one after the other or together, by the marks
// of their engine. It has the shares that a simulation has, over time in place of steps, while a
// sequence is in a cache.
//
// A mark says what a slot is used for, but not whether a reserved, empty slot will ever be filled. That is
// known when the slot is freed: until then it counts as reserve, and if it was never filled, it is
// counted as internal from the time on at which it was reserved. Slots of a sequence that has ended,
// and padding, are internal at once. Free slots are idle, since an engine does not report waiting
// requests.
type Account struct {
	Description
	Caches   int64             // that there were
	Requests []kvcache.Request // that went through, in order of their ends; at most MostRequests are kept
	Sessions int64             // all sequences that had a token and ended

	from, at int64 // shares are of the time [from, at), ns
	now      tally
	sum      integral
	series   kvcache.Series
	instants int64
	busy     bool // a sequence was there before the present state
	steps    int64
	peak     int64 // greatest running
	capacity int64 // greatest
	started  int64
	// Blocks copied to the host and back.
	swappedOut, swappedIn int64

	hits     int64 // blocks shared, and the slots in them
	hitSlots int64
}

// Policy is in the place of a policy's name in the Result of an Account.
const Policy = "recorded"

// MostRequests is how many of the requests of an Account are kept, each of at most
// longestRequest tokens.
const (
	MostRequests   = 4096
	longestRequest = 1 << 26
)

// tally is the state of all caches at an instant, in slots.
type tally struct {
	capacity, held, token, dead, cached, null int64
	running                                   int64 // sequences
	logical, unique                           int64 // blocks: that tables name, that they are
}

// integral is a tally times ns.
type integral struct {
	busy                                                      int64 // ns
	capacity, held, token, dead, cached, null, running, never float64
	logical, unique                                           float64
}

// NewAccount begins an account.
func NewAccount(d Description) *Account {
	return &Account{Description: d, series: kvcache.NewSeries()}
}

// Begin sets the time, ns, from which on the account is taken: what was there before is there,
// and not counted.
func (r *Account) Begin(time int64) {
	r.from, r.at = time, time
	r.sum, r.series, r.instants, r.steps = integral{}, kvcache.NewSeries(), 0, 0
	r.peak, r.capacity, r.started, r.hits, r.hitSlots = 0, 0, r.now.running, 0, 0
	r.swappedOut, r.swappedIn = 0, 0
	r.Requests, r.Sessions = nil, 0
}

// Advance counts the present state up to a moment. Threads read the clock on their own, so a
// moment may lie before the last.
func (r *Account) Advance(time int64) error {
	if time <= r.at {
		return nil
	}
	t := &r.now
	s := kvcache.Shares{
		Token: t.token, Reserve: t.held - t.token - t.dead, Internal: t.dead, Cached: t.cached, Null: t.null,
		Idle: t.capacity - t.held - t.cached - t.null,
	}
	if s.Negative() {
		return fmt.Errorf("the slots do not add up to the %d of the caches: %+v", t.capacity, s)
	}
	if t.running > 0 || r.busy { // and where it ends
		r.instants++
		r.series.Add(kvcache.Point{Step: r.instants, Time: r.at, Running: t.running, Shares: s})
	}
	if r.busy = t.running > 0; r.busy {
		r.sum.add(t, time-r.at)
		r.peak = max(r.peak, t.running)
		r.capacity = max(r.capacity, t.capacity)
	}
	r.at = time
	return nil
}

func (i *integral) add(t *tally, ns int64) {
	d := float64(ns)
	i.busy += ns
	i.capacity += d * float64(t.capacity)
	i.held += d * float64(t.held)
	i.token += d * float64(t.token)
	i.dead += d * float64(t.dead)
	i.cached += d * float64(t.cached)
	i.null += d * float64(t.null)
	i.running += d * float64(t.running)
	i.logical += d * float64(t.logical)
	i.unique += d * float64(t.unique)
}

// never counts slots as never filled that were reserved since a time and are freed now.
func (r *Account) never(slots, since int64) {
	if slots == 0 {
		return
	}
	r.sum.never += float64(slots) * float64(r.at-max(since, r.from))
	r.series.Revise(since, func(s *kvcache.Shares) {
		s.Reserve -= slots
		s.Internal += slots
	})
}

// through keeps the lengths of a sequence that has ended, once.
func (r *Account) through(s *sequenceState) {
	if s.tokens == 0 || s.counted {
		return
	}
	s.counted = true
	r.Sessions++
	if len(r.Requests) == MostRequests || s.tokens > longestRequest {
		return
	}
	prompt := s.prompt
	if prompt == 0 || prompt > s.tokens {
		prompt = s.bulk
	}
	r.Requests = append(r.Requests, kvcache.Request{Arrival: s.start - r.from, Prompt: int(max(prompt, 1)), Output: int(max(s.tokens-prompt, 1))})
}

// Result is the account up to the last moment. Steps are those in which a sequence got tokens,
// means are over time, and blocks of sharing are sums over ns. What is in a cache still is taken
// for what it will be: its empty slots are reserve.
func (r *Account) Result() *kvcache.Result {
	out := &kvcache.Result{
		Policy: Policy, Capacity: r.capacity, Steps: r.steps, Peak: r.peak, Requests: r.started, Finished: r.Sessions,
		Sharing:    kvcache.Sharing{LogicalBlocks: r.sum.logical, SavedByPrefix: r.sum.logical - r.sum.unique, PrefixHits: r.hits, PrefixTokens: r.hitSlots},
		SwappedOut: r.swappedOut, SwappedIn: r.swappedIn, Series: r.series.Points(),
	}
	if i := &r.sum; i.capacity > 0 {
		c := i.capacity
		out.Mean = kvcache.Shares64{
			Token: i.token / c, Reserve: (i.held - i.token - i.dead - i.never) / c, Internal: (i.dead + i.never) / c,
			Idle: (c - i.held - i.cached - i.null) / c, Cached: i.cached / c, Null: i.null / c,
		}
		out.Batch = i.running / float64(i.busy)
	}
	return out
}

// Check returns an error unless the shares of every instant that is kept add up to a capacity
// and none is negative, now that it is known which slots were never filled.
func (r *Account) Check() error {
	for _, p := range r.series.Points() {
		if p.Shares.Negative() || p.Shares.Sum() > r.capacity {
			return &kvcache.StepError{Step: p.Step, Shares: p.Shares, Capacity: r.capacity}
		}
	}
	return nil
}
