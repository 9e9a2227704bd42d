package plain

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"model.fc1": "model.fc1", "層 é": "層 é", "": "",
		"a\x1b[31mb": `a\x1b[31mb`, "a\r\n\tb": `a\x0d\n\tb`, "\x00\x7f": `\x00\x7f`, "\u0085": `\u0085`,
		"\u202egnp": `\u202egnp`, "\u2028": `\u2028`, "\u200b": `\u200b`, "\U000e0001": `\U000e0001`, "\ufeff": `\ufeff`,
		"\xff\xc3": `\xff\xc3`, "\ufffd": "\ufffd",
	} {
		assert.Equal(t, Text(in), want, "clean(%q)", in)
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 5, "short"}, {"abcdefgh", 5, "ab…gh"}, {"abcdefgh", 6, "ab…fgh"}, {"abcdefgh", 8, "abcdefgh"},
		{"層層層層", 5, "層…層"}, {"\x1b\x1b\x1b", 7, `\x1…x1b`},
	} {
		assert.Equal(t, Shorten(test.in, test.width), test.want, "shorten(%q, %d)", test.in, test.width)
	}
	got := Shorten(strings.Repeat("長", 1<<20), 20)
	assert.That(t, Width(got) <= 20 && strings.Contains(got, "…"), "a megabyte became %q", got)
}
