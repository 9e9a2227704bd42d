package reporttest

import "testing"

// Row logs a row of the table of make page-bench: what was measured, its value, and what is promised.
func Row(t testing.TB, measured, value, promised string) {
	t.Helper()
	t.Logf("row: %s\t%s\t%s", measured, value, promised)
}
