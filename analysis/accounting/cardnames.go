package accounting

import (
	"maps"
	"slices"
	"strings"
)

// A CardModel is a kind of card, as jobs see it.
type CardModel struct {
	Name            string
	Memory          int64  // bytes that the driver can allocate
	Capability      string // compute capability: "9.0"
	Multiprocessors int
}

// cards has the memory in GiB: what PyTorch calls a card's total capacity in out-of-memory errors that users published.
// Drivers differ by up to 1 %; these are the lower ends. That of the H200 was measured (driver 580.159.04). The others
// are of NVIDIA's data sheets.
var cards = map[string]struct {
	gib             float64
	capability      string
	multiprocessors int
}{
	"A100-40GB": {39.39, "8.0", 108}, "A100-80GB": {79.14, "8.0", 108}, "A6000": {47.40, "8.6", 84}, "B200": {178.35, "10.0", 148},
	"H100-80GB": {79.10, "9.0", 132}, "H200": {139.80, "9.0", 132}, "L4": {22.03, "8.9", 58}, "L40S": {44.34, "8.9", 142},
	"RTX-3090": {23.55, "8.6", 82}, "RTX-4090": {23.52, "8.9", 128}, "RTX-5090": {31.36, "12.0", 170}, "T4": {14.56, "7.5", 40},
	"V100-32GB": {31.73, "7.0", 80},
}

// CardNames are the cards that CardNamed knows.
func CardNames() []string { return slices.Sorted(maps.Keys(cards)) }

// CardNamed returns the card of that name. Case, and what joins words, do not count.
func CardNamed(name string) (model CardModel, ok bool) {
	plain := func(text string) string {
		return strings.NewReplacer("-", "", " ", "", "_", "", "NVIDIA", "", "GEFORCE", "", "TESLA", "").Replace(strings.ToUpper(text))
	}
	for known, c := range cards {
		if plain(known) == plain(name) || plain(known) == plain(name)+"80GB" {
			return CardModel{known, int64(c.gib*1024) << 20, c.capability, c.multiprocessors}, true
		}
	}
	return CardModel{}, false
}
