package plain

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Absent is printed for a number that does not exist.
const Absent = "–"

var binaryUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// FormatSize returns a number of bytes for people: "512 B", "2 MiB", "1.27 GiB". Whole multiples
// of the unit have no decimals and are exact; others are rounded to three significant digits, or
// four from 1000 up to the next unit.
func FormatSize(bytes int64) string {
	if bytes < 0 {
		// Negating through uint64 also holds for the least int64.
		return "-" + formatSize(-uint64(bytes))
	}
	return formatSize(uint64(bytes))
}

func formatSize(bytes uint64) string {
	unit := 0
	for unit < len(binaryUnits)-1 && bytes>>(10*(unit+1)) > 0 {
		unit++
	}
	scale := uint64(1) << (10 * unit)
	if bytes%scale == 0 {
		return strconv.FormatUint(bytes/scale, 10) + " " + binaryUnits[unit]
	}
	value := float64(bytes) / float64(scale)
	text := threeDigits(value)
	if text == "1024" { // 1023.7 MiB rounds into the next unit
		unit++
		text = "1.00"
	}
	return text + " " + binaryUnits[unit]
}

// ExactSize returns a number of bytes as a flag takes it, in the largest unit that it is a whole
// number of: "1500KiB", "32MiB", "257B".
func ExactSize(bytes uint64) string {
	unit := 0
	for unit < len(binaryUnits)-1 && bytes > 0 && bytes&1023 == 0 {
		bytes >>= 10
		unit++
	}
	return strconv.FormatUint(bytes, 10) + binaryUnits[unit]
}

// threeDigits formats 0 <= value with three significant digits and every digit before the point.
func threeDigits(value float64) string {
	decimals := 0
	switch {
	case value < 9.995:
		decimals = 2
	case value < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(value, 'f', decimals, 64)
}

// Unit is the largest binary unit that is not above a value: its bytes and its name.
func Unit(greatest int64) (bytes float64, name string) {
	unit := 0
	for unit < len(binaryUnits)-1 && greatest>>(10*(unit+1)) > 0 {
		unit++
	}
	return float64(int64(1) << (10 * unit)), binaryUnits[unit]
}

// FormatPercent returns a share (1 is all) as percent with one decimal. A share that is positive
// but too small for that is "<0.1%", so that "0.0%" means none. NaN and infinities are "–".
func FormatPercent(share float64) string {
	switch {
	case math.IsNaN(share) || math.IsInf(share, 0):
		return Absent
	case share > 0 && share < 0.0005:
		return "<0.1%"
	case share < 0 && share > -0.0005:
		return "0.0%"
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64) + "%"
}

// FormatDuration returns nanoseconds for people: "850 ns", "12.3 µs", "4.56 s", "2m03s", "1h02m".
// A negative value stands for something that never happened and is "–".
func FormatDuration(ns int64) string {
	const second, minute, hour = 1_000_000_000, 60, 3600
	switch {
	case ns < 0:
		return Absent
	case ns < 1_000:
		return strconv.FormatInt(ns, 10) + " ns"
	case ns < 999_500:
		return threeDigits(float64(ns)/1e3) + " µs"
	case ns < 999_500_000:
		return threeDigits(float64(ns)/1e6) + " ms"
	case ns < 99_950_000_000:
		return threeDigits(float64(ns)/1e9) + " s"
	}
	seconds := (ns-1)/second + 1 // a started second counts, so that nothing ends before it happened
	if seconds < hour {
		return fmt.Sprintf("%dm%02ds", seconds/minute, seconds%minute)
	}
	minutes := seconds / minute
	return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
}

// FormatCount writes an integer with a comma after every third digit.
func FormatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var out strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return sign + out.String()
}

// Counted is "1 event", "2,000 events", "3 processes".
func Counted(n int64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return FormatCount(n) + " " + noun
}

// FormatKnown is [FormatSize] for a number of bytes that is negative where it is not known.
func FormatKnown(bytes int64) string {
	if bytes < 0 {
		return Absent
	}
	return FormatSize(bytes)
}

// Ratio is part/whole, and NaN (printed "–") where whole is 0.
func Ratio(part, whole int64) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}

// KnownRatio is [Ratio] for a part that is negative where it is not known: then it is NaN.
func KnownRatio(part, whole int64) float64 {
	if part < 0 {
		return math.NaN()
	}
	return Ratio(part, whole)
}

// sizeUnits are the suffixes ParseSize accepts, in lower case.
var sizeUnits = map[string]int64{
	"b":  1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
}

// ParseSize returns the bytes a size stands for: "257B", "512MiB", "1.5 GiB". KiB, MiB, GiB,
// TiB, PiB and the single letters k, m, g, t, p are powers of 1024; KB, MB, GB, TB, PB are powers
// of 1000; case does not matter and blanks may stand before the unit. A fraction that gives no
// whole number of bytes is rounded down. Numbers without a unit other than 0, signs, exponents, other
// units and sizes of 8 EiB and more are errors.
func ParseSize(text string) (int64, error) {
	trimmed := strings.TrimSpace(text)
	end := strings.IndexFunc(trimmed, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(trimmed)
	}
	number := trimmed[:end]
	unit := strings.ToLower(strings.TrimLeft(trimmed[end:], " \t"))
	if strings.HasPrefix(unit, "-") {
		return 0, fmt.Errorf("size %q is negative: sizes are 0 or more", text)
	}
	if strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
		return 0, fmt.Errorf("size %q does not begin with a number: write it like 10GiB, 512m or 257B", text)
	}
	if unit == "" && strings.Trim(number, "0") == "" {
		return 0, nil
	}
	if unit == "" {
		return 0, fmt.Errorf("size %q needs a unit, like %sGiB or %sB", text, number, number)
	}
	scale, known := sizeUnits[unit]
	if !known {
		return 0, fmt.Errorf("size %q has the unknown unit %q: use KiB, MiB, GiB, TiB (or k, m, g, t), or KB, MB, GB, TB for powers of 1000", text, trimmed[end:])
	}
	value, ok := new(big.Rat).SetString(strings.TrimSuffix(number, "."))
	if !ok {
		return 0, fmt.Errorf("size %q does not begin with a number: write it like 10GiB, 512m or 257B", text)
	}
	value.Mul(value, new(big.Rat).SetInt64(scale))
	whole := new(big.Int).Quo(value.Num(), value.Denom())
	if !whole.IsInt64() {
		return 0, fmt.Errorf("size %q is too large: sizes end below 8 EiB", text)
	}
	return whole.Int64(), nil
}

// ParseDuration returns the duration that a text stands for: "50ms", "1.5s", "2m30s". It takes what
// [time.ParseDuration] takes. Its errors quote the text and say how to write a duration.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("duration %q is not a number with a unit: write it like 50ms, 1.5s or 2m", text)
	}
	return d, nil
}
