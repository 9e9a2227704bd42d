package models

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// layout is what the parameters of a model are made of, beyond its Model.
type layout struct{ vocabulary, hidden, feedForward int64 }

// TestParameters builds up each model from its matrices.
func TestParameters(t *testing.T) {
	layouts := map[string]layout{
		"opt-1.3b": {50272, 2048, 8192}, "opt-6.7b": {50272, 4096, 16384}, "opt-13b": {50272, 5120, 20480},
		"opt-30b": {50272, 7168, 28672}, "opt-66b": {50272, 9216, 36864}, "opt-175b": {50272, 12288, 49152},
		"llama-2-7b": {32000, 4096, 11008}, "llama-2-13b": {32000, 5120, 13824}, "llama-2-70b": {32000, 8192, 28672},
		"llama-3-8b": {128256, 4096, 14336}, "llama-3-70b": {128256, 8192, 28672},
		"llama-3.1-8b": {128256, 4096, 14336}, "llama-3.1-70b": {128256, 8192, 28672}, "llama-3.1-405b": {128256, 16384, 53248},
		"llama-3.2-1b": {128256, 2048, 8192}, "llama-3.2-3b": {128256, 3072, 8192}, "mistral-7b": {32000, 4096, 14336},
		"qwen2.5-0.5b": {151936, 896, 4864}, "qwen2.5-1.5b": {151936, 1536, 8960}, "qwen2.5-3b": {151936, 2048, 11008},
		"qwen2.5-7b": {152064, 3584, 18944}, "qwen2.5-14b": {152064, 5120, 13824}, "qwen2.5-32b": {152064, 5120, 27648},
		"qwen2.5-72b": {152064, 8192, 29568},
	}
	// Models with layers of several kinds, or of experts, have the parameters of their publishers.
	published := map[string]bool{"llama-3.2-11b-vision": true, "gemma-2-9b": true, "gemma-3-27b": true, "ministral-8b": true, "jamba-v0.1": true, "deepseek-v3": true}
	for _, m := range named {
		if published[m.Name] {
			continue
		}
		l, ok := layouts[m.Name]
		if !ok {
			t.Errorf("%s has no layout here", m.Name)
			continue
		}
		assert.Equal(t, int64(m.Heads)*int64(m.HeadSize), l.hidden, "%s: heads", m.Name)
		assert.Equal(t, l.parameters(m), m.Parameters, "%s: %d parameters, its matrices have", m.Name, m.Parameters)
	}
}

func (l layout) parameters(m Model) int64 {
	d, layers, kv := l.hidden, int64(m.Layers), int64(m.KVHeads*m.HeadSize)
	if strings.HasPrefix(m.Name, "opt") {
		// Shared embeddings, positions with an offset of 2, four projections and two of the feed
		// forward, all with biases, two norms a layer and one at the end.
		layer := 4*(d*d+d) + 2*d*l.feedForward + l.feedForward + d + 4*d
		return l.vocabulary*d + int64(m.MaxLength+2)*d + layers*layer + 2*d
	}
	layer := 2*d*d + 2*d*kv + 3*d*l.feedForward + 2*d
	embeddings := 2 * l.vocabulary * d
	if strings.HasPrefix(m.Name, "qwen") {
		layer += d + 2*kv // biases of queries, keys and values
	}
	if strings.HasPrefix(m.Name, "llama-3.2") || strings.HasPrefix(m.Name, "qwen") && d <= 2048 {
		embeddings /= 2 // shared
	}
	return embeddings + layers*layer + d
}

// The figures of table 1 of the vLLM paper, and of the models' cards.
func TestBytesPerToken(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
		want  int64
	}{
		{"opt-13b", 1, 819_200}, {"OPT-13B", 4, 204_800}, {"opt-66b", 1, 2_359_296}, {"opt-175b", 8, 589_824},
		{"llama-2-7b", 1, 524_288}, {"llama-3-8b", 1, 131_072}, {"llama-3-70b", 8, 40_960},
		{"llama-3-70b", 16, 40_960}, // a head on two GPUs each
		{"qwen2.5-7b", 1, 57_344},
	} {
		m, err := Named(c.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := m.Ranks(c.ranks); err != nil {
			t.Error(err)
		}
		assert.Equal(t, m.BytesPerToken(c.ranks), c.want, "%s on %d", c.name, c.ranks)
	}
	m, _ := Named("opt-175b")
	slots := (int64(264) << 30) / m.BytesPerToken(1)
	assert.That(t, slots == 60_074, "175B: %d slots in 264 GiB, the paper has 60.1 K", slots)
}

func TestRanksThatDoNotDivide(t *testing.T) {
	opt, _ := Named("opt-13b")
	qwen, _ := Named("qwen2.5-7b")
	for _, c := range []struct {
		model Model
		ranks int
		want  string
	}{
		{opt, 0, "at least 1"}, {opt, 3, "40 heads"}, {qwen, 14, "4 KV heads"},
	} {
		err := c.model.Ranks(c.ranks)
		assert.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s on %d: %v, want %q", c.model.Name, c.ranks, err, c.want)
	}
	_, err := Named("gpt-9")
	assert.That(t, err != nil && strings.Contains(err.Error(), "llama-3-8b"), "Named(gpt-9): %v, want the names that are known", err)
}

// The article's picture: 13B on a card of 40 GB is about 65 % weights and 30 % keys and values.
func TestCardIsDivided(t *testing.T) {
	opt, _ := Named("opt-13b")
	const total, kv = 40_000_000_000, 12_000_000_000
	c, err := opt.Split(total, 1, kv, 0)
	want := Card{total, 25_706_946_560, kv, 2_293_053_440}
	assert.That(t, err == nil && c == want, "Split = %+v, %v, want %+v", c, err, want)
	c, err = opt.Split(total, 2, 0, 2_000_000_000)
	if want := (Card{total, 12_853_473_280, 25_146_526_720, 2_000_000_000}); err != nil || c != want {
		t.Errorf("Split of two = %+v, %v, want %+v", c, err, want)
	}
	if _, err := opt.Split(24<<30, 1, 0, 0); err != nil {
		t.Errorf("25.7 GB fit into 24 GiB, got %v", err)
	}
	for _, c := range []struct{ total, kv, rest int64 }{{20 << 30, 0, 0}, {total, kv, 3 << 30}, {total, 20 << 30, 0}} {
		got, err := opt.Split(c.total, 1, c.kv, c.rest)
		assert.That(t, err != nil, "Split(%d, kv %d, rest %d) = %+v, want an error", c.total, c.kv, c.rest, got)
	}
}

// TestLatentAttention: a token of DeepSeek-V3 is 576 elements in each of 61 layers, on every GPU; FP8 halves it.
func TestLatentAttention(t *testing.T) {
	m, err := Named("deepseek-v3")
	assert.NoError(t, err)
	for _, ranks := range []int{1, 8} {
		got := m.BytesPerToken(ranks)
		assert.That(t, got == 61*576*2 && SlotBytes(m.Kinds(nil, ranks)) == got, "%d bytes a token on %d GPUs, want %d", got, ranks, 61*576*2)
	}
	if m.KVBytes = 1; m.BytesPerToken(1) != 61*576 || m.WeightBytes(1) != m.Parameters {
		t.Errorf("FP8: %d bytes a token, weights of %d", m.BytesPerToken(1), m.WeightBytes(1))
	}
}
