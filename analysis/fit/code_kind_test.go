package fit

import "testing"

func TestKindOf(t *testing.T) {
	for module, want := range map[string]string{
		"h.3.attn": "h.*.attn", "encoder.layers.encoder_layer_11": "encoder.layers.encoder_layer_*", "features.denseblock1": "features.denseblock*",
		"layer1": "layer*", "layer1.0": "layer1.*", "conv1": "conv1", "h.0.ln_1": "h.*.ln_1", "0": "*",
	} {
		if got := kindOf(module); got != want {
			t.Errorf("%s is of kind %s, want %s", module, got, want)
		}
	}
}
