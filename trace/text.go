package trace

import "strings"

// ValidText replaces each run of bytes that is not UTF-8 by U+FFFD, because text of a trace is UTF-8. Hooks before
// 2026-11 did not check the text that they were given, and cut it within characters.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
