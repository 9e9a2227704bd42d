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

// WriteJSON writes a value as an indented JSON document that ends with a line break. All JSON that
// memprof prints comes from WriteJSON or [JSON], so all of it is escaped alike: "<", ">" and "&" stay,
// invalid UTF-8 becomes U+FFFD, and what would steer a terminal or the runner of a CI becomes a JSON
// escape, which means the same to a parser.
func WriteJSON(w io.Writer, value any) error {
	text, err := encodeJSON(value, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// JSON returns a value as JSON on one line, without a line break, escaped as by [WriteJSON].
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

// cleanJSON escapes characters of a JSON document that are not printable or begin a command of a CI.
// Only strings can have such characters, so the escapes are always inside one.
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

// Known is nil, which is null in JSON, for a negative number: results hold -1 for what is not known.
func Known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// Finite is nil for NaN and infinities: JSON has no such numbers, and they are shares of nothing.
func Finite(share float64) *float64 {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return nil
	}
	return &share
}

// NotEmpty is nil for the empty string.
func NotEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
