package layout

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A table that is too wide even without its frame is divided, each part with the first column.
func TestDividedTable(t *testing.T) {
	s := Section{Columns: []Column{Words("name")}}
	line := Row("a rather long name of a module which goes on and on")
	for i := range 12 {
		s.Columns = append(s.Columns, Numbers(fmt.Sprintf("column %02d", i)))
		line = append(line, Row(fmt.Sprintf("%d,000,000", i))...)
	}
	s.Rows = [][]Cell{line}
	var out bytes.Buffer
	printer{&out, Options{Width: 80}}.section(s)
	want := []string{
		"name              column 00  column 01  column 02  column 03  column 04",
		"────────────────  ─────────  ─────────  ─────────  ─────────  ─────────",
		"a rathe…n and on  0,000,000  1,000,000  2,000,000  3,000,000  4,000,000",
	}
	lines := strings.Split(out.String(), "\n")
	assert.Diff(t, want, lines[:3], "first part")
	got := strings.Count(out.String(), "a rathe…n and on")
	assert.That(t, got == 3, "%d parts, want 3:\n%s", got, out.String())
	for i := range 12 {
		n := fmt.Sprintf("%d,000,000", i)
		assert.That(t, strings.Count(out.String(), " "+n) == 1, "%s is there %d times", n, strings.Count(out.String(), " "+n))
	}
}

func TestElide(t *testing.T) {
	for _, test := range []struct {
		rows, head, tail int
		want             string
	}{
		{0, 2, 1, ""}, {3, 2, 1, "0 1 2"},
		{4, 2, 1, "0 1 2 3"}, // a line for one row would save nothing
		{5, 2, 1, "0 1 … 2 more 4"}, {1000, 1, 2, "0 … 997 more 998 999"}, {9, 3, 0, "0 1 2 … 6 more"},
	} {
		table := Section{Columns: []Column{Numbers("n"), Words("")}}
		for i := range test.rows {
			table.Rows = append(table.Rows, Row(plain.FormatCount(int64(i)), ""))
		}
		table.Elide(test.head, test.tail)
		var got []string
		for _, r := range table.Rows {
			assert.That(t, len(r) == 2, "a row of %d cells", len(r))
			got = append(got, r[0].Text+r[1].Text)
		}
		assert.Equal(t, strings.Join(got, " "), test.want, "%d rows", test.rows)
	}
}

// A control character is shown as an escape, which is wider: the columns behind it stay in line.
func TestColumnsBehindEscapes(t *testing.T) {
	s := Section{Open: true, Columns: []Column{{Name: "name"}, {Name: "bytes", Number: true}}, Rows: [][]Cell{Row("a\x1b\x1b", "1"), Row("b", "2")}}
	var out strings.Builder
	assert.NoError(t, WriteText(&out, Options{}, s))
	assert.Equal(t, out.String(), "name       bytes\na\\x1b\\x1b      1\nb              2\n\n", "columns")
}
