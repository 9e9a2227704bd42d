package compare

import (
	"slices"
	"strings"
)

// Direction says which of two values of a number is the better one.
type Direction uint8

const (
	LowerBetter  Direction = iota // of memory, waste, failures
	HigherBetter                  // of memory that is used well
	Neither                       // of shares that add up to a whole, and of what the job is
)

// higher are metrics of which more is better, and neither those whose change is neither good nor bad.
var (
	higher  = []string{"kv.token", "kv.cached", "kv.batch", "kv.batch.peak", "graphs.saved"}
	neither = []string{"live.peak", "kv.idle", "graphs.captures", "graphs.sum", "graphs.max"}
)

// DirectionOf returns the direction of a metric.
func DirectionOf(metric string) Direction {
	switch {
	case slices.Contains(higher, metric):
		return HigherBetter
	case slices.Contains(neither, metric):
		return Neither
	case strings.HasPrefix(metric, "category.") && !strings.HasSuffix(metric, ".bytes"):
		return Neither
	case strings.HasPrefix(metric, "phase.") && strings.HasSuffix(metric, ".allocated"):
		return Neither
	}
	return LowerBetter
}

// Verdict is "better" or "worse", by the direction of the number; "" for a change within noise, for none, and where
// neither is better.
func (c *Change) Verdict() string {
	outcome := c.Outcome()
	if c.Direction == Neither || outcome != Grew && outcome != Shrank {
		return ""
	}
	if (outcome == Grew) == (c.Direction == HigherBetter) {
		return "better"
	}
	return "worse"
}
