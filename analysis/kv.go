package analysis

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace"
)

// KeysValues is the memory for keys and values of one engine on one device, as its marks tell
// it: all caches that are alike but for their size, one after the other or together.
type KeysValues struct {
	kvcache.Description
	Caches int64 // that there were
	// Recorded is the split of what happened. Its means are over the time in which there was a
	// sequence; see [kvcache.Recorded].
	Recorded *kvcache.Result
	// Requests are those that went through, at most kvcache.MostRequests of them.
	Requests []kvcache.Request
	// Policies are what others would have done with these requests; see [KeysValues.Simulate].
	Policies []*kvcache.Result
	// Fault says where and why the marks stopped to make sense; "" if they did not. What is
	// above holds up to there.
	Fault string
}

// keysValues are the caches of a process.
type keysValues struct {
	pools  []*kvPool
	caches map[int64]*kvCache // by number, those that have not ended
	at     int64              // where the trace begins, ns
}

type kvPool struct {
	*kvcache.Recorded
	fault string
}

type kvCache struct {
	*kvcache.RecordedCache
	pool *kvPool
}

// kv takes an event of keys and values. A mark that cannot be is not the end of the analysis: the
// engine's books are wrong, not the allocator's. What they say after it is passed over.
func (a *analyzer) kv(e *trace.Event) {
	k := &a.keysValues
	if k.caches == nil {
		k.caches = map[int64]*kvCache{}
	}
	time := max(e.Time, k.at)
	fields := trace.ParseContext(e.Kind, a.opt.Text(e.Context))
	if e.Kind == trace.KindKVCache {
		k.open(e, time, fields)
		return
	}
	c := k.caches[e.KVCache()]
	if c == nil {
		c = &kvCache{pool: k.poolOf(kvcache.Description{Device: trace.NoDevice})}
		c.pool.refuse(e, errors.New("no kv_cache event describes the cache"))
	}
	if c.pool.fault != "" {
		return
	}
	var err error
	switch {
	case e.Kind == trace.KindKVReserve:
		err = c.Reserve(time, e.KVSequence(), e.Requested, e.KVSlots(), fields.Count("prompt", 0))
	case e.Kind == trace.KindKVShare:
		err = c.Share(time, e.KVSequence(), e.KVFirstBlock(), e.KVSlots(), fields.Count("position", -1))
	case e.Kind == trace.KindKVAppend:
		err = c.Append(time, e.KVSequence(), e.KVTokens())
	case e.KVSequence() != kvcache.All:
		if err = c.Free(time, e.KVSequence(), e.KVKept()); err == nil && !a.opening {
			a.sequenceEnded(c.pool.Device, e)
		}
	case e.KVSlots() > 0:
		err = c.Drop(time, e.KVFirstBlock(), e.KVSlots())
	default:
		err = c.End(time)
		delete(k.caches, e.KVCache())
	}
	c.pool.refuse(e, err)
}

// open takes a kv_cache event. One of a cache that is there restates it.
func (k *keysValues) open(e *trace.Event, time int64, fields trace.Context) {
	if k.caches[e.KVCache()] != nil {
		return
	}
	pool := k.poolOf(kvcache.Description{
		Engine: fields.Get("engine"), Name: fields.Get("name"), Device: e.Device, TokenBytes: e.KVTokenBytes(), Block: fields.Count("block", 0),
		Beams: fields.Count("beams", 0),
	})
	c, err := pool.Cache(time, e.KVSlots(), fields.Count("null", 0))
	pool.refuse(e, err)
	if err == nil {
		k.caches[e.KVCache()] = &kvCache{c, pool}
	}
}

func (k *keysValues) poolOf(d kvcache.Description) *kvPool {
	for _, p := range k.pools {
		if p.Description == d {
			return p
		}
	}
	p := &kvPool{Recorded: kvcache.NewRecorded(d)}
	p.Begin(k.at)
	k.pools = append(k.pools, p)
	return p
}

// refuse keeps the first error of a pool, and where it was.
func (p *kvPool) refuse(e *trace.Event, err error) {
	if err != nil && p.fault == "" {
		p.fault = fmt.Sprintf("event seq %d, %s of cache %d: %v", e.Seq, e.Kind, e.KVCache(), err)
	}
}

// begin is told where the trace begins: what was told before restates.
func (k *keysValues) begin(time int64) {
	k.at = time
	for _, p := range k.pools {
		p.Begin(time)
	}
}

// finishKV puts the caches with their devices.
func (a *analyzer) finishKV() error {
	for _, p := range a.keysValues.pools {
		id := p.Device
		if id == trace.NoDevice { // marks of a cache that nothing describes
			id = 0
		}
		if p.fault == "" {
			if err := p.Advance(a.lastTime); err != nil {
				p.fault = err.Error()
			} else if err := p.Check(); err != nil {
				return err
			}
		}
		d := a.deviceOf(id)
		d.KV = append(d.KV, &KeysValues{
			Description: p.Description, Caches: p.Caches, Recorded: p.Result(), Requests: p.Requests, Fault: p.fault,
		})
	}
	return nil
}

// Simulate fills Policies: what contiguous policies and a paged one would have done with the
// recorded requests in a memory of the same capacity, had they come over and over, so that some
// always wait. The greatest length is the least power of two that holds every request.
func (k *KeysValues) Simulate(ctx context.Context) error {
	k.Policies = nil
	if len(k.Requests) == 0 || k.Recorded.Capacity == 0 {
		return nil
	}
	longest := 1
	for i := range k.Requests {
		for longest < k.Requests[i].Length() {
			longest *= 2
		}
	}
	block := int(k.Block)
	if block == 0 {
		block = 16
	}
	const mostBlocks = 1 << 22 // that are worth the host's memory
	for _, p := range []kvcache.Policy{
		{Kind: kvcache.Max, Length: longest}, {Kind: kvcache.Pow2}, {Kind: kvcache.Oracle}, {Kind: kvcache.Paged, Block: block},
	} {
		if n := k.Recorded.Capacity / int64(block); p.Kind == kvcache.Paged && (n < 1 || n > mostBlocks) {
			continue
		}
		result, err := kvcache.Simulate(ctx, &endless{requests: k.Requests}, kvcache.Options{
			Policy: p, Capacity: k.Recorded.Capacity, Watermark: 0.01, Steps: simulatedSteps, Warmup: simulatedSteps / 10, At: -1,
		})
		if err != nil {
			return fmt.Errorf("%s with the requests of the recording: %w", p, err)
		}
		k.Policies = append(k.Policies, result)
	}
	return nil
}

// simulatedSteps are enough for every request of a recording to come several times.
const simulatedSteps = 20_000

// mostServed bounds the requests of a simulation, as some policy may reject every one.
const mostServed = 1 << 18

// endless is a Source of requests that come over and over, mostServed of them.
type endless struct {
	requests []kvcache.Request
	next     int
}

func (e *endless) Next() (kvcache.Request, error) {
	if e.next == mostServed {
		return kvcache.Request{}, io.EOF
	}
	r := e.requests[e.next%len(e.requests)]
	e.next++
	r.Arrival = 0
	return r, nil
}
