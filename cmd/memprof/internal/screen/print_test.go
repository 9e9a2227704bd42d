package screen

import "testing"

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"run-1/x.parquet": "run-1/x.parquet", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "*": "'*'",
	} {
		if got := ShellQuote(word); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", word, got, want)
		}
	}
}
