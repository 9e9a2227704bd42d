package models

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestOpen: the layers of released models, each from the fields of its config.json on Hugging Face that sizes follow
// from, in bfloat16 on one GPU. Bytes are by hand:
//
//	GQA                 2 x KV heads x head size x 2: Llama 3 8B, Mixtral 8x7B 2*8*128*2 = 4,096
//	MLA                 (512 + 64) x 2 = 1,152, keys and values in one: DeepSeek V2, V3
//	Gemma 2 9B          2*8*256*2 = 8,192; every second of 42 layers is full
//	Gemma 3 27B         2*16*128*2 = 8,192; every sixth of 62 is full
//	Gemma 3n E4B        2*2*256*2 = 2,048; of 35 layers, every fifth full, the last 15 share, which leaves 20
//	Llama 4 Scout       2*8*128*2; every fourth of 48 layers is full
//	Jamba v0.1          8,192 channels x (16 of state + 3 inputs) x 2 = 311,296; 1 of 8 layers is attention
//	Nemotron Nano 9B v2 128*80 channels: 10,240*128 + 3*(10,240 + 2*8*128) elements x 2 = 2,695,168
//	Qwen3-Next 80B      32*128*128 + 3*(2*16*128 + 32*128) elements x 2 = 1,097,728
//	Falcon-H1 1.5B      3,072*256 + 3*(3,072 + 2*256) elements x 2 = 1,594,368, beside attention in each layer
//	Granite 4.0 H Small 8,192*128 + 3*(8,192 + 2*128) elements x 2 = 2,147,840; Bamba 9B has the same
//	Kimi Linear 48B     3*3*32*128 x 2 of inputs + 32*128*128 x 4 = 2,170,880; full layers are MLA
//	LFM2 1.2B           the last 2 inputs of 2,048 channels x 2 = 8,192
//	GLM-5.3-Flash       3*3*64*128 x 2 of inputs + 64*128*128 x 4 = 4,341,760; full layers are MLA without a rotary part
//
// Blocks are vLLM's: it logs 672 tokens for Nemotron Nano 9B v2 (vllm#24280), which is 2,695,168 / 4,096 = 658, up to a
// multiple of 16.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name  string
		want  string // kinds with layers, and bytes of a token or state
		block int64
	}{
		{"llama-3-8b", "full:32=4096", 16},
		{"mixtral-8x7b", "full:32=4096", 16},
		{"deepseek-v2", "full:60=1152", 16},
		{"deepseek-v3", "full:61=1152", 16},
		{"gemma-2-9b", "full:21=8192 sliding/4096:21=8192", 16},
		{"gemma-3-27b", "full:10=8192 sliding/1024:52=8192", 16},
		{"gemma-3n-e4b", "full:4=2048 sliding/512:16=2048", 16},
		{"llama-4-scout", "full:12=4096 chunked/8192:36=4096", 16},
		{"jamba-v0.1", "full:4=4096 state:28=311296", 80},
		{"nemotron-nano-9b-v2", "full:4=4096 state:27=2695168", 672},
		{"qwen3-next-80b-a3b", "full:12=2048 state:36=1097728", 544},
		{"falcon-h1-1.5b", "full:24=1024 state:24=1594368", 1568},
		{"granite-4.0-h-small", "full:4=4096 state:36=2147840", 528},
		{"bamba-9b", "full:3=4096 state:29=2147840", 528},
		{"kimi-linear-48b-a3b", "full:7=1152 state:20=2170880", 1888},
		{"lfm2-1.2b", "full:6=2048 state:10=8192", 16},
		{"glm-5.3-flash", "full:11=1024 state:34=4341760", 4240},
	} {
		m, err := Open("testdata/" + c.name + ".json")
		assert.NoError(t, err)
		assert.Equal(t, m.Name, c.name)
		kinds := m.Kinds(nil, 1)
		assert.Equal(t, shown(kinds), c.want, "%s", c.name)
		assert.Equal(t, Unify(kinds, 16).Groups[0].Block, c.block, "%s: tokens of a block", c.name)
	}
}

func shown(kinds []LayerKind) string {
	var words []string
	for _, k := range kinds {
		words = append(words, fmt.Sprintf("%v:%d=%d", k, k.Layers, k.Bytes))
	}
	return strings.Join(words, " ")
}

