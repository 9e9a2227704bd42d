package plain

import (
	"strings"
	"testing"
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
		if got := DidYouMean(word, choices...); got != want {
			t.Errorf("%.40q: %q, want %q", word, got, want)
		}
	}
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"same", "same", 0}} {
		if got := edits(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: %d edits, want %d", test.a, test.b, got, test.want)
		}
	}
}
