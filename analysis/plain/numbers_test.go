package plain

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func TestParseSize(t *testing.T) {
	for _, test := range []struct {
		text string
		want int64
	}{
		{"0", 0}, {"00", 0}, {"2097152B", 2097152}, {"512B", 512}, {"7 b", 7},
		{"1KiB", 1024}, {"512MiB", 536870912}, {"10GiB", 10737418240}, {"2TiB", 2199023255552}, {"1PiB", 1125899906842624},
		{"1KB", 1000}, {"512MB", 512000000}, {"10GB", 10000000000}, {"2TB", 2000000000000}, {"1PB", 1000000000000000},
		{"10g", 10737418240}, {"10G", 10737418240}, {"64k", 65536}, {"3M", 3145728}, {"1t", 1099511627776}, {"1p", 1125899906842624},
		{" 10 gib ", 10737418240}, {"10\tGiB", 10737418240}, {"10gIb", 10737418240},
		{"1.5GiB", 1610612736}, {".5k", 512}, {"2.k", 2048}, {"0.1GiB", 107374182}, {"0.1b", 0},
		{"9223372036854775807B", math.MaxInt64}, {"7.9999p", 9007086664750307},
	} {
		got, err := ParseSize(test.text)
		assert.That(t, err == nil && got == test.want, "ParseSize(%q) = %d, %v; want %d", test.text, got, err, test.want)
	}
}

func TestParseSizeErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "does not begin with a number"}, {"GiB", "does not begin with a number"}, {".", "does not begin with a number"},
		{"1.2.3k", "does not begin with a number"}, {"0x10", `unknown unit "x10"`}, {"1e3", `unknown unit "e3"`},
		{"-5", "is negative"}, {"- 5", "is negative"}, {"+5", "does not begin"}, {"10 Gb it", "unknown unit"}, {"10GiBs", `unknown unit "GiBs"`}, {"10 kg", "unknown unit"},
		{"5", "needs a unit, like 5GiB or 5B"}, {"80 ", "needs a unit"}, {"0.5", "needs a unit"}, {"9223372036854775808B", "too large"}, {"8192p", "too large"}, {"NaN", "does not begin"}, {"1,5g", "unknown unit"}, {"٣", "does not begin"},
	} {
		got, err := ParseSize(test.text)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), strconv.Quote(test.text)) {
			t.Errorf("ParseSize(%q) = %d, %v; want an error with %q that quotes the input", test.text, got, err, test.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	if got, err := ParseDuration("2m1.5s"); err != nil || got != 121500*time.Millisecond {
		t.Errorf(`ParseDuration("2m1.5s") = %v, %v`, got, err)
	}
	for _, text := range []string{"", "soon", "3", "1 s", "5 minutes"} {
		_, err := ParseDuration(text)
		assert.That(t, err != nil && err.Error() == "duration "+strconv.Quote(text)+" is not a number with a unit: write it like 50ms, 1.5s or 2m",
			"ParseDuration(%q) returned the error %v", text, err)
	}
}

func TestFormatSize(t *testing.T) {
	for _, test := range []struct {
		bytes int64
		want  string
	}{
		{0, "0 B"}, {1, "1 B"}, {1023, "1023 B"}, {1024, "1 KiB"}, {1025, "1.00 KiB"}, {1536, "1.50 KiB"}, {10240 + 512, "10.5 KiB"},
		{mib - 1, "1.00 MiB"}, {1023 * kib, "1023 KiB"}, {1023*kib + 200, "1023 KiB"}, {2 * mib, "2 MiB"}, {gib + gib/4, "1.25 GiB"},
		{9_990 * gib / 1000, "9.99 GiB"}, {9_996 * gib / 1000, "10.0 GiB"}, {99_960 * gib / 1000, "100 GiB"},
		{-1536, "-1.50 KiB"}, {math.MaxInt64, "8.00 EiB"}, {math.MinInt64, "-8 EiB"},
	} {
		assert.Equal(t, FormatSize(test.bytes), test.want, "FormatSize(%d)", test.bytes)
	}
}

// What is printed reads back as the same number up to the digits shown, and exactly where it has
// no decimals and less than four digits or is a whole multiple.
func TestFormatSizeReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(0, 1<<52).Draw(t, "bytes")
		text := FormatSize(bytes)
		back, err := ParseSize(text)
		assert.NoError(t, err)
		off := math.Abs(float64(back - bytes))
		assert.Must(t, off <= 0.00501*float64(bytes), "%d is printed %q, which is %d", bytes, text, back)
		assert.Must(t, len(text) <= len("1023.9 KiB"), "%q is too wide for the tables", text)
	})
}

func TestFormatPercent(t *testing.T) {
	for _, test := range []struct {
		share float64
		want  string
	}{
		{0, "0.0%"}, {1, "100.0%"}, {0.1234, "12.3%"}, {0.0004, "<0.1%"}, {0.0005, "0.1%"}, {-0.0001, "0.0%"}, {-0.25, "-25.0%"}, {1.5, "150.0%"},
		{math.NaN(), "–"}, {math.Inf(1), "–"}, {math.Inf(-1), "–"},
	} {
		assert.Equal(t, FormatPercent(test.share), test.want, "FormatPercent(%v)", test.share)
	}
}

func TestFormatDuration(t *testing.T) {
	for _, test := range []struct {
		ns   int64
		want string
	}{
		{-1, "–"}, {0, "0 ns"}, {999, "999 ns"}, {1000, "1.00 µs"}, {12_345, "12.3 µs"}, {999_499, "999 µs"}, {999_500, "1.00 ms"},
		{4_560_000, "4.56 ms"}, {999_600_000, "1.00 s"}, {12_300_000_000, "12.3 s"}, {99_960_000_000, "1m40s"}, {123_000_000_000, "2m03s"},
		{3_599_500_000_000, "1h00m"}, {3_720_000_000_000, "1h02m"}, {math.MaxInt64, "2562047h47m"},
	} {
		assert.Equal(t, FormatDuration(test.ns), test.want, "FormatDuration(%d)", test.ns)
	}
}

func TestFormatCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", math.MinInt64: "-9,223,372,036,854,775,808"} {
		assert.Equal(t, FormatCount(n), want, "FormatCount(%d)", n)
	}
}

// What ExactSize writes is what ParseSize reads.
func TestExactSize(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0B", 1: "1B", 257: "257B", 1 << 10: "1KiB", 1500 << 10: "1500KiB", 32 << 20: "32MiB", 32<<20 + 1: "33554433B", 1536 << 20: "1536MiB", 3 << 40: "3TiB",
	} {
		got := ExactSize(bytes)
		back, err := ParseSize(got)
		assert.That(t, got == want && err == nil && uint64(back) == bytes, "ExactSize(%d) = %q, want %q; read back %d, %v", bytes, got, want, back, err)
	}
}

func TestCounted(t *testing.T) {
	tests := []struct {
		n    int64
		noun string
		want string
	}{
		{0, "event", "0 events"}, {1, "event", "1 event"}, {999, "event", "999 events"}, {1000, "event", "1,000 events"},
		{1234567, "event", "1,234,567 events"}, {1, "process", "1 process"}, {2, "process", "2 processes"},
	}
	for _, test := range tests {
		assert.Equal(t, Counted(test.n, test.noun), test.want, "Counted(%d, %q)", test.n, test.noun)
	}
}
