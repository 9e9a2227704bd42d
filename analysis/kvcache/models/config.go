package models

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/plain"
)

// Bounds of what a configuration may say, so that no product of its numbers exceeds an int64. Each is far beyond any
// model.
const (
	mostConfig  = 16 << 20 // bytes of the file
	mostLayers  = 1 << 12
	mostNumber  = 1 << 16
	mostHidden  = 1 << 20
	mostTokens  = 1 << 27 // of a sequence
	mostToken   = 1 << 22 // bytes of a token in one layer
	mostState   = 1 << 40 // bytes of a state in one layer
	mostStates  = 1 << 10 // of a sequence
	required    = -1
	defaultConv = 4
)

// MostTokens and MostBlock are the longest sequence and block that sizes are computed for.
const (
	MostTokens = mostTokens
	MostBlock  = 1 << 20
)

// Open reads a model as Hugging Face stores it: a folder with a config.json, or such a file. Weights are those of the
// *.safetensors in the folder, 0 if there are none.
func Open(path string) (Model, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	file, err := os.Open(path)
	if err != nil {
		return Model{}, err
	}
	defer file.Close()
	m, err := readConfig(file)
	if err != nil {
		return Model{}, fmt.Errorf("%s: %w", path, err)
	}
	m.Name = strings.TrimSuffix(filepath.Base(path), ".json")
	if whole, err := filepath.Abs(path); err == nil && m.Name == "config" {
		m.Name = filepath.Base(filepath.Dir(whole))
	}
	m.Weights, m.Parameters, err = weightsIn(filepath.Dir(path))
	return m, err
}

// config is an object of a configuration. It keeps the first error.
type config struct {
	fields map[string]any
	place  string // where the object is, with a dot behind; "" for the file
	err    *error
}

