package requests

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// counting notes the heap when the first tenth of the requests was read, and when all were.
type counting struct {
	kvcache.Source
	read, of  int
	tenth, at uint64 // bytes
}

func (c *counting) Next() (kvcache.Request, error) {
	c.read++
	switch c.read {
	case c.of / 10:
		c.tenth = heap()
	case c.of:
		c.at = heap()
	}
	return c.Source.Next()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Two hundred thousand requests of ShareGPT's lengths, more than are sustained. The promise is a million in 10 s of
// a processor that has nothing else to do, in memory that does not grow with them.
func TestManyRequests(t *testing.T) {
	const most = 200_000
	longest := modeltest.Limit(time.Minute)
	timed, err := serving.TimingNamed("a100-40gb-opt-13b")
	assert.NoError(t, err)
	drawn, err := Draw(shareGPT(t), Pace{Rate: 2, Duration: most / 2 * 1e9, Seed: 1})
	assert.NoError(t, err)
	src := &counting{Source: drawn, of: most * 99 / 100} // a Poisson process has no certain number
	start := modeltest.ProcessorTime(t)
	r, err := serving.Simulate(context.Background(), src, kvcache.Options{
		Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 15_728, MaxLength: 2048, Watermark: 0.01, Timing: timed,
	})
	assert.NoError(t, err)
	took := modeltest.ProcessorTime(t) - start
	t.Logf("%v for %d requests in %d steps; the heap has %d bytes, and %d after a tenth", took, r.Finished, r.Steps, src.at, src.tenth)
	assert.That(t, took <= longest, "%v, want less than %v", took, longest)
	assert.That(t, r.Finished >= int64(src.of) && src.at != 0 && src.at <= src.tenth+512<<10,
		"%d finished; the heap grew from %d to %d bytes", r.Finished, src.tenth, src.at)
}