// TestOpenAgrees: the same sizes as those of the models known by name.
func TestOpenAgrees(t *testing.T) {
	for _, name := range []string{"llama-3-8b", "gemma-2-9b", "gemma-3-27b", "jamba-v0.1", "deepseek-v3"} {
		m, err := Open("testdata/" + name + ".json")
		assert.NoError(t, err)
		known, err := Named(name)
		assert.NoError(t, err)
		assert.Equal(t, shown(m.Kinds(nil, 1)), shown(known.Kinds(nil, 1)), "%s", name)
		assert.Equal(t, m.MaxLength, known.MaxLength, "%s", name)
	}
}

// TestConfigRanks: four GPUs divide heads, but copy latents and the B and C of Mamba 2 with one group:
// (2,147,840 - 1,536)/4 + 1,536 = 538,112.
func TestConfigRanks(t *testing.T) {
	for name, want := range map[string]string{
		"granite-4.0-h-small": "full:4=1024 state:36=538112", "deepseek-v3": "full:61=1152", "qwen3-next-80b-a3b": "full:12=1024 state:36=274432",
	} {
		m, err := Open("testdata/" + name + ".json")
		assert.NoError(t, err)
		assert.Equal(t, shown(m.Kinds(nil, 4)), want, "%s", name)
	}
}

// TestDraftStates: each draft token of a speculating engine adds an input to the convolutions' states. vLLM logs, of
// GLM-5.3-Flash on 4 GPUs with blocks of 128, "attention block size to 1152" and how much it pads states for 0, 2, 3 and 5
// draft tokens.
func TestDraftStates(t *testing.T) {
	m, err := Open("testdata/glm-5.3-flash.json")
	assert.NoError(t, err)
	for drafts, padded := range map[int64]string{0: "8.68", 2: "6.27", 3: "5.11", 5: "2.86"} {
		kinds := m.Kinds(nil, 4)
		kinds[1].Bytes += drafts * 3 * 64 * 128 * 2 / 4
		l := Unify(kinds, 128)
		assert.Equal(t, l.Groups[0].Block, 1152)
		assert.Equal(t, fmt.Sprintf("%.2f", 100*(float64(l.Page)/float64(l.Size*kinds[1].Bytes)-1)), padded, "%d draft tokens", drafts)
	}
}

const base = `"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512`

// TestConfigForms: what configurations say in other ways, of four layers with 8 heads of 64: 2*8*64*2 = 2,048 bytes.
func TestConfigForms(t *testing.T) {
	for _, c := range []struct{ fields, want string }{
		{base, "full:4=2048"},
		{`"n_layer": 4, "n_head": 8, "n_embd": 512`, "full:4=2048"},
		{base + `, "dtype": "float32"`, "full:4=4096"},
		{base + `, "multi_query": true`, "full:4=256"},
		{base + `, "head_dim": 192, "v_head_dim": 128`, "full:4=5120"},
		{base + `, "quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}`, "full:4=1024"},
		{base + `, "quantization_config": {"kv_cache_quant_algo": "FP8"}`, "full:4=1024"},
		{base + `, "sliding_window": 128`, "sliding/128:4=2048"},
		{base + `, "sliding_window": 128, "use_sliding_window": false`, "full:4=2048"},
		{base + `, "sliding_window": 128, "use_sliding_window": true, "max_window_layers": 3`, "full:3=2048 sliding/128:1=2048"},
		{base + `, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
			"global_head_dim": 128, "num_global_key_value_heads": 2`, "full:2=1024 sliding/128:2=2048"},
		{base + `, "layers_block_type": ["mamba", "hybrid", "mamba", "mamba"], "n_mamba_heads": 16, "mamba_headdim": 64, "mamba_d_state": 64, "mamba_ngroups": 2`,
			// 1,024 channels: 1,024*64 + 3*(1,024 + 2*2*64) elements x 2
			"full:1=2048 state:4=138752"},
		{base + `, "hybrid_override_pattern": "M-*E", "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 64, "n_groups": 2, "mamba_ssm_cache_dtype": "float32"`,
			"full:1=2048 state:1=269824"}, // 1,024*64*4 + 3*(1,024 + 2*2*64)*2
	} {
		m, err := readConfig(strings.NewReader("{" + c.fields + "}"))
		assert.NoError(t, err)
		assert.Equal(t, shown(m.Kinds(nil, 1)), c.want, "%s", c.fields)
	}
}

