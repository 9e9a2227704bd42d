package gate

import (
	"fmt"
	"math"
	"strings"

	"github.com/memprof/memprof/analysis"
)

// Relative is a limit that depends on the baseline: a value in it, and so much more.
type Relative struct {
	Text   string  // as it was written: "baseline + 2%"
	share  float64 // of the value: 0.02 for `baseline + 2%`
	offset float64 // in the metric's unit
	whole  bool    // the limit is a whole number, as bytes are: a percentage is rounded
}

// of returns the limit that the baseline's value makes.
func (r *Relative) of(value float64) float64 {
	limit := value + value*r.share + r.offset
	if r.whole {
		return math.Round(limit)
	}
	return limit
}

// parseRelative reads `baseline`, `baseline + 2%` and `baseline - 100MiB`. A percentage is one of
// the baseline's value for bytes and counts, and percentage points for shares: a percentage of a share
// that is 0 would leave no room at all. ok is false for a limit that is not relative.
func parseRelative(text string, unit analysis.Unit) (relative *Relative, ok bool, err error) {
	rest, ok := strings.CutPrefix(text, "baseline")
	if !ok {
		return nil, false, nil
	}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return &Relative{Text: text}, true, nil
	}
	sign, amount := rest[0], strings.TrimSpace(rest[1:])
	if sign != '+' && sign != '-' || amount == "" {
		return nil, true, fmt.Errorf("%q: want baseline, baseline + AMOUNT or baseline - AMOUNT", text)
	}
	inUnit := unit
	if strings.HasSuffix(amount, "%") {
		inUnit = analysis.Share
	}
	value, err := parseAmount(amount, inUnit)
	if err != nil {
		return nil, true, err
	}
	if value < 0 {
		return nil, true, fmt.Errorf("%q: the amount after + or - has a sign", text)
	}
	if sign == '-' {
		value = 0 - value
	}
	if inUnit == analysis.Share && unit != analysis.Share {
		return &Relative{Text: text, share: value, whole: unit == analysis.Bytes}, true, nil
	}
	return &Relative{Text: text, offset: value}, true, nil
}
