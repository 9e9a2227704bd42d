package gate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
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
		return RankChoice{}, fmt.Errorf("rank %q: want worst, all, mean or the number of a rank%s", text, plain.DidYouMean(text, "worst", "all", "mean"))
	}
	return RankChoice{kind: "one", rank: rank}, nil
}

// ranksOf lists the ranks of a job.
func ranksOf(job recording.Job) string {
	var ranks []int
	for _, run := range job {
		for _, result := range run.Results {
			if rank, ok := compare.RankOf(result.Process); ok {
				ranks = append(ranks, rank)
			}
		}
	}
	slices.Sort(ranks)
	var texts []string
	for _, rank := range slices.Compact(ranks) {
		texts = append(texts, strconv.Itoa(rank))
	}
	switch n := len(texts); {
	case n == 0:
		return "worst, since no process has a rank"
	case n > 12:
		return fmt.Sprintf("%s, …, %s (%d in all)", strings.Join(texts[:11], ", "), texts[n-1], n)
	}
	return plain.Alternatives(texts)
}
