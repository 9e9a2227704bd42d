package plain

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// What a string may do to the terminal, the CI or the parser that reads it, and what becomes of it.
func TestWriteJSONHostile(t *testing.T) {
	for in, want := range map[string]string{
		"reserved.peak < 40GiB & more > less": `"reserved.peak < 40GiB & more > less"`,
		"层 é":                                 `"层 é"`,
		"\x00\x1b[31m\x7f\r\n\t":              `"\u0000\u001b[31m\u007f\r\n\t"`,
		"a\xffb\xc3":                          `"a\ufffdb\ufffd"`,
		"\u0085\u2028\u2029":                  `"\u0085\u2028\u2029"`,
		"\u202egnp.exe\u200b\ufeff":           `"\u202egnp.exe\u200b\ufeff"`,
		"\U000e0001":                          `"\udb40\udc01"`,
		"##[error]x ##vso[y]":                 `"\u0023#[error]x \u0023#vso[y]"`,
		`"\`:                                  `"\"\\"`,
		"</script><!--":                       `"</script><!--"`,
	} {
		var out bytes.Buffer
		assert.NoError(t, WriteJSON(&out, in))
		assert.That(t, out.String() == want+"\n", "%q is written as %q, want %q and a line break", in, out.String(), want)
		line, err := JSON(in)
		assert.That(t, err == nil && string(line) == want, "%q is %q on one line (%v), want %q", in, line, err, want)
	}
}

// Any text, as a value and as a key, is shown by a terminal as one line without effects, and a parser
// reads what was written.
func TestPropertyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		want := strings.ToValidUTF8(text, "\ufffd")
		line, err := JSON(map[string]string{text: text})
		assert.NoError(t, err)
		for _, r := range string(line) {
			assert.Must(t, unicode.IsPrint(r) || r == utf8.RuneError, "%q has %U", line, r)
		}
		var got map[string]string
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for key, value := range got {
			if len(strings.ReplaceAll(value, "\ufffd", "")) != len(strings.ReplaceAll(want, "\ufffd", "")) || key != value {
				t.Fatalf("%q was read as %q: %q", text, key, value)
			}
		}
	})
}

func TestWriteJSONIndents(t *testing.T) {
	var out bytes.Buffer
	assert.NoError(t, WriteJSON(&out, map[string]any{"b": []int{1}, "a": nil}))
	assert.Equal(t, out.String(), "{\n  \"a\": null,\n  \"b\": [\n    1\n  ]\n}\n")
	err := WriteJSON(&out, math.NaN())
	assert.That(t, err != nil, "NaN is written")
}
