// Package plain is how memprof writes for people and reads what they write. Numbers: sizes, shares, times and counts, and
// sizes and durations as flags and gates take them. Texts: what comes from a recording, or from any other input, is made safe
// for a terminal, Markdown, a shell and JSON; a mistyped word gets the known one that is nearest. It knows nothing else of memprof.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
)

// Text makes a string safe to show on one line. Control characters, marks that join or reorder text,
// line separators and invalid UTF-8 become Go escapes, and so does the first character of what the
// runner of a CI would take for a command. The result cannot move a terminal's cursor and is valid in
// XML.
func Text(s string) string {
	plain := true
	for i, r := range s {
		if !shown(r) || r == utf8.RuneError || commands(s, i) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var out strings.Builder
	for whole, i := s, 0; len(s) > 0; {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case commands(whole, i):
			fmt.Fprintf(&out, `\x%02x`, r)
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&out, `\x%02x`, s[0])
		case shown(r):
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
		s, i = s[size:], i+size
	}
	return out.String()
}

// Lines applies [Text] to each line of a text, such as an error, and indents the lines after the
// first, so that none can pass for a line of memprof's own.
func Lines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, line := range lines {
		if lines[i] = Text(line); i > 0 {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// commands reports whether a command to the runner of a CI may begin at s[i]: GitHub's "::error::" at
// the start of a word, because wrapping may put any word at the start of a line, and the older
// "##[error]" and "##vso[" anywhere.
func commands(s string, i int) bool {
	switch rest := s[i:]; s[i] {
	case ':':
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		return strings.HasPrefix(rest, "::") && (i == 0 || unicode.IsSpace(before) || !shown(before))
	case '#':
		return strings.HasPrefix(rest, "##[") || strings.HasPrefix(rest, "##vso[")
	}
	return false
}

// shown reports whether a rune is printed as it is: it has a glyph or is the ASCII space. Marks that
// only steer the layout (Unicode class Cf) are not.
func shown(r rune) bool { return unicode.IsPrint(r) }

// Shorten applies [Text] and replaces the middle of the result by "…" if it is wider than width
// columns. Both ends stay because the root and the leaf of a module path distinguish it.
func Shorten(s string, width int) string {
	// Cut names of megabytes before any work is done on them.
	if limit := 16 * width; len(s) > 2*limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…" + strings.ToValidUTF8(s[len(s)-limit:], "")
	}
	s = Text(s)
	if Width(s) <= width {
		return s
	}
	runes := []rune(s)
	head, used := 0, 0
	for used+runeWidth(runes[head]) <= (width-1)/2 {
		used += runeWidth(runes[head])
		head++
	}
	tail := len(runes)
	for used+runeWidth(runes[tail-1]) <= width-1 {
		used += runeWidth(runes[tail-1])
		tail--
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}

// Width is how many columns of a terminal a text takes.
func Width(s string) int { return twwidth.Width(s) }

func runeWidth(r rune) int { return twwidth.Width(string(r)) }