// TestConfigRefused: errors say where in the file.
func TestConfigRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                    "at byte 0",
		`[]`:                  "at byte",
		`{}`:                  "num_hidden_layers: missing",
		`{"text_config": {}}`: "text_config.num_hidden_layers: missing",
		`{"num_hidden_layers": 1e9, "num_attention_heads": 8, "hidden_size": 512}`:                  "num_hidden_layers: 1e9: want a whole number from 0 to 4,096",
		`{"num_hidden_layers": 0, "num_attention_heads": 8, "hidden_size": 512}`:                    "want some",
		"{" + base + `, "num_key_value_heads": [1, 2]}`:                                             "num_key_value_heads: [1 2]: want a whole number",
		"{" + base + `, "num_key_value_heads": -1}`:                                                 "num_key_value_heads: -1",
		"{" + base + `, "torch_dtype": "int3"}`:                                                     `torch_dtype: "int3"`,
		"{" + base + `, "layer_types": ["full_attention"]}`:                                         "layer_types: 1 layers, and num_hidden_layers is 4",
		"{" + base + `, "layer_types": ["full_attention", "full_attention", {}, "full_attention"]}`: "layer_types[2]",
		"{" + base + `, "layer_types": ["mamba", "mamba", "mamba", "mamba"]}`:                       "mamba_d_state: missing",
		"{" + base + `, "layer_types": ["sliding_attention", "mlp", "mlp", "mlp"]}`:                 "sliding_window: missing",
		"{" + base + `, "head_dim": 65536, "num_key_value_heads": 65536}`:                           "head_dim: a token takes",
		"{" + base + `, "linear_attn_config": {"num_heads": 65536, "head_dim": 65536}}`:             "a state takes",
		"{" + base + `, "linear_attn_config": {"num_heads": 8}}`:                                    "linear_attn_config.head_dim: missing",
		"{" + base + `, "num_kv_shared_layers": 4}`:                                                 "no layer keeps anything",
		"{" + base + `, "kv_lora_rank": 512}`:                                                       "qk_rope_head_dim: missing",
		"{" + base + `, "attn_type_list": [0, 1, 1, 1]}`:                                            "attn_type_list: layers described so are not supported",
		"{" + base + `, "quantization_config": {"kv_cache_scheme": {"num_bits": 4}}}`:               "quantization_config.kv_cache_scheme.num_bits: 4: want 8",
		strings.Repeat(" ", mostConfig+1):                                                           "more than 16 MiB",
	} {
		m, err := readConfig(strings.NewReader(text))
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%.80s: %v (%+v), want %q", text, err, m, want)
	}
}

// FuzzConfig: nothing that a file says makes a size negative, or the layout fail.
func FuzzConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := readConfig(strings.NewReader(text))
		if err != nil {
			return
		}
		l := Unify(m.Kinds(nil, 1), MostBlock)
		for _, g := range l.Groups {
			pages, needed := g.Pages(MostTokens)
			assert.That(t, l.Page > 0 && pages > 0 && needed > 0 && pages*l.Page > 0, "%+v: %d pages, %d bytes", g, pages, needed)
		}
	})
}

// TestWeights: the sizes of tensors are read from the headers of all files, but of Mistral's copy.
func TestWeights(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/llama-3-8b.json")
	assert.NoError(t, err)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	tensors := func(file, header string, data int) {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, file), append(append(head, header...), make([]byte, data)...), 0o600))
	}
	tensors("a.safetensors", `{"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [10, 30], "data_offsets": [0, 600]}}`, 600)
	tensors("b.safetensors", `{"q": {"dtype": "F8_E4M3", "shape": [100], "data_offsets": [0, 100]}, "s": {"dtype": "F32", "shape": [], "data_offsets": [100, 104]}}`, 104)
	tensors("consolidated.safetensors", `{"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}`, 4)
	m, err := Open(dir)
	assert.NoError(t, err)
	assert.Equal(t, m.Name, filepath.Base(dir))
	assert.Equal(t, m.Weights, 704)
	assert.Equal(t, m.Parameters, 401)
	assert.Equal(t, m.WeightBytes(2), 352)
	for header, want := range map[string]string{
		`{"w": {"dtype": "BF16", "shape": [300], "data_offsets": [0, 601]}}`:                    "the file is cut",
		`{"w": {"dtype": "BF16", "shape": [4611686018427387904, 4], "data_offsets": [0, 600]}}`: "shape [4611686018427387904 4] of 600 bytes",
		`{"w": 3}`: "header",
		`{"w"`:     "header, byte",
	} {
		tensors("a.safetensors", header, 600)
		_, err = Open(dir)
		assert.That(t, err != nil && strings.Contains(err.Error(), "a.safetensors: ") && strings.Contains(err.Error(), want), "%s: %v, want %q", header, err, want)
	}
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "a.safetensors"), []byte("version https://git-lfs.github.com/spec/v1\n"), 0o600))
	_, err = Open(dir)
	assert.That(t, err != nil && strings.Contains(err.Error(), "no safetensors file"), "a pointer of Git LFS: %v", err)
}
