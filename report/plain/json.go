package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// PlainText makes a string that may come from the profiled job, or from a file's name, safe to print
// on one line of a terminal: what steers a terminal or breaks the line becomes a Go escape.
func PlainText(s string) string { return Text(s) }

// MarkdownText is PlainText for a line or a table cell of GitHub-flavoured Markdown: nothing in it
// has a meaning there, nor in HTML.
func MarkdownText(s string) string { return Markdown(Text(s)) }

// PlainLines is PlainText for what may have several lines, as errors do: it keeps line breaks, and
// indents the lines after the first.
func PlainLines(s string) string { return Lines(s) }

// WriteJSON writes a value as a JSON document: indented, with a line break at its end. All JSON that
// memprof prints comes from here or from [JSONText], so that it is escaped alike: "<", ">" and "&"
// stay, invalid UTF-8 becomes U+FFFD, and what steers a terminal or the runner of a CI becomes an
// escape of JSON's, which means the same.
func WriteJSON(w io.Writer, value any) error {
	text, err := encodeJSON(value, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// JSONText is a value as JSON on one line, without a line break, escaped as [WriteJSON] does.
func JSON(value any) ([]byte, error) { return encodeJSON(value, "") }

func encodeJSON(value any, indent string) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return cleanJSON(bytes.TrimSuffix(out.Bytes(), []byte("\n"))), nil
}

// cleanJSON escapes what only strings can have in a JSON document.
func cleanJSON(text []byte) []byte {
	var out []byte // nil while all is plain
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		plain := r < 0x7f || r >= utf8.RuneSelf && shown(r)
		if r == '#' && bytes.HasPrefix(text[i:], []byte("##")) {
			plain = false
		}
		if !plain && out == nil {
			out = append(make([]byte, 0, len(text)+64), text[:i]...)
		}
		switch {
		case plain && out != nil:
			out = append(out, text[i:i+size]...)
		case !plain && r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		case !plain:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
	}
	if out == nil {
		return text
	}
	return out
}

// Known is a number of which -1 says that it does not exist.
func Known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// Finite is a share that JSON can hold; NaN and infinities, shares of nothing, are null.
func Finite(share float64) *float64 {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return nil
	}
	return &share
}

// Reason is nil where there is none.
func Reason(why string) *string {
	if why == "" {
		return nil
	}
	return &why
}

// NameOrNull is a name, or null for none.
func NameOrNull(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}
