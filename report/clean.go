package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
)

// clean makes a string from the profiled job safe to show on one line: control characters, marks
// that join or reorder text, line separators and invalid UTF-8 become Go escapes. What is left
// cannot move a terminal's cursor, and is valid in XML.
func clean(s string) string {
	plain := true
	for _, r := range s {
		if !shown(r) || r == utf8.RuneError {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
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
		s = s[size:]
	}
	return out.String()
}

// shown says whether a rune stands for itself: it has a glyph or is the plain blank. Marks that only
// steer the layout (Unicode's class Cf) do not.
func shown(r rune) bool { return unicode.IsPrint(r) }

// shorten cleans s and takes the middle out of it where it is wider than width columns. Both ends
// are kept because a module path is told by its root and by its leaf.
func shorten(s string, width int) string {
	// A name of megabytes costs no more than one of a few times the width.
	if limit := 16 * width; len(s) > 2*limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…" + strings.ToValidUTF8(s[len(s)-limit:], "")
	}
	s = clean(s)
	if displayWidth(s) <= width {
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

func displayWidth(s string) int { return twwidth.Width(s) }

func runeWidth(r rune) int { return twwidth.Width(string(r)) }