func readConfig(r io.Reader) (Model, error) {
	text, err := io.ReadAll(io.LimitReader(r, mostConfig+1))
	if err != nil {
		return Model{}, err
	}
	if len(text) > mostConfig {
		return Model{}, fmt.Errorf("more than %s: no configuration of a model", plain.FormatSize(mostConfig))
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var first error
	outer := &config{err: &first}
	if err := decoder.Decode(&outer.fields); err != nil {
		return Model{}, fmt.Errorf("at byte %d: %w", decoder.InputOffset(), err)
	}
	c := outer // the language model may stand inside one of several kinds of input
	for _, name := range []string{"text_config", "llm_config", "language_config"} {
		if inner := outer.object(name); inner != nil {
			c = inner
			break
		}
	}
	m := c.model(outer)
	return m, first
}

func (c *config) fail(name, format string, args ...any) {
	if *c.err == nil {
		*c.err = fmt.Errorf("%s%s: %s", c.place, name, fmt.Sprintf(format, args...))
	}
}

func (c *config) object(name string) *config {
	fields, ok := c.fields[name].(map[string]any)
	if !ok {
		return nil
	}
	return &config{fields, c.place + name + ".", c.err}
}

// number is the first of these fields that is there, neither null nor "auto".
func (c *config) number(most, fallback int, names ...string) int {
	for _, name := range names {
		value, ok := c.fields[name]
		if !ok || value == nil || value == "auto" {
			continue
		}
		text, _ := value.(json.Number)
		n, err := strconv.ParseFloat(text.String(), 64)
		if err != nil || n != float64(int64(n)) || n < 0 || n > float64(most) {
			c.fail(name, "%s: want a whole number from 0 to %s", plain.Shorten(fmt.Sprint(value), 40), plain.FormatCount(int64(most)))
			return max(0, fallback)
		}
		return int(n)
	}
	if fallback == required {
		c.fail(names[0], "missing")
	}
	return max(0, fallback)
}

func (c *config) text(names ...string) string {
	for _, name := range names {
		if text, ok := c.fields[name].(string); ok {
			return text
		}
	}
	return ""
}

// bytesOf is the size of an element of the type that the first of these fields names.
func (c *config) bytesOf(fallback int, names ...string) int {
	text := strings.TrimPrefix(c.text(names...), "torch.")
	bytes, known := map[string]int{"": fallback, "auto": fallback, "float32": 4, "bfloat16": 2, "float16": 2, "half": 2}[text]
	if !known {
		c.fail(names[0], "%q: want bfloat16, float16 or float32", plain.Shorten(text, 40))
	}
	return bytes
}

// model reads the language model; what stands beside it in the file may be in outer.
func (c *config) model(outer *config) Model {
	for _, name := range []string{"attn_type_list", "block_configs", "hybrid_layer_pattern"} {
		if c.fields[name] != nil {
			c.fail(name, "layers described so are not supported")
		}
	}
	m := Model{DtypeBytes: c.bytesOf(outer.bytesOf(2, "torch_dtype", "dtype"), "torch_dtype", "dtype")}
	m.Layers = c.number(mostLayers, required, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
	m.Heads = c.number(mostNumber, required, "num_attention_heads", "n_head", "n_heads")
	hidden := c.number(mostHidden, required, "hidden_size", "n_embd", "d_model")
	if *c.err == nil && (m.Layers == 0 || m.Heads == 0) {
		c.fail("num_hidden_layers", "%d layers of %d heads: want some", m.Layers, m.Heads)
	}
	m.KVHeads = m.Heads
	if c.fields["multi_query"] == true {
		m.KVHeads = 1
	}
	m.KVHeads = max(1, c.number(mostNumber, m.KVHeads, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"))
	m.HeadSize = c.number(mostNumber, hidden/max(1, m.Heads), "head_dim", "attention_head_dim")
	m.MaxLength = c.number(mostTokens, 0, "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
	size := m.HeadSize + c.number(mostNumber, m.HeadSize, "v_head_dim")
	if latent := c.number(mostNumber, 0, "kv_lora_rank"); latent > 0 {
		size = latent + c.number(mostNumber, required, "qk_rope_head_dim")
		m.KVHeads, m.HeadSize = 1, size/2
	}
	c.quantized(&m, outer)
	if *c.err == nil {
		m.Own = c.kinds(&m, size, hidden)
	}
	return m
}

// quantized reads whether keys and values have 8 bits.
func (c *config) quantized(m *Model, outer *config) {
	for _, of := range []*config{c, outer} {
		q := of.object("quantization_config")
		if q == nil {
			continue
		}
		if scheme := q.object("kv_cache_scheme"); scheme != nil {
			if bits := scheme.number(mostNumber, 8, "num_bits"); bits != 8 {
				scheme.fail("num_bits", "%d: want 8", bits)
			}
			m.KVBytes = 1
		}
		if strings.EqualFold(q.text("kv_cache_quant_algo"), "fp8") {
			m.KVBytes = 1
		}
	}
}

// kinds are the layers by what they keep: full attention, sliding, chunked, then states.
func (c *config) kinds(m *Model, size, hidden int) []LayerKind {
	letters := c.layers(m.Layers)
	shared := c.number(mostLayers, 0, "num_kv_shared_layers") // the last ones, which use the cache of others
	letters = letters[:max(0, len(letters)-shared)]
	counts := map[rune]int{}
	for _, l := range letters {
		for _, letter := range l {
			counts[letter]++
		}
	}
	var kinds []LayerKind
	for _, letter := range "fscmlvk" {
		k := LayerKind{Layers: counts[letter], Heads: m.KVHeads, Size: size}
		switch letter {
		case 'f':
			k.Heads = max(1, c.number(mostNumber, k.Heads, "num_global_key_value_heads"))
			if global := c.number(mostNumber, 0, "global_head_dim"); global > 0 {
				k.Size = 2 * global
			}
		case 's':
			k.Keep, k.Window = Sliding, c.number(mostTokens, 0, "sliding_window")
		case 'c':
			k.Keep, k.Window = Chunked, c.number(mostTokens, 0, "attention_chunk_size")
		default:
			if k.Layers > 0 {
				k = c.state(letter, k.Layers, hidden, m.DtypeBytes)
			}
		}
		if k.Layers == 0 {
			continue
		}
		token := k.Heads * k.Size * m.kvBytes()
		switch {
		case (k.Keep == Sliding || k.Keep == Chunked) && k.Window == 0:
			c.fail("sliding_window", "missing, and %d layers have a window", k.Layers)
		case k.Keep != State && (token == 0 || token > mostToken):
			c.fail("head_dim", "a token takes %d bytes in a layer: want from 1 to %d", token, mostToken)
		case k.Keep == State && (k.Bytes <= 0 || k.Bytes > mostState):
			c.fail("layer_types", "a state takes %d bytes in a layer: want from 1 to %d", k.Bytes, int64(mostState))
		}
		kinds = append(kinds, k)
	}
	if len(kinds) == 0 {
		c.fail("num_hidden_layers", "no layer keeps anything")
	}
	return kinds
}

// layerLetters are the names of layers: f full, s sliding, c chunked, m Mamba, l gated delta nets, v short
// convolutions, k Kimi's delta attention. A layer may be two; feed-forward ones are none.
var layerLetters = map[string]string{
	"full_attention": "f", "attention": "f", "*": "f", "sliding_attention": "s", "chunked_attention": "c", "linear_attention": "l",
	"mamba": "m", "mamba2": "m", "M": "m", "hybrid": "fm", "conv": "v", "-": "", "E": "", "moe": "", "mlp": "",
	"deepseek_sparse_attention": "f",
}

// layers are the letters of each layer.
func (c *config) layers(n int) []string {
	for _, name := range []string{"layer_types", "layers_block_type", "hybrid_override_pattern"} {
		var words []any
		if pattern, ok := c.fields[name].(string); ok {
			for _, letter := range pattern {
				words = append(words, string(letter))
			}
		} else if words, ok = c.fields[name].([]any); !ok {
			continue
		}
		if len(words) != n {
			c.fail(name, "%d layers, and num_hidden_layers is %d", len(words), n)
		}
		var letters []string
		for i, word := range words {
			letter, known := layerLetters[fmt.Sprint(word)]
			if letter == "l" && c.object("linear_attn_config") != nil {
				letter = "k"
			}
			if !known {
				c.fail(fmt.Sprintf("%s[%d]", name, i), "%q: want a kind of layer, as full_attention", plain.Shorten(fmt.Sprint(word), 40))
			}
			letters = append(letters, letter)
		}
		return letters
	}
	rule := c.rule(n)
	letters := make([]string, n)
	for i := range letters {
		letters[i] = rule(i)
	}
	return letters
}

// rule says of each layer what it is, where the layers are not listed.
func (c *config) rule(n int) func(i int) string {
	every := func(period, at int, then, otherwise string) func(int) string {
		return func(i int) string {
			if i%period == at%period {
				return then
			}
			return otherwise
		}
	}
	listed := func(from *config, name string, first int, otherwise string) func(int) string {
		list, _ := from.fields[name].([]any)
		return func(i int) string {
			if slices.Contains(list, any(json.Number(strconv.Itoa(i+first)))) {
				return "f"
			}
			return otherwise
		}
	}
	window := c.number(mostTokens, 0, "sliding_window")
	kind := c.text("model_type")
	period := func(fallback int, names ...string) int { return c.number(mostLayers, fallback, names...) }
	switch {
	case kind == "falcon_h1":
		return every(1, 0, "fm", "")
	case c.object("linear_attn_config") != nil: // Kimi Linear, whose layers are numbered from 1
		return listed(c.object("linear_attn_config"), "full_attn_layers", 1, "k")
	case c.fields["attn_layer_indices"] != nil:
		return listed(c, "attn_layer_indices", 0, "m")
	case period(0, "attn_layer_period") > 0:
		return every(period(0, "attn_layer_period"), period(0, "attn_layer_offset"), "f", "m")
	case period(0, "full_attention_interval") > 0:
		p := period(0, "full_attention_interval")
		return every(p, p-1, "f", "l")
	case c.fields["attention_chunk_size"] != nil:
		p := max(1, period(4, "no_rope_layer_interval"))
		return every(p, p-1, "f", "c")
	case window == 0 || c.fields["use_sliding_window"] == false:
		return every(1, 0, "f", "")
	case c.fields["use_sliding_window"] == true:
		from := c.number(mostLayers, n, "max_window_layers")
		return func(i int) string { return map[bool]string{true: "f", false: "s"}[i < from] }
	}
	if p := period(map[string]int{"gemma2": 2, "gemma3_text": 6}[kind], "sliding_window_pattern", "_sliding_window_pattern"); p > 0 {
		return every(p, p-1, "f", "s")
	}
	return every(1, 0, "s", "")
}

// state is the layers that keep a state: the last inputs of a convolution, in the type of the model, and what
// accumulates over the sequence.
func (c *config) state(letter rune, layers, hidden, element int) LayerKind {
	k := LayerKind{Keep: State, Layers: layers}
	number := func(fallback int, names ...string) int64 { return int64(c.number(mostNumber, fallback, names...)) }
	ssm := c.bytesOf(element, "mamba_ssm_cache_dtype", "mamba_ssm_dtype")
	var kernel, channels, state, copied int64
	switch letter {
	case 'm':
		kernel, state = number(defaultConv, "mamba_d_conv", "conv_kernel"), number(required, "mamba_d_state", "ssm_state_size", "state_size")
		heads := number(0, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
		channels = int64(c.number(mostHidden, 0, "mamba_d_ssm"))
		if head := number(0, "mamba_d_head", "mamba_head_dim", "mamba_headdim"); channels == 0 && head > 0 {
			channels = heads * head
		}
		if channels == 0 {
			channels = number(2, "mamba_expand", "expand") * int64(hidden)
		}
		state *= channels
		if heads > 0 { // Mamba 2, which has its B and C in the convolution
			groups := number(1, "mamba_n_groups", "mamba_ngroups", "n_groups")
			both := 2 * groups * (state / max(1, channels))
			if channels += both; groups == 1 {
				copied = both
			}
		}
	case 'l':
		kernel = number(defaultConv, "linear_conv_kernel_dim")
		key := number(required, "linear_key_head_dim")
		values := number(required, "linear_num_value_heads") * number(required, "linear_value_head_dim")
		channels, state = 2*number(required, "linear_num_key_heads")*key+values, values*key
	case 'v':
		kernel, channels = number(required, "conv_L_cache"), int64(c.number(mostHidden, hidden, "conv_dim"))
	case 'k':
		linear := c.object("linear_attn_config")
		heads, head := int64(linear.number(mostNumber, required, "num_heads")), int64(linear.number(mostNumber, required, "head_dim"))
		kernel, ssm = int64(linear.number(mostNumber, defaultConv, "short_conv_kernel_size")), 4
		channels, state = 3*heads*head, heads*head*head
	}
	kernel = max(1, kernel)
	k.Bytes = (kernel-1)*channels*int64(element) + state*int64(ssm)
	k.Copied = (kernel - 1) * copied * int64(element)
	return k
}
