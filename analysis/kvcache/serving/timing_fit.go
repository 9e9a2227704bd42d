package serving

import (
	"errors"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
)

// Step is a step that was timed.
type Step struct {
	kvcache.Work
	Time float64 // ns, more than 0
}

// ErrTooFew is that of steps that say too little.
var ErrTooFew = errors.New("fewer than 16 steps with work were timed")

const fewest = 16

// Fit finds the coefficients whose steps deviate least from the timed ones, in the mean of the squares of shares, and
// the mean deviation as a share of a step's time: a server has many short steps, and the few long ones of prompts
// would decide over absolute squares. A coefficient that no step is about is 0: pair without prompts, say.
//
// The model is linear but for the greater of two terms. Which of them holds is decided by the number of tokens
// at which they meet, so the numbers of the steps are tried, first coarsely and then between the best.
// The least squares are found by coordinate descent, which keeps every coefficient at 0 or above.
func Fit(steps []Step) (Coefficients, float64, error) {
	if len(steps) < fewest {
		return Coefficients{}, 0, ErrTooFew
	}
	knees := kneesOf(steps)
	at := leastOf(len(knees), func(i int) float64 {
		_, missed := fitAt(steps, knees[i])
		return missed
	})
	best, _ := fitAt(steps, knees[at])
	return best, deviation(best, steps), nil
}

// leastOf returns which of n costs is the least, if they fall up to it and rise from it on. It tries 24 or so of them, then as many
// between the best one's neighbours, and so on.
func leastOf(n int, cost func(i int) float64) (best int) {
	const coarse = 24
	least := math.Inf(1)
	for low, high := 0, n; ; {
		stride := max(1, (high-low)/coarse)
		for i := low; i < high; i += stride {
			if c := cost(i); c < least {
				best, least = i, c
			}
		}
		if stride == 1 {
			return best
		}
		low, high = max(0, best-stride+1), min(n, best+stride)
	}
}

// kneesOf are the numbers of tokens that steps computed, each once, and 0: for all steps arithmetic counts.
func kneesOf(steps []Step) []float64 {
	knees := []float64{0}
	for _, s := range steps {
		knees = append(knees, float64(s.Prefill+s.Decode))
	}
	slices.Sort(knees)
	return slices.Compact(knees)
}

// columns are the terms of a step where reading the weights takes as long as the arithmetic of knee tokens.
func columns(s *Step, knee float64) [6]float64 {
	return [6]float64{
		1, max(knee, float64(s.Prefill+s.Decode)), float64(s.Decode), float64(s.Context), s.Pairs, float64(s.Swapped),
	}
}

// fitAt returns the best coefficients for a knee, and the sum of the squares of what they miss of each step's time.
func fitAt(steps []Step, knee float64) (Coefficients, float64) {
	const n = 6
	var square [n][n]float64
	var product [n]float64
	var scale [n]float64
	for i := range steps {
		for k, v := range columns(&steps[i], knee) {
			scale[k] = max(scale[k], v/steps[i].Time)
		}
	}
	for i := range steps {
		row := columns(&steps[i], knee)
		for k := range row {
			if scale[k] > 0 {
				row[k] /= steps[i].Time * scale[k]
			}
		}
		for k := range row {
			product[k] += row[k]
			for l := range row {
				square[k][l] += row[k] * row[l]
			}
		}
	}
	x := descend(square, product)
	missed := float64(len(steps))
	for k := range x {
		missed -= 2 * x[k] * product[k]
		for l := range x {
			missed += x[k] * x[l] * square[k][l]
		}
	}
	for k := range x {
		if scale[k] > 0 {
			x[k] /= scale[k]
		}
	}
	return Coefficients{
		Overhead: x[0], Weights: x[1] * knee, Token: x[1], Sequence: x[2], Context: x[3], Pair: x[4], Swap: x[5],
	}, missed
}

// descend minimises x·square·x − 2·x·product over x of 0 and above, one coordinate after the other.
func descend(square [6][6]float64, product [6]float64) [6]float64 {
	const rounds, enough = 20_000, 1e-10
	var x [6]float64
	for range rounds {
		var moved, size float64
		for k := range x {
			if square[k][k] == 0 {
				continue
			}
			rest := product[k]
			for l := range x {
				if l != k {
					rest -= square[k][l] * x[l]
				}
			}
			next := max(0, rest/square[k][k])
			moved = max(moved, math.Abs(next-x[k]))
			size = max(size, next)
			x[k] = next
		}
		if moved <= enough*size {
			break
		}
	}
	return x
}

// deviation is the mean of what c misses of each step, as a share of its time.
func deviation(c Coefficients, steps []Step) float64 {
	var missed float64
	for _, s := range steps {
		missed += math.Abs(float64(c.Step(s.Work))-s.Time) / s.Time
	}
	return missed / float64(len(steps))
}
