package plain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of a suggestion: how many words it names, and how long a word may be to get one.
const (
	mostSuggested  = 3
	longestSpelled = 64
)

// DidYouMean is ", did you mean A or B?" with the choices nearest to a word that is none of them,
// or "" where none is near.
func DidYouMean(word string, choices ...string) string {
	near := nearest(word, choices)
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
}

// nearest are the choices that take the fewest edits to become word, the nearest first: at most one
// in four letters.
func nearest(word string, choices []string) []string {
	if word == "" || len(word) > longestSpelled {
		return nil
	}
	word = strings.ToLower(word)
	allowed := max(1, (len(word)+1)/4)
	type offer struct {
		choice string
		edits  int
	}
	var offers []offer
	for _, choice := range choices {
		if n := edits(word, strings.ToLower(choice)); n <= allowed {
			offers = append(offers, offer{choice, n})
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return cmp.Compare(a.edits, b.edits) })
	var near []string
	for _, o := range offers[:min(len(offers), mostSuggested)] {
		if o.edits <= offers[0].edits+1 {
			near = append(near, o.choice)
		}
	}
	return near
}

// edits is the Damerau-Levenshtein distance of two words, in bytes: how many letters are to be
// put in, taken out, replaced, or swapped with their neighbour.
func edits(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Alternatives is "a, b or c".
func Alternatives(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
