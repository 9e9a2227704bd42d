package fit

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// fused is an attention module "h.attn" in forward, and the order in which backward frees what it saved.
type fused struct {
	*script
	passing []int64 // freed at the end of forward
	lasting []int64 // and behind backward
}

func (f *fused) saved(size int64) int64 { return f.alloc(size, attribution.Activations, "h.attn") }

func (f *fused) temporary(size int64) int64 { return f.part(size, "") }

// part is a temporary of a part of the module that lives until forward ends.
func (f *fused) part(size int64, name string) int64 {
	f.passing = append(f.passing, f.alloc(size, attribution.Temporaries, "h.attn"+name))
	return f.passing[len(f.passing)-1]
}

// softmax makes scores, and returns what backward needs of them.
func (f *fused) softmax(size int64) int64 {
	raw := f.alloc(size, attribution.Temporaries, "h.attn")
	found := f.saved(size)
	f.free(raw)
	return found
}

// result is what attention returns, and its copy, which is saved.
func (f *fused) result(size int64) int64 {
	f.temporary(size)
	return f.saved(size)
}

// TestFused: what a fused kernel saves instead of scores. At the peak is what backward begins with, 101 MiB, too.
func TestFused(t *testing.T) {
	for _, c := range []struct {
		name     string
		forward  func(f *fused) [][]int64 // what each operator of backward frees
		requests int64
	}{
		{"nn.MultiheadAttention, math backend: packed, the result and its copy", func(f *fused) [][]int64 {
			packed, query, key := f.saved(30), f.saved(10), f.saved(10)
			softmax := f.softmax(40)
			return [][]int64{{f.result(10)}, {packed, softmax}, {key, query}}
		}, 30 + 10 + 10},
		{"nn.MultiheadAttention, need_weights=True: the result in place of the scaled queries", func(f *fused) [][]int64 {
			copied := f.alloc(30, attribution.Temporaries, "h.attn")
			packed := f.saved(30)
			f.free(copied)
			query := f.saved(10)
			softmax := f.softmax(40)
			return [][]int64{{f.result(10)}, {softmax}, {packed, query}}
		}, 30 + 10 + 10},
		{"the same across two sequences: the result besides queries", func(f *fused) [][]int64 {
			f.temporary(10)
			copied := f.alloc(20, attribution.Temporaries, "h.attn")
			both := f.saved(20)
			f.free(copied)
			query := f.saved(10)
			softmax := f.softmax(40)
			return [][]int64{{f.result(10)}, {softmax}, {both, query}}
		}, 20 + 10 + 10 + 10},
		{"math backend, heads behind each other: copies stand for projections", func(f *fused) [][]int64 {
			f.part(10, ".query")
			f.part(20, ".key_value")
			query, key := f.saved(10), f.saved(10)
			softmax, values := f.softmax(40), f.saved(10)
			return [][]int64{{f.result(10)}, {values, softmax}, {key, query}}
		}, 10 + 10 + 10 + 10},
		{"a module that calls its last layer, and a workspace that stays: the result is a view", func(f *fused) [][]int64 {
			packed := f.alloc(30, attribution.Activations, "h.attn.qkv")
			f.lasting = append(f.lasting, f.alloc(20, attribution.Workspace, "h.attn"))
			query, key := f.saved(10), f.saved(10)
			softmax, result := f.softmax(40), f.result(10)
			f.part(10, ".out")
			return [][]int64{{result}, {packed, softmax}, {key, query}}
		}, 30 + 20 + 10},
		{"math backend in two bytes: it computes in four, and a workspace stays", func(f *fused) [][]int64 {
			f.lasting = append(f.lasting, f.alloc(10, attribution.Workspace, "h.attn"))
			f.part(10, ".query")
			f.part(20, ".key_value")
			f.temporary(20)
			f.temporary(20)
			query, key := f.saved(20), f.saved(20)
			softmax, values := f.softmax(160), f.saved(20)
			f.temporary(20)
			return [][]int64{{f.result(10)}, {values, softmax}, {key, query}}
		}, 10 + 10 + 20 + 10},
		{"dropout: no mask", func(f *fused) [][]int64 {
			f.part(30, ".qkv")
			query, key := f.saved(10), f.saved(10)
			softmax, mask := f.softmax(80), f.saved(20)
			dropped, values := f.saved(80), f.saved(10)
			return [][]int64{{f.result(10)}, {values, dropped}, {mask}, {softmax}, {key, query}}
		}, 10 + 10 + 10 + 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := withoutScores(fusedJob(c.forward).history(t))
			assert.Equal(t, e.requested()/mib, 101+c.requests, "requested, MiB")
			assert.Equal(t, fusedJob(c.forward).liveAtEnd(t, e), 0, "blocks that live on")
		})
	}
}

func fusedJob(forwards ...func(f *fused) [][]int64) *script {
	j := &script{job: newJob()}
	for _, forward := range forwards {
		f := &fused{script: j}
		var saved [][]int64
		j.phase("forward", func() {
			saved = forward(f)
			j.free(f.passing...)
		})
		j.phase("backward", func() {
			loss := j.alloc(100, attribution.Temporaries, "")
			for _, operands := range saved {
				j.free(j.alloc(1, attribution.Temporaries, ""))
				j.free(operands...)
			}
			j.free(loss)
		})
		j.free(f.lasting...)
	}
	return j
}

// TestRepeatedKeys: keys and values that are repeated for more heads are no scores, as large as they are.
func TestRepeatedKeys(t *testing.T) {
	j := fusedJob(func(f *fused) [][]int64 {
		f.part(10, ".qkv")
		f.temporary(40)
		f.temporary(40)
		f.temporary(10)
		return [][]int64{{f.alloc(10, attribution.Activations, "h.attn.out")}}
	})
	for i, text := range j.texts {
		j.texts[i] = strings.Replace(text, "h.attn", "h.layer", 1)
	}
	assert.That(t, withoutScores(j.history(t)).empty(), "scores where there are none")
}

// TestShortScores: a module whose parts are named for queries and keys has attention. The scores of a short sequence, as large as the copies, are
// where a long one has them.
func TestShortScores(t *testing.T) {
	pass := func(scores int64) func(f *fused) [][]int64 {
		return func(f *fused) [][]int64 {
			var saved []int64
			for _, name := range []string{".q_proj", ".k_proj", ".v_proj"} {
				f.passing = append(f.passing, f.alloc(10, attribution.Temporaries, "h.cross"+name))
			}
			for k, size := range []int64{10, 10, scores, scores, 10, 10, 10} {
				category := attribution.Activations
				if k == 2 || k == 5 {
					category = attribution.Temporaries
				}
				saved = append(saved, f.alloc(size, category, "h.cross"))
			}
			raw, result := saved[2], saved[5]
			f.passing = append(f.passing, raw, result)
			return [][]int64{{saved[6]}, {saved[4], saved[3]}, {saved[1], saved[0]}}
		}
	}
	h := fusedJob(pass(10), pass(40)).history(t)
	e := withoutScores(h)
	var dropped []int64
	for i := range h.blocks {
		if e.claims[int32(i)] {
			dropped = append(dropped, h.blocks[i].bytes/mib)
		}
	}
	assert.Diff(t, []int64{10, 10, 40, 40}, dropped, "MiB of blocks that are left out")
}
