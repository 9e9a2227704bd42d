package compare

import "slices"

// Outliers marks which of the values stand apart from the others: farther from their median than 3.5
// scaled median deviations (Iglewicz and Hoaglin's rule), and than 1 % of the median, so
// that in a course that hardly moves nothing is marked for moving at all. Fewer than
// four values have no outliers.
func Outliers(values []int64) []bool {
	marked := make([]bool, len(values))
	if len(values) < 4 {
		return marked
	}
	median := medianOf(values)
	distances := make([]int64, len(values))
	for i, v := range values {
		distances[i] = max(v-median, median-v)
	}
	// 1.4826 makes the median deviation that of a normal distribution's standard deviation.
	bound := max(3.5*1.4826*float64(medianOf(distances)), 0.01*float64(median))
	for i, distance := range distances {
		marked[i] = float64(distance) > bound
	}
	return marked
}

// medianOf is the value in the middle, of two the greater one.
func medianOf(values []int64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
