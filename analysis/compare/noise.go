package compare

import (
	"math"
	"slices"
)

const (
	// rankLevel is the chance below which two sets differ by the rank test of Mann and Whitney, two-sided.
	rankLevel = 0.03
	// leastEffect is the least effect size of a change: of all pairs of a value of each set, in how many more the one set is greater.
	leastEffect = 1. / 3
	// leastShare is the least change that matters, relative to the greater median; of shares, in absolute terms.
	leastShare = 0.001
)

// studentQuantiles are those of Student's distribution at 4 %, two-sided, from one degree of freedom on; the last holds for more.
var studentQuantiles = []float64{15.895, 4.849, 3.482, 2.999, 2.757, 2.612, 2.517, 2.449, 2.398, 2.359}

// differ says whether two sets of values differ by more than their noise, and how much: the effect size of Cliff, from -1 to 1, above 0
// where with is greater.
//
// Sets that are large enough are tested by their ranks. So few values that no order of them is rarer than rankLevel (three and three) differ
// where the ranges do not overlap, and the means are further apart than Student's test allows for: of normal values without a change that
// happens in 4 of 100 cases.
func differ(base, with []float64) (effect float64, beyond bool) {
	n, m := len(base), len(with)
	if n == 0 || m == 0 {
		return 0, false
	}
	for _, x := range base {
		for _, y := range with {
			switch {
			case y > x:
				effect++
			case y < x:
				effect--
			}
		}
	}
	effect /= float64(n * m)
	switch {
	case n == 1 && m == 1:
		return effect, effect != 0
	case rarest(n, m) > rankLevel:
		return effect, math.Abs(effect) == 1 && meansDiffer(base, with)
	}
	return effect, math.Abs(effect) >= leastEffect && rankChance(base, with, effect) <= rankLevel
}

// rarest is the chance of complete separation of so many values in random order.
func rarest(n, m int) float64 {
	chance := 2.
	for i := 1; i <= min(n, m); i++ {
		chance *= float64(i) / float64(max(n, m)+i)
	}
	return chance
}

// meansDiffer is Student's test with the pooled variance.
func meansDiffer(base, with []float64) bool {
	sum := func(values []float64) (mean, squares float64) {
		for _, v := range values {
			mean += v / float64(len(values))
		}
		for _, v := range values {
			squares += (v - mean) * (v - mean)
		}
		return mean, squares
	}
	n, m := float64(len(base)), float64(len(with))
	x, xx := sum(base)
	y, yy := sum(with)
	degrees := len(base) + len(with) - 2
	quantile := studentQuantiles[min(degrees, len(studentQuantiles))-1]
	return math.Abs(y-x) >= quantile*math.Sqrt((xx+yy)/float64(degrees)*(1/n+1/m))
}

// rankChance is how often values in random order have an effect as large: by the normal approximation, with ties.
func rankChance(base, with []float64, effect float64) float64 {
	n, m := float64(len(base)), float64(len(with))
	all := slices.Concat(base, with)
	slices.Sort(all)
	ties := 0.
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to] == all[from] {
			to++
		}
		t := float64(to - from)
		ties += t*t*t - t
		from = to
	}
	total := n + m
	variance := n * m / 12 * (total + 1 - ties/(total*(total-1)))
	u := math.Abs(effect)*n*m/2 - 0.5
	if variance <= 0 || u <= 0 {
		return 1
	}
	if math.Abs(effect) == 1 {
		return rarest(len(base), len(with))
	}
	return math.Erfc(u / math.Sqrt(2*variance))
}

// median is that of sorted values: of an even number the mean of the two in the middle.
func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
