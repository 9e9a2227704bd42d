package gate

import (
	"fmt"
	"strconv"

	"github.com/memprof/memprof/report/spell"
)

// RankChoice says which ranks a gate is judged by.
type RankChoice struct {
	kind string // "worst", "mean", "all", or "one"
	rank int    // of "one"
}

// ParseRanks reads worst, mean, all, or the number of a rank.
func ParseRanks(text string) (RankChoice, error) {
	switch text {
	case "worst", "mean", "all":
		return RankChoice{kind: text}, nil
	}
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 {
		return RankChoice{}, fmt.Errorf("rank %q: want worst, all, mean or the number of a rank%s", text, spell.DidYouMean(text, "worst", "all", "mean"))
	}
	return RankChoice{kind: "one", rank: rank}, nil
}
