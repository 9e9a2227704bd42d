package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	kvmarks "github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/report/kv"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recordedServer is a device with two engines: one in blocks, with a policy beside it, and one
// whose marks went wrong.
func recordedServer(t *testing.T) *analysis.Result {
	t.Helper()
	r := kvmarks.NewAccount(kvmarks.Description{Engine: "mine", Name: "decoder", TokenBytes: 16 << 10, Block: 4})
	c, err := r.Cache(0, 1<<20, 1)
	for _, err := range []error{
		err,
		c.Reserve(0, 0, 1, 8, 5), c.Append(0, 0, 5), c.Share(1e6, 1, 1, 4, -1), c.Reserve(1e6, 1, 9, 4, 0), c.Append(1e6, 1, 6),
		c.Append(2e6, kvmarks.All, 1), c.Free(3e6, 0, 4), c.Free(5e6, 1, 0), r.Advance(6e6), r.Check(),
	} {
		assert.NoError(t, err)
	}
	decoder := &kvmarks.Result{Description: r.Description, Caches: 1, Recorded: r.Result(), Requests: r.Requests}
	decoder.Policies = []*kvcache.Result{{
		Policy: "max:8", Capacity: 1 << 20, Steps: 9, Batch: 2, Peak: 2,
		Mean: kvcache.Shares64{Token: 0.25, Reserve: 0.25, Internal: 0.2, Rounding: 0.1, Fragmented: 0.03, Blocked: 0.02, Idle: 0.05, Cached: 0.05, Null: 0.05},
	}}
	wrong := &kvmarks.Result{
		Description: kvmarks.Description{Engine: "transformers DynamicCache", Beams: 4}, Caches: 12345, Recorded: &kvcache.Result{Policy: kvmarks.Policy},
		Fault: "event seq 1234567, kv_reserve of cache 1: sequence 1234567 is given block 1234567, which is in use, and that is long",
	}
	d := reporttest.Whole(analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}}, Total: 80 << 30, KV: []*kvmarks.Result{decoder, wrong}})
	d.Held.Categories.Groups = []attribution.Group{{Name: attribution.Weights.String(), Blocks: 1, Requested: 20 << 30, Provided: 20 << 30}}
	return &analysis.Result{Process: "pid1", Devices: []analysis.DeviceResult{d}}
}

// TestKVPage: a page has the course of a cache that an engine reported.
func TestKVPage(t *testing.T) {
	text, err := json.Marshal(kv.PageData(&recordedServer(t).Devices[0]))
	assert.That(t, err == nil && strings.Contains(string(text), `"name":"decoder"`) && strings.Contains(string(text), `"token":[`), "%v: %.200s", err, text)
}
