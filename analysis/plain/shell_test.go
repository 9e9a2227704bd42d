package plain

import (
	"os/exec"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestShellQuote: bash reads the word that was quoted, and a terminal shows the quoted word as it is.
func TestShellQuote(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash on this machine")
	}
	check := func(t rapid.TB, word string) {
		quoted := ShellQuote(word)
		assert.Must(t, Text(quoted) == quoted, "%q is quoted as %q, which a terminal does not show as it is", word, quoted)
		out, err := exec.Command(bash, "-c", "printf %s "+quoted).Output()
		assert.Must(t, err == nil && string(out) == word, "bash reads %q, %v of %s, want %q", out, err, quoted, word)
	}
	for word, want := range map[string]string{
		"run-1/x.parquet": "run-1/x.parquet", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "*": "'*'", "a\x1bb": `$'a\x1bb'`, "層": "'層'",
	} {
		assert.Equal(t, ShellQuote(word), want, "ShellQuote(%q)", word)
	}
	for _, word := range []string{"", "run", "my run", "it's", "a\x1b[31mb", "run\n::error::x", "::error::x", "##[error]", "$(id)", "層/run", "\xff", `a\b'c`, "-", "~", "\x07f", "\u202ex"} {
		check(t, word)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c '\\:#$\x01-\x1f\x7fé\[]{0,12}`).Draw(t, "word")
		check(t, word)
	})
}
