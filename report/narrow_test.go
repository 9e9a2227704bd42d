package report

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var numeral = regexp.MustCompile(`[0-9][0-9.,]*`)

// Nothing is wider than the terminal, down to 80 columns, and every number of the wide report is in
// the narrow one.
func TestNarrowText(t *testing.T) {
	for _, f := range fixtures() {
		wide := renderText(t, f.results, layout.Options{})
		for _, width := range []int{60, 80, 90, 120} {
			got := renderText(t, f.results, layout.Options{Width: width})
			for number, line := range strings.Split(got, "\n") {
				columns := plain.Width(line)
				assert.That(t, columns <= max(width, 80), "%s at %d: line %d has %d columns:\n%s", f.name, width, number+1, columns, line)
			}
			if strings.HasPrefix(f.name, "hostile") {
				continue // names are shortened, and these are full of digits
			}
			have := numeral.FindAllString(got, -1)
			for _, n := range numeral.FindAllString(wide, -1) {
				assert.That(t, slices.Contains(have, n) || strings.Contains(got, n), "%s at %d: %s is missing", f.name, width, n)
			}
		}
	}
}
