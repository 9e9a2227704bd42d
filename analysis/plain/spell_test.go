package plain

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestDidYouMean: one edit in four letters is near, of either case; nothing is said of what is far, or
// longer than anybody spells.
func TestDidYouMean(t *testing.T) {
	choices := []string{"reserved.peak", "reserved.final", "requested.peak", "oom.count"}
	for word, want := range map[string]string{
		"reserved.peek":                   ", did you mean reserved.peak?",
		"Reserved.Peak":                   ", did you mean reserved.peak?",
		"reserevd.peak":                   ", did you mean reserved.peak?",
		"resested.peak":                   ", did you mean reserved.peak or requested.peak?",
		"omo.count":                       ", did you mean oom.count?",
		"fragmentation":                   "",
		"":                                "",
		strings.Repeat("x", 1<<20):        "",
		"oom.coun" + string([]byte{0xff}): ", did you mean oom.count?",
	} {
		assert.Equal(t, DidYouMean(word, choices...), want, "%.40q", word)
	}
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"same", "same", 0}} {
		assert.Equal(t, edits(test.a, test.b), test.want, "%q to %q", test.a, test.b)
	}
}
