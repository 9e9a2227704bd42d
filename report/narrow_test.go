package report

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var numeral = regexp.MustCompile(`[0-9][0-9.,]*`)

// Nothing is wider than the terminal, down to 80 columns, and every number of the wide report is in
// the narrow one.
func TestNarrowText(t *testing.T) {
	for _, f := range fixtures() {
		wide := renderText(t, f.results, Options{})
		for _, width := range []int{60, 80, 90, 120} {
			got := renderText(t, f.results, Options{Width: width})
			for number, line := range strings.Split(got, "\n") {
				if columns := displayWidth(line); columns > max(width, 80) {
					t.Errorf("%s at %d: line %d has %d columns:\n%s", f.name, width, number+1, columns, line)
				}
			}
			if strings.HasPrefix(f.name, "hostile") {
				continue // names are shortened, and these are full of digits
			}
			have := numeral.FindAllString(got, -1)
			for _, n := range numeral.FindAllString(wide, -1) {
				if !slices.Contains(have, n) && !strings.Contains(got, n) {
					t.Errorf("%s at %d: %s is missing", f.name, width, n)
				}
			}
		}
	}
	golden(t, "training_80.txt", []byte(renderText(t, fixtures()[0].results, Options{Width: 80})))
}

// A table that is too wide even without its frame is divided, each part with the first column.
func TestDividedTable(t *testing.T) {
	s := section{columns: []column{words("name")}}
	line := row("a rather long name of a module which goes on and on")
	for i := range 12 {
		s.columns = append(s.columns, numbers(fmt.Sprintf("column %02d", i)))
		line = append(line, row(fmt.Sprintf("%d,000,000", i))...)
	}
	s.rows = [][]cell{line}
	var out bytes.Buffer
	printer{&out, Options{Width: 80}}.section(s)
	want := []string{
		"name              column 00  column 01  column 02  column 03  column 04",
		"────────────────  ─────────  ─────────  ─────────  ─────────  ─────────",
		"a rathe…n and on  0,000,000  1,000,000  2,000,000  3,000,000  4,000,000",
	}
	lines := strings.Split(out.String(), "\n")
	if diff := cmp.Diff(want, lines[:3]); diff != "" {
		t.Errorf("first part (-want +got):\n%s", diff)
	}
	if got := strings.Count(out.String(), "a rathe…n and on"); got != 3 {
		t.Errorf("%d parts, want 3:\n%s", got, out.String())
	}
	for i := range 12 {
		if n := fmt.Sprintf("%d,000,000", i); strings.Count(out.String(), " "+n) != 1 {
			t.Errorf("%s is there %d times", n, strings.Count(out.String(), " "+n))
		}
	}
}
