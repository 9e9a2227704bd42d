package analysis

import "github.com/memprof/memprof/analysis/kvcache"
import (
	"github.com/memprof/memprof/analysis/kv"
)

// kvMetrics are of the KV cache with the most slots, where an engine marked one.
var kvMetrics = []Metric{
	kvShare("kv.token", "slots of the KV cache that hold a token, in the mean over time", func(m *kvcache.Shares64) float64 { return m.Token }),
	kvShare("kv.reserve", "slots that are reserved and will be filled", func(m *kvcache.Shares64) float64 { return m.Reserve }),
	kvShare("kv.internal", "slots of reservations and blocks that are never filled", func(m *kvcache.Shares64) float64 { return m.Internal }),
	kvShare("kv.external", "slots that no sequence can use: lost by rounding, or free in pieces too small", func(m *kvcache.Shares64) float64 { return m.External() }),
	kvShare("kv.idle", "free slots that a sequence could use", func(m *kvcache.Shares64) float64 { return m.Idle }),
	kvShare("kv.cached", "slots that keep the content of sequences that have gone", func(m *kvcache.Shares64) float64 { return m.Cached }),
	kvCache.metric("kv.batch", Count, "sequences at once, in the mean over time", func(kv *kv.Result) (float64, int64, bool) {
		return kv.Recorded.Batch, -1, true
	}),
	kvCache.metric("kv.batch.peak", Count, "sequences at once, at most", func(kv *kv.Result) (float64, int64, bool) {
		return float64(kv.Recorded.Peak), -1, true
	}),
}

func kvShare(name, help string, of func(*kvcache.Shares64) float64) Metric {
	return kvCache.metric(name, Share, help, func(kv *kv.Result) (float64, int64, bool) { return of(&kv.Recorded.Mean), -1, true })
}

var kvCache = ofWhole(greatestKV)

// greatestKV is the KV cache with the most slots of those that had a sequence,
// or nil. Impossible marks give no metric.
func greatestKV(d *DeviceResult) *kv.Result {
	var most *kv.Result
	for _, kv := range d.KV {
		if kv.Fault == "" && kv.Recorded.Capacity > 0 && (most == nil || kv.Recorded.Capacity > most.Recorded.Capacity) {
			most = kv
		}
	}
	return most
}
