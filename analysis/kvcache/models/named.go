package models

import (
	"fmt"
	"strings"
)

// named are those known by name, by family and size; lengths are the released configuration's.
var named = []Model{
	{"opt-1.3b", 24, 32, 32, 64, 2, 1_315_758_080, 2048, 0, 0, nil},
	{"opt-6.7b", 32, 32, 32, 128, 2, 6_658_473_984, 2048, 0, 0, nil},
	{"opt-13b", 40, 40, 40, 128, 2, 12_853_473_280, 2048, 0, 0, nil},
	{"opt-30b", 48, 56, 56, 128, 2, 29_974_540_288, 2048, 0, 0, nil},
	{"opt-66b", 64, 72, 72, 128, 2, 65_719_701_504, 2048, 0, 0, nil},
	{"opt-175b", 96, 96, 96, 128, 2, 174_604_468_224, 2048, 0, 0, nil},
	{"llama-2-7b", 32, 32, 32, 128, 2, 6_738_415_616, 4096, 0, 0, nil},
	{"llama-2-13b", 40, 40, 40, 128, 2, 13_015_864_320, 4096, 0, 0, nil},
	{"llama-2-70b", 80, 64, 8, 128, 2, 68_976_648_192, 4096, 0, 0, nil},
	{"llama-3-8b", 32, 32, 8, 128, 2, 8_030_261_248, 8192, 0, 0, nil},
	{"llama-3-70b", 80, 64, 8, 128, 2, 70_553_706_496, 8192, 0, 0, nil},
	{"llama-3.1-8b", 32, 32, 8, 128, 2, 8_030_261_248, 131072, 0, 0, nil},
	{"llama-3.1-70b", 80, 64, 8, 128, 2, 70_553_706_496, 131072, 0, 0, nil},
	{"llama-3.1-405b", 126, 128, 8, 128, 2, 405_853_388_800, 131072, 0, 0, nil},
	{"llama-3.2-1b", 16, 32, 8, 64, 2, 1_235_814_400, 131072, 0, 0, nil},
	{"llama-3.2-3b", 28, 24, 8, 128, 2, 3_212_749_824, 131072, 0, 0, nil},
	{"llama-3.2-11b-vision", 40, 32, 8, 128, 2, 10_670_220_835, 131072, 0, 0, nil},
	{"gemma-2-9b", 42, 16, 8, 256, 2, 9_241_705_984, 8192, 0, 0, nil},
	{"gemma-3-27b", 62, 32, 16, 128, 2, 27_432_406_640, 131072, 0, 0, nil},
	{"ministral-8b", 36, 32, 8, 128, 2, 8_019_808_256, 131072, 0, 0, nil},
	{"jamba-v0.1", 32, 32, 8, 128, 2, 51_570_323_328, 262144, 0, 0, nil},
	{"deepseek-v3", 61, 128, 1, 288, 1, 671_026_419_200, 163840, 2, 0, nil}, // of the 576 latent elements, each tensor is half
	{"mistral-7b", 32, 32, 8, 128, 2, 7_241_732_096, 32768, 0, 0, nil},
	{"qwen2.5-0.5b", 24, 14, 2, 64, 2, 494_032_768, 32768, 0, 0, nil},
	{"qwen2.5-1.5b", 28, 12, 2, 128, 2, 1_543_714_304, 32768, 0, 0, nil},
	{"qwen2.5-3b", 36, 16, 2, 128, 2, 3_085_938_688, 32768, 0, 0, nil},
	{"qwen2.5-7b", 28, 28, 4, 128, 2, 7_615_616_512, 32768, 0, 0, nil},
	{"qwen2.5-14b", 48, 40, 8, 128, 2, 14_770_033_664, 32768, 0, 0, nil},
	{"qwen2.5-32b", 64, 40, 8, 128, 2, 32_763_876_352, 32768, 0, 0, nil},
	{"qwen2.5-72b", 80, 64, 8, 128, 2, 72_706_203_648, 32768, 0, 0, nil},
}

// layersOf are the layers of models that do not all keep the same, without the bytes of tokens. Jamba's states are in
// bfloat16: 8,192 channels of 16 elements, and the last 3 inputs of the convolution.
var layersOf = map[string][]LayerKind{
	"llama-3.2-11b-vision": {{Keep: Full, Layers: 32}, {Keep: Cross, Window: 6404, Layers: 8}},
	"gemma-2-9b":           {{Keep: Full, Layers: 21}, {Keep: Sliding, Window: 4096, Layers: 21}},
	"gemma-3-27b":          {{Keep: Full, Layers: 10}, {Keep: Sliding, Window: 1024, Layers: 52}},
	"ministral-8b":         {{Keep: Full, Layers: 9}, {Keep: Sliding, Window: 32768, Layers: 27}},
	"jamba-v0.1":           {{Keep: Full, Layers: 4}, {Keep: State, Layers: 28, Bytes: 2 * 8192 * (16 + 3)}},
}

// Named finds a model by its name, in letters of any case.
func Named(name string) (Model, error) {
	for _, m := range named {
		if strings.EqualFold(m.Name, name) {
			return m, nil
		}
	}
	return Model{}, fmt.Errorf("unknown model %q: known are %s", name, strings.Join(Names(), ", "))
}

// Names are the names that [Named] knows.
func Names() []string {
	var names []string
	for _, m := range named {
		names = append(names, m.Name)
	}
	return names
}
