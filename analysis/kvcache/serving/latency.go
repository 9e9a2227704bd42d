package serving

import (
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
)

// latency sums up requests in a memory that does not grow with them.
type latency struct {
	finishedRequests, tokens int64
	admittedRequests         int64
	waiting, normalised      float64 // sums, ns, and ns a token
	normalisedBy             [latencyBuckets]int64
	most                     float64 // the greatest, ns a token
}

// latencyStep is the ratio of the ends of a bucket, latencyBuckets enough of them for every int64.
const (
	latencyStep    = 1.01
	latencyBuckets = 4400
)

// admitted takes a request that waited so many ns.
func (l *latency) admitted(waited int64, counts bool) {
	if counts {
		l.admittedRequests++
		l.waiting += float64(waited)
	}
}

// finished takes a group so many ns after its arrival.
func (l *latency) finished(took int64, g *group, counts bool) {
	if !counts {
		return
	}
	l.finishedRequests++
	l.tokens += int64(g.Sequences) * int64(g.Request.Output)
	normalised := float64(took) / float64(g.Request.Output)
	l.normalised += normalised
	l.most = max(l.most, normalised)
	bucket := int(math.Log(max(normalised, 1)) / math.Log(latencyStep))
	l.normalisedBy[min(bucket, latencyBuckets-1)]++
}

// served is the summary of a time in ns.
func (l *latency) served(time int64, saturated bool) *kvcache.Served {
	const second = 1e9
	s := &kvcache.Served{
		Requests: float64(l.finishedRequests) / float64(time) * second,
		Tokens:   float64(l.tokens) / float64(time) * second,
		Latency:  kvcache.Spread{Mean: math.NaN(), P90: math.NaN()}, Waiting: math.NaN(),
	}
	if saturated {
		return s
	}
	if l.admittedRequests > 0 {
		s.Waiting = l.waiting / float64(l.admittedRequests) / second
	}
	if l.finishedRequests > 0 {
		s.Latency = kvcache.Spread{Mean: l.normalised / float64(l.finishedRequests) / second, P90: l.quantile(0.9) / second}
	}
	return s
}

// quantile is the middle of the bucket that a share of the finished requests is not above, but not above the greatest.
func (l *latency) quantile(share float64) float64 {
	rank := int64(math.Ceil(share * float64(l.finishedRequests)))
	for i, n := range l.normalisedBy {
		if rank -= n; rank <= 0 {
			return min(math.Pow(latencyStep, float64(i)+0.5), l.most)
		}
	}
	return 0
}
