package page

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestDense: text for any data is UTF-8 without a character that HTML alters, at most 8 bytes for 7.
func TestDense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 13, 26, 30, 60, 128, 255}))).Draw(t, "data")
		text := dense(data)
		assert.Must(t, utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\r<"), "%q is not safe in HTML", text)
		assert.Must(t, len(text) <= denseLen(len(data)), "%d bytes of text for %d, want at most %d", len(text), len(data), denseLen(len(data)))
	})
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 7000)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	n := len(dense(data))
	assert.That(t, n <= 8001, "%d bytes of text for 7,000 random ones, want at most 8,001", n)
}

// densePage is a page with an element for each of data, whose script writes what it reads of them, in hexadecimal.
func densePage(t *testing.T, data [][]byte) []byte {
	t.Helper()
	code, err := content.ReadFile("html/dense.js")
	assert.NoError(t, err)
	var page bytes.Buffer
	page.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<title>data</title>\n<main></main>\n")
	for i, d := range data {
		page.WriteString(denseElement(fmt.Sprint("d", i), d) + "\n")
	}
	fmt.Fprintf(&page, `<script>%s
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const read = (e) => { try { return hex(readDense(e.textContent, Number(e.dataset.bytes))); } catch (error) { return error.message; } };
globalThis.found = Array.from(document.querySelectorAll('[data-bytes]'), read).join(' ');
document.querySelector('main').setAttribute('aria-busy', 'false');
</script>`, code)
	return page.Bytes()
}

// TestDenseInBrowser: a browser that parses a page reads the data that was written: of all 7 bits and pairs of those that
// have no character of their own, of all short lengths, and random data; also after a program has made each line feed a
// carriage return and one.
func TestDenseInBrowser(t *testing.T) {
	b := reporttest.NewBrowser(t)
	random := rand.New(rand.NewPCG(3, 4))
	var data [][]byte
	for n := range 40 {
		data = append(data, bytes.Repeat([]byte{0}, n), bytes.Repeat([]byte{0xff}, n), bytes.Repeat([]byte{0x0d}, n))
		d := make([]byte, 1+random.IntN(3000))
		for i := range d {
			d[i] = byte(random.Uint32())
		}
		data = append(data, d, d[:n%len(d)])
	}
	var all []byte // each of the 7 bits before each other
	part, filled := uint(0), 0
	for i := range 128 * 128 * 2 {
		seven := uint(i / 256)
		if i%2 == 1 {
			seven = uint(i / 2 % 128)
		}
		part |= seven << filled
		if filled += 7; filled >= 8 {
			all, part, filled = append(all, byte(part)), part>>8, filled-8
		}
	}
	data = append(data, all)
	var want []string
	for _, d := range data {
		want = append(want, hex.EncodeToString(d))
	}
	page := densePage(t, data)
	for name, page := range map[string][]byte{"as written": page, "with \\r\\n": bytes.ReplaceAll(page, []byte("\n"), []byte("\r\n"))} {
		b.Open(page)
		got, _ := b.Eval("found").(string)
		if got != strings.Join(want, " ") {
			for i, text := range strings.Split(got, " ") {
				if i < len(want) && text != want[i] {
					t.Fatalf("%s: element %d, of %d bytes, is read as %.200s, want %.200s", name, i, len(data[i]), text, want[i])
				}
			}
			t.Fatalf("%s: %d texts, want %d", name, strings.Count(got, " ")+1, len(want))
		}
	}
	// In another encoding each character beyond ASCII becomes two, and a cut text is too short.
	var latin []byte
	for _, c := range page {
		latin = utf8.AppendRune(latin, rune(c))
	}
	b.Open(latin)
	got, _ := b.Eval("found").(string)
	assert.That(t, strings.Contains(got, "the page was altered"), "of a page in another encoding %.200s is read", got)
}
