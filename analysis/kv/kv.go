// Package kv follows the KV caches of engines that serve a language model, from the marks that the engines
// make. An engine divides a block of device memory among its sequences; package kvcache
// has the terms of that division, in slots of one token each.
package kv

import (
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace"
)

// Result is the KV cache of one engine on one device, as the engine's marks have it: all caches that
// differ only in size, one after the other or at once.
type Result struct {
	Description
	Caches int64 // how many there were
	// Recorded is the split as it was recorded. Its means are over the time in which there was a
	// sequence; see [Account].
	Recorded *kvcache.Result
	// Requests are those that finished, at most MostRequests of them.
	Requests []kvcache.Request
	// Policies are simulations of these requests; see [Result.Simulate].
	Policies []*kvcache.Result
	// Fault is the first impossible mark, and why it is impossible; "" if there is none. The other fields hold up
	// to there.
	Fault string
}

// Tracker follows the caches of a process.
type Tracker struct {
	text   func(context int32) string
	pools  []*pool
	byName map[Description]*pool // the same
	caches map[int64]*cache      // by number, those that have not ended
	at     int64                 // where the trace begins, ns
}

// pool is the caches of one [Result].
type pool struct {
	*Account
	fault string
}

type cache struct {
	*Cache
	pool *pool
}

// New is a Tracker of a process without marks; text gives the text of a context.
func New(text func(context int32) string) *Tracker {
	return &Tracker{text: text, byName: map[Description]*pool{}, caches: map[int64]*cache{}}
}

// Event takes a mark. ended: a sequence of a cache on the device ended. An impossible mark is no
// error of the trace, since the engine reports it, not the allocator. Marks after it are ignored.
func (k *Tracker) Event(e *trace.Event) (device int32, ended bool) {
	time := max(e.Time, k.at)
	given := trace.ParseContext(e.Kind, k.text(e.Context))
	if e.Kind == trace.KindKVCache {
		k.open(e, time, given)
		return 0, false
	}
	c := k.caches[e.KVCache()]
	if c == nil {
		c = &cache{pool: k.poolOf(Description{Device: trace.NoDevice})}
		c.pool.refuse(e, errors.New("no kv_cache event describes the cache"))
	}
	if c.pool.fault != "" {
		return 0, false
	}
	var err error
	switch swap := given.Get("swap"); {
	case e.Kind == trace.KindKVReserve && swap == "in":
		err = c.SwapIn(time, e.KVSequence(), e.KVFirstBlock(), e.KVSlots())
	case e.Kind == trace.KindKVFree && swap == "out":
		err = c.SwapOut(time, e.KVSequence(), e.KVSlots())
	case e.Kind == trace.KindKVReserve:
		err = c.Reserve(time, e.KVSequence(), e.Requested, e.KVSlots(), given.Count("prompt", 0))
	case e.Kind == trace.KindKVShare:
		err = c.Share(time, e.KVSequence(), e.KVFirstBlock(), e.KVSlots(), given.Count("position", -1))
	case e.Kind == trace.KindKVAppend:
		err = c.Append(time, e.KVSequence(), e.KVTokens())
	case e.KVSequence() != All:
		err = c.Free(time, e.KVSequence(), e.KVKept())
		ended = err == nil
	case e.KVSlots() > 0:
		err = c.Drop(time, e.KVFirstBlock(), e.KVSlots())
	default:
		err = c.End(time)
		delete(k.caches, e.KVCache())
	}
	c.pool.refuse(e, err)
	return deviceOf(c.pool), ended
}

// deviceOf is the device of a pool. Marks of a cache that no event describes count for device 0.
func deviceOf(p *pool) int32 { return max(p.Device, 0) }

// open takes a kv_cache event. One of an open cache repeats its description.
func (k *Tracker) open(e *trace.Event, time int64, given trace.Context) {
	if k.caches[e.KVCache()] != nil {
		return
	}
	p := k.poolOf(Description{
		Engine: given.Get("engine"), Name: given.Get("name"), Device: e.Device, TokenBytes: e.KVTokenBytes(), Block: given.Count("block", 0),
		Beams: given.Count("beams", 0),
	})
	c, err := p.Cache(time, e.KVSlots(), given.Count("null", 0))
	p.refuse(e, err)
	if err == nil {
		k.caches[e.KVCache()] = &cache{c, p}
	}
}

func (k *Tracker) poolOf(d Description) *pool {
	if p := k.byName[d]; p != nil {
		return p
	}
	p := &pool{Account: NewAccount(d)}
	p.Begin(k.at)
	k.pools, k.byName[d] = append(k.pools, p), p
	return p
}

// refuse keeps the first error of a pool, and where it was.
func (p *pool) refuse(e *trace.Event, err error) {
	if err != nil && p.fault == "" {
		p.fault = fmt.Sprintf("event seq %d, %s of cache %d: %v", e.Seq, e.Kind, e.KVCache(), err)
	}
}

// Begin takes the time at which the trace begins: marks before it restate.
func (k *Tracker) Begin(time int64) {
	k.at = time
	for _, p := range k.pools {
		p.Begin(time)
	}
}

// Finish gives the results, with the device of each, at the time of the last event. An error is a
// split that does not add up.
func (k *Tracker) Finish(time int64, add func(device int32, r *Result)) error {
	for _, p := range k.pools {
		if p.fault == "" {
			if err := p.Advance(time); err != nil {
				p.fault = err.Error()
			} else if err := p.Check(); err != nil {
				return err
			}
		}
		add(deviceOf(p), &Result{
			Description: p.Description, Caches: p.Caches, Recorded: p.Result(), Requests: p.Requests, Fault: p.fault,
		})
	}
	return nil
}
