package pause

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestEngineSettings(t *testing.T) {
	const gib = 1 << 30
	c := Cycle{
		Tags: []Tag{{Name: "trainer_weights", Bytes: 30 * gib}, {Name: "rollout_weights", Bytes: 15 * gib}, {Name: "kv_cache", Bytes: 60 * gib, KV: true}, {Name: "cuda_graph", Bytes: 2 * gib}, {Name: "buffers", Bytes: 5 * gib}},
		Stages: []Stage{
			{Name: "train", Sizes: []int64{30 * gib, Paused, Paused, Paused, Paused}, Needs: []bool{true, false, false, false, false}},
			{Name: "rollout", Sizes: []int64{Paused, 15 * gib, 60 * gib, 2 * gib, 4 * gib}, Needs: []bool{false, true, true, true, true}},
		},
	}
	engine, ok := c.Engine()
	want := Engine{Weights: 15 * gib, Graphs: 2 * gib, Other: 4 * gib}
	assert.Must(t, ok && engine == want, "engine %+v, %v, want %+v", engine, ok, want)
	assert.Equal(t, engine.Settings(83*gib, 130*gib, 5*gib), Settings{0.784, 0.8}, "settings")     // 98 of 125, 104 of 130
	assert.Equal(t, engine.Settings(83*gib-1, 130*gib, 5*gib), Settings{0.783, 0.799}, "settings") // never more than fits
	c.Tags[2].KV = false
	if _, ok := c.Engine(); ok {
		t.Error("an engine without a KV cache")
	}
}
