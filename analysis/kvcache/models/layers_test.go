package models

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestKept: what each kind keeps of a sequence that grows, token by token.
func TestKept(t *testing.T) {
	for tokens := range int64(200) {
		tokens++
		for _, k := range []LayerKind{{Keep: Full}, {Keep: Sliding, Window: 50}, {Keep: Chunked, Window: 50}} {
			from, to := k.Kept(tokens)
			want := tokens
			switch k.Keep {
			case Sliding:
				want = min(tokens, 50)
			case Chunked:
				want = (tokens-1)%50 + 1
			}
			assert.That(t, to == tokens && to-from == want, "%v at %d tokens keeps [%d, %d), want %d", k, tokens, from, to, want)
		}
	}
}

// TestLayersRefused: what is no list of layers.
func TestLayersRefused(t *testing.T) {
	for _, wrong := range []string{"", "full", "full:0", "full/3:2", "sliding:3", "sliding/0:3", "window/3:2", "state/100:2", "state/0:2", "sliding/1KiB:2", "state/1KiB/0:2", "state/1KiB/:2", "state/1KiB/1025:2", "sliding/3/3:2"} {
		kinds, err := ParseLayers(wrong)
		assert.That(t, err != nil, "%q: %+v", wrong, kinds)
	}
}

// TestUnify: pages by hand. Groups are of as many layers as the rarest kind has; what is left over is padding.
func TestUnify(t *testing.T) {
	for _, test := range []struct {
		name  string
		kinds string
		bytes int64 // of a token in a layer
		want  Layout
	}{
		{"10 and 52 layers: six groups, of which the last has 2 layers", "full:10,sliding/1024:52", 100, Layout{Page: 10 * 16 * 100, Size: 10, Groups: []LayerGroups{
			{LayerKind{Keep: Full, Layers: 10, Bytes: 100}, 1, 16}, {LayerKind{Keep: Sliding, Layers: 52, Window: 1024, Bytes: 100}, 6, 16},
		}}},
		{"blocks get longer until they hold a state: 48 tokens for 4,500 bytes", "full:4,state/4500B:28", 100, Layout{Page: 4 * 48 * 100, Size: 4, Groups: []LayerGroups{
			{LayerKind{Keep: Full, Layers: 4, Bytes: 100}, 1, 48}, {LayerKind{Keep: State, Layers: 28, Bytes: 4500}, 7, 1},
		}}},
		{"12 and 13 layers: one group each, of which the first has an empty place", "full:13,sliding/128:12", 100, Layout{Page: 13 * 16 * 100, Size: 13, Groups: []LayerGroups{
			{LayerKind{Keep: Full, Layers: 13, Bytes: 100}, 1, 16}, {LayerKind{Keep: Sliding, Layers: 12, Window: 128, Bytes: 100}, 1, 16},
		}}},
	} {
		kinds, err := ParseLayers(test.kinds)
		assert.NoError(t, err)
		m := Model{KVHeads: 1, HeadSize: int(test.bytes) / 2, DtypeBytes: 1}
		assert.Diff(t, test.want, Unify(m.Kinds(kinds, 1), 16), "%s", test.name)
	}
}
