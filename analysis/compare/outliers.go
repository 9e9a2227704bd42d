package compare

import "slices"

// Outliers reports for each value whether it is an outlier: farther from the median than 3.5 scaled median
// absolute deviations (Iglewicz and Hoaglin's rule), and farther than 1 % of the median. Without the second
// condition any change would be an outlier among nearly equal values. Fewer than four values have no outliers.
func Outliers[T int64 | float64](values []T) []bool {
	marked := make([]bool, len(values))
	if len(values) < 4 {
		return marked
	}
	median := medianOf(values)
	distances := make([]T, len(values))
	for i, v := range values {
		distances[i] = max(v-median, median-v)
	}
	// For a normal distribution, 1.4826 times the median absolute deviation is the standard deviation.
	bound := max(3.5*1.4826*float64(medianOf(distances)), 0.01*float64(median))
	for i, distance := range distances {
		marked[i] = float64(distance) > bound
	}
	return marked
}

// medianOf returns the median; with an even number of values, the greater of the two in the middle.
func medianOf[T int64 | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
