package report

import (
	"math"

	"github.com/memprof/memprof/report/units"
)

// absent is printed for a number that does not exist.
const absent = units.Absent

// FormatSize is [units.FormatSize].
func FormatSize(bytes int64) string { return units.FormatSize(bytes) }

// FormatPercent is [units.FormatPercent].
func FormatPercent(share float64) string { return units.FormatPercent(share) }

// FormatDuration is [units.FormatDuration].
func FormatDuration(ns int64) string { return units.FormatDuration(ns) }

func exactSize(bytes uint64) string { return units.ExactSize(bytes) }

// byteUnit is [units.Unit].
func byteUnit(greatest int64) (float64, string) { return units.Unit(greatest) }

func formatCount(n int64) string { return units.FormatCount(n) }

func plural(n int64, noun string) string { return units.Counted(n, noun) }

// formatLimit is FormatSize for a value of which -1 says that it does not exist.
func formatLimit(bytes int64) string {
	if bytes < 0 {
		return absent
	}
	return FormatSize(bytes)
}

// ratio is part/whole, and NaN (printed "–") where there is no whole.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}
