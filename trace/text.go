package trace

import "strings"

// validText is s with U+FFFD for each run of bytes that are not UTF-8: what other programs wrote
// becomes a part of the trace, whose text is UTF-8. Hooks before 2026-11 passed on what they were
// given, and cut it anywhere.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
