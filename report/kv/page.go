package kv

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/plain"
)

// pageCache is the course of a KV cache for html/parts/kv.js: slots from each time on.
type pageCache struct {
	Name     string  `json:"name"`
	Capacity int64   `json:"capacity"` // slots
	Slot     int64   `json:"slot"`     // bytes; 1 where the engine did not report them
	Time     []int64 `json:"time"`     // ns
	Running  []int64 `json:"running"`  // sequences
	Token    []int64 `json:"token"`
	Reserve  []int64 `json:"reserve"`
	Internal []int64 `json:"internal"`
	Cached   []int64 `json:"cached"`
	Null     []int64 `json:"null"`
	Idle     []int64 `json:"idle"`
}

// PageData is the courses of the KV caches that engines reported on a device, for a page.
func PageData(d *analysis.DeviceResult) any {
	caches := []pageCache{}
	for _, k := range simulationsOf(d, kv.Largest(d.KV)) {
		r := k.Results[0]
		if len(r.Series) == 0 {
			continue
		}
		c := pageCache{Name: plain.Shorten(k.Model, 60), Capacity: r.Capacity, Slot: max(1, k.BytesPerToken)}
		for _, p := range r.Series {
			s := p.Shares
			c.Time, c.Running = append(c.Time, p.Time), append(c.Running, p.Running)
			c.Token, c.Reserve, c.Internal = append(c.Token, s.Token), append(c.Reserve, s.Reserve), append(c.Internal, s.Internal)
			c.Cached, c.Null, c.Idle = append(c.Cached, s.Cached), append(c.Null, s.Null), append(c.Idle, s.Idle)
		}
		caches = append(caches, c)
	}
	return caches
}
