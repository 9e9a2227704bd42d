package kv

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const configs = "../../analysis/kvcache/models/testdata/"

func sizesOf(t *testing.T, file string, kvBytes int, memory int64, lengths ...int64) *Sizes {
	t.Helper()
	m, err := models.Open(configs + file)
	assert.NoError(t, err)
	m.KVBytes = kvBytes
	s := &Sizes{Model: m.Name, Ranks: 1, Stages: 1, Memory: &memory}
	s.Compute(m.Kinds(nil, 1), 16, lengths)
	return s
}

// TestFP8OfHybrids: vllm#55196 reports that a cache in fp8 has room for 1.84 times as many requests of 32,768 tokens to
// Falcon-H1, and for no more short ones, where it doubles that of models with nothing but attention. A state of Falcon-H1
// 1.5B has 1,594,368 bytes, and so, up to 16 tokens,
//
//	bf16  1,024 bytes a token, blocks of 1,568: 32,768 tokens take 21 + 1 pages of 24 x 1,605,632 bytes
//	fp8     512 bytes a token, blocks of 3,120: 32,768 tokens take 11 + 1 pages of 24 x 1,597,440 bytes
//
// which is 22*1,605,632 / (12*1,597,440) = 1.84. A token takes 2 pages of either: 1.005. The report does not say which
// Falcon-H1 it is about; the one of 7B has states and heads of the same size.
func TestFP8OfHybrids(t *testing.T) {
	const memory = 10 << 40 // so much that the last page does not matter
	gain := func(file string, tokens int64) (float64, SequenceUse, SequenceUse) {
		bf16, fp8 := sizesOf(t, file, 2, memory, tokens), sizesOf(t, file, 1, memory, tokens)
		return *fp8.Sequences[0].AtOnce / *bf16.Sequences[0].AtOnce, bf16.Sequences[0], fp8.Sequences[0]
	}
	for _, c := range []struct {
		file      string
		tokens    int64
		bf16, fp8 int64 // pages
		want      float64
	}{
		{"falcon-h1-1.5b.json", 32768, 22, 12, 1.8427}, {"falcon-h1-1.5b.json", 1, 2, 2, 1.0051}, {"llama-3-8b.json", 32768, 2048, 2048, 2},
		// The states of Qwen3-Next are 536 blocks of 2,048 bytes or 1,072 of 1,024. It has three groups of them.
		{"qwen3-next-80b-a3b.json", 1, 4, 4, 1.0149}, {"qwen3-next-80b-a3b.json", 32768, 64, 34, 1.9104},
	} {
		got, bf16, fp8 := gain(c.file, c.tokens)
		assert.That(t, math.Abs(got-c.want) < 1e-4, "%s, %d tokens: %.4f times as many, want %.4f", c.file, c.tokens, got, c.want)
		assert.That(t, bf16.Pages == c.bf16 && fp8.Pages == c.fp8, "%s, %d tokens: %d and %d pages", c.file, c.tokens, bf16.Pages, fp8.Pages)
	}
}

// TestShortSequences: however short a request to a hybrid is, it has a page of each group (vllm#54458). Granite 4.0 H
// Small has 1 + 9 groups of 4 layers, in pages of 4*528*4,096 = 8,650,752 bytes. Of 260 MiB, which are 31 pages, 12 tokens
// take 10, or 32.3 %, and need 36*2,147,840 + 12*16,384 = 77,518,848 bytes of 86,507,520: the rest is waste.
func TestShortSequences(t *testing.T) {
	s := sizesOf(t, "granite-4.0-h-small.json", 0, 260<<20, 12, 600)
	assert.Equal(t, s.Page, 8_650_752)
	assert.Equal(t, *s.Pages, 31)
	assert.Equal(t, s.State, 36*2_147_840)
	u := s.Sequences[0]
	assert.That(t, u.Pages == 10 && u.Held == 86_507_520 && u.Needed == 77_518_848, "%+v", u)
	assert.Equal(t, *u.Share, 10/31.)
	assert.Equal(t, *u.Fit, 37) // 3.1 sequences
	assert.Equal(t, s.Sequences[1].Pages, 11)
	assert.Equal(t, s.Kinds[1].Padding, 1-plain.Ratio(36*2_147_840, 9*8_650_752))
	var text bytes.Buffer
	assert.NoError(t, layout.WriteText(&text, layout.Options{Width: 100}, SizesSections(s)...))
	for _, want := range []string{"16,384 bytes a token, 73.7 MiB of states a sequence · pages of 8.25 MiB · 260 MiB: 31 pages", "32.3%", "10.4%", "528"} {
		assert.That(t, strings.Contains(text.String(), want), "no %q in\n%s", want, &text)
	}
}

// TestDraftedSequences: vllm#54458 has a request of 12 tokens that takes 32.9 % of the pool, 23 pages, which makes 70 of the
// pool, with blocks of 7,808 tokens on two GPUs. That is GLM-5.3-Flash with tokens of 288 bytes (512 of 4 bits, and 32 scales)
// and 3 draft tokens:
//
//	state   32 heads: 32*128*128*4 + (3+3)*3*32*128*2 = 2,244,608 bytes, which take 7,793.8 tokens: 61 x 128 = 7,808
//	tables  one of the 11 layers of attention, one of the indexer's last tokens, one of the draft model, and 4 of the 34
//	        layers with states, each with one state, one for each draft token, and one at the end of the last block: 3 + 4*5
//
// The reporter does not say how many draft tokens there are, nor of how many bits the cache is; this is what gives both figures.
func TestDraftedSequences(t *testing.T) {
	kinds, err := models.ParseLayers("full:11,sliding/4:11,sliding/2048:11,state/2244608B/5:34")
	assert.NoError(t, err)
	for i := range kinds {
		kinds[i].Bytes = cmp.Or(kinds[i].Bytes, 288)
	}
	memory := int64(70 * 11 * 7808 * 288)
	s := &Sizes{Ranks: 2, Stages: 1, Memory: &memory}
	s.Compute(kinds, 128, []int64{12})
	assert.Equal(t, s.Kinds[0].Block, 7808)
	assert.Equal(t, *s.Pages, 70)
	assert.Equal(t, s.State, 5*34*2_244_608)
	u := s.Sequences[0]
	assert.Equal(t, u.Pages, 23)
	assert.Equal(t, plain.FormatPercent(*u.Share), "32.9%")
	assert.Equal(t, s.Kinds[3].Kind, "state/5")
}
