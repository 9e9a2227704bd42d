package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// With too few columns, where a value was found stands below its line.
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
		if err := printTable(&out, lines, test.several, test.columns); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", test.columns, diff)
		}
	}
}
