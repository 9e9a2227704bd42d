package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
)

// clean makes a string from a recording, or any other input, safe to show on one line: control
// characters, marks that join or reorder text, line separators and invalid UTF-8 become Go escapes,
// and so does the first character of what the runner of a CI would take for a command. What is left
// cannot move a terminal's cursor, and is valid in XML.
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

// cleanLines is clean of each line of a text that may have several, with those after the first
// indented: none can pass for one of memprof's own.
func Lines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, line := range lines {
		if lines[i] = Text(line); i > 0 {
			lines[i] = "  " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// commands says whether a command to the runner of a CI may begin at s[i]: "::error::" of GitHub's
// at the start of a line, which is where any word may come to stand, and the older "##[error]" and
// "##vso[" anywhere.
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

// shown says whether a rune stands for itself: it has a glyph or is the plain blank. Marks that only
// steer the layout (Unicode's class Cf) do not.
func shown(r rune) bool { return unicode.IsPrint(r) }

// Shorten cleans s and takes the middle out of it where it is wider than width columns. Both ends
// are kept because a module path is told by its root and by its leaf.
func Shorten(s string, width int) string {
	// A name of megabytes costs no more than one of a few times the width.
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

func Width(s string) int { return twwidth.Width(s) }

func runeWidth(r rune) int { return twwidth.Width(string(r)) }
