package accounting

import (
	"maps"
	"slices"
	"strings"
)

// cards is the memory that the driver can allocate on a card, in GiB: what PyTorch calls its total capacity in
// out-of-memory errors that users published. Drivers differ by up to 1 %; these are the lower ends. That of the H200
// was measured (driver 580.159.04).
var cards = map[string]float64{
	"A100-40GB": 39.39, "A100-80GB": 79.14, "A6000": 47.40, "B200": 178.35, "H100-80GB": 79.10, "H200": 139.80, "L4": 22.03, "L40S": 44.34,
	"RTX-3090": 23.55, "RTX-4090": 23.52, "RTX-5090": 31.36, "T4": 14.56, "V100-32GB": 31.73,
}

// CardNames are the cards that CardNamed knows.
func CardNames() []string { return slices.Sorted(maps.Keys(cards)) }

// CardNamed returns the bytes that the driver can allocate on a card. Case, and what joins words, do not count.
func CardNamed(name string) (bytes int64, ok bool) {
	plain := func(text string) string {
		return strings.NewReplacer("-", "", " ", "", "_", "", "NVIDIA", "", "GEFORCE", "", "TESLA", "").Replace(strings.ToUpper(text))
	}
	for known, gib := range cards {
		if plain(known) == plain(name) || plain(known) == plain(name)+"80GB" {
			return int64(gib*1024) << 20, true
		}
	}
	return 0, false
}
