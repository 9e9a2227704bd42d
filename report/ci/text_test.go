package ci

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// With too few columns, where a value was found stands below its line, and with fewer yet how far
// the runs lie apart.
func TestPrintTable(t *testing.T) {
	where := strings.Repeat("long/", 12) + "run: rank0"
	lines := [][]string{
		{"METRIC", "EXPECTED", "FOUND", "MARGIN", "SPREAD", "WHERE", "VERDICT"},
		{"oom.count", "< 1", "2", "-1", "0", where, "VIOLATED"},
	}
	for _, test := range []struct {
		several bool
		columns int
		want    string
	}{
		{false, 0, "METRIC     EXPECTED  FOUND  MARGIN  WHERE" + strings.Repeat(" ", len(where)-3) + "VERDICT\noom.count  < 1       2      -1      " + where + "  VIOLATED\n"},
		{true, 80, "METRIC     EXPECTED  FOUND  MARGIN  SPREAD  VERDICT\noom.count  < 1       2      -1      0       VIOLATED\n    in " + where + "\n"},
		{true, 200, "METRIC     EXPECTED  FOUND  MARGIN  SPREAD  WHERE" + strings.Repeat(" ", len(where)-3) + "VERDICT\noom.count  < 1       2      -1      0       " + where + "  VIOLATED\n"},
	} {
		var out bytes.Buffer
		assert.NoError(t, printTable(&out, lines, test.several, test.columns))
		assert.Diff(t, test.want, out.String(), "at %d", test.columns)
	}
}

func TestPrintTableWithSpreadBelow(t *testing.T) {
	lines := [][]string{
		{"METRIC", "EXPECTED", "FOUND", "MARGIN", "SPREAD", "WHERE", "VERDICT"},
		{"waste.internal.bytes", "< 9.18 GiB (baseline + 2%)", "9.01 GiB", "170 MiB", "12 MiB", "run: rank0 (median of 3 runs)", "ok"},
	}
	var out bytes.Buffer
	assert.NoError(t, printTable(&out, lines, true, 80))
	const want = `METRIC                EXPECTED                    FOUND     MARGIN   VERDICT
waste.internal.bytes  < 9.18 GiB (baseline + 2%)  9.01 GiB  170 MiB  ok
    spread 12 MiB, in run: rank0 (median of 3 runs)
`
	assert.Diff(t, want, out.String())
}
