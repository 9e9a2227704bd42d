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
	for _, wrong := range []string{"", "full", "full:0", "full/3:2", "sliding:3", "sliding/0:3", "window/3:2", "state/100:2", "state/0:2", "sliding/1KiB:2"} {
		kinds, err := ParseLayers(wrong)
		assert.That(t, err != nil, "%q: %+v", wrong, kinds)
	}
}
