package plain

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ShellQuote writes a word so that a shell takes it as it is: where [Text] would change it, as $'...', which bash, zsh and
// ksh read. The result can be shown and copied.
func ShellQuote(word string) string {
	bare := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+:@%,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !bare(r) }) < 0 && Text(word) == word {
		return word
	}
	if quoted := "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"; Text(quoted) == quoted {
		return quoted
	}
	var out strings.Builder
	for len(word) > 0 {
		r, n := utf8.DecodeRuneInString(word)
		switch part := word[:n]; {
		case r == '\\' || r == '\'':
			out.WriteString(`\` + part)
		case bare(r) && r != ':' || r == ' ' || r > utf8.RuneSelf && n > 1 && Text(part) == part:
			out.WriteString(part)
		default:
			for i := range n {
				fmt.Fprintf(&out, `\x%02x`, part[i])
			}
		}
		word = word[n:]
	}
	return "$'" + out.String() + "'"
}
