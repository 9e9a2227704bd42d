package fit

import (
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// edited are the allocs and frees of the edited events, as "+10 h.attn" and "-10 h.attn", in MiB.
func (j *script) edited(t *testing.T, e *edit) (all []string) {
	t.Helper()
	live := map[int64]string{}
	j.each(t, e, func(event *trace.Event) {
		switch event.Kind {
		case trace.KindAlloc:
			live[event.Addr] = fmt.Sprintf("%d %s", event.Requested/mib, e.originOf(event.Context).place)
			all = append(all, "+"+live[event.Addr])
		case trace.KindFree:
			all = append(all, "-"+live[event.Addr])
			delete(live, event.Addr)
		}
	})
	return all
}

// mathBackend is attention by the math backend: queries have 10 MiB, keys and values 20 each. Where packed, all have 10 and come from one projection,
// and a KV cache has keys and values of its own.
func mathBackend(packed bool) *script {
	j := &script{job: newJob()}
	var passing, saved, cache []int64
	var workspace int64 // stays, as cuBLAS's does
	keys := int64(20)
	if packed {
		keys = 10
	}
	own := func(size int64, c attribution.Category) int64 { return j.alloc(size, c, "h.attn") }
	temporary := func(size int64) int64 { return own(size, attribution.Temporaries) }
	save := func(size int64) { saved = append(saved, own(size, attribution.Activations)) }
	j.phase("forward", func() {
		if packed {
			passing = append(passing, j.alloc(30, attribution.Temporaries, "h.attn.qkv"))
			cache = append(cache, own(10, attribution.KVCache), own(10, attribution.KVCache))
		} else {
			passing = append(passing, j.alloc(10, attribution.Temporaries, "h.attn.query"), j.alloc(40, attribution.Temporaries, "h.attn.key_value"))
		}
		save(10)   // scaled queries
		save(keys) // and keys
		workspace = own(8, attribution.Workspace)
		raw := temporary(100)
		save(100) // the softmax
		j.free(raw)
		if !packed {
			save(20) // values: those of a cache are contiguous
		}
		result := temporary(10)
		save(10) // its copy, with heads behind each other
		j.free(result)
		out := j.alloc(10, attribution.Temporaries, "h.attn.out")
		j.free(passing...)
		j.free(out)
	})
	if packed {
		j.free(cache[0]) // the job lets the cache go; values are saved by the softmax's product, too
	}
	j.phase("backward", func() {
		temporary := func(size int64) int64 { return j.alloc(size, attribution.Temporaries, "") }
		incoming := temporary(10)
		j.free(saved[len(saved)-1])
		contiguous := temporary(10)
		j.free(incoming)
		ofValues, ofScores := temporary(keys), temporary(100)
		j.free(contiguous)
		if packed {
			j.free(cache[1])
		} else {
			j.free(saved[3])
		}
		ofRaw := temporary(100)
		j.free(ofScores, saved[2])
		ofQueries, ofKeys := temporary(10), temporary(keys)
		j.free(ofRaw, saved[1], saved[0])
		scaled := temporary(keys)
		j.free(ofKeys)
		both := temporary(2 * keys)
		j.free(scaled, ofValues)
		behind := temporary(10)
		j.free(ofQueries)
		j.free(both, behind)
	})
	j.free(workspace)
	return j
}

// TestKernel: what a fused kernel makes, in the order in which it does. Backward allocates the gradients of queries, keys and values, and frees what
// it computed from. The queries' gradient is not copied.
func TestKernel(t *testing.T) {
	j := mathBackend(false)
	e := withoutScores(j.history(t))
	assert.Diff(t, []string{
		"+10 h.attn.query", "+40 h.attn.key_value", "+8 h.attn", "+10 h.attn", "+10 h.attn.out", "-10 h.attn.out",
		"+10 ", "+10 ", "+20 ", "+20 ", "-10 ", "-10 h.attn.query", "-40 h.attn.key_value", "-10 h.attn",
		"+40 ", "-20 ", "-20 ", "-40 ", "-10 ", "-8 h.attn",
	}, j.edited(t, e), "events")
	assert.Equal(t, j.liveAtEnd(t, e), 0, "blocks that live on")
}

// TestKernelOfCache: a packed projection is saved for the queries, and the cache's keys and values until backward has a use for them.
func TestKernelOfCache(t *testing.T) {
	j := mathBackend(true)
	e := withoutScores(j.history(t))
	assert.Diff(t, []string{
		"+30 h.attn.qkv", "+10 h.attn", "+10 h.attn", "+8 h.attn", "+10 h.attn", "+10 h.attn.out", "-10 h.attn.out",
		"+10 ", "+10 ", "+10 ", "+10 ", "-10 ", "-30 h.attn.qkv", "-10 h.attn", "-10 h.attn", "-10 h.attn",
		"+20 ", "-10 ", "-10 ", "-20 ", "-10 ", "-8 h.attn",
	}, j.edited(t, e), "events")
	assert.Equal(t, j.liveAtEnd(t, e), 0, "blocks that live on")
}

// TestRepeatKeys: the advice ends in a hint only where keys have fewer heads than queries.
func TestRepeatKeys(t *testing.T) {
	for _, c := range []struct {
		keys int64
		hint string
	}{{4, repeatKeys}, {12, ""}} {
		j := fusedJob(func(f *fused) [][]int64 {
			f.part(12, ".q_proj")
			f.part(c.keys, ".k_proj")
			f.part(c.keys, ".v_proj")
			query, key := f.saved(12), f.saved(12)
			softmax, values := f.softmax(40), f.saved(12)
			return [][]int64{{f.result(12)}, {values, softmax}, {key, query}}
		})
		assert.Equal(t, withoutScores(j.history(t)).hint, c.hint, "keys of so many heads")
	}
}
