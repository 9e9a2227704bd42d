package page

import (
	"fmt"
	"strings"
)

// Data stands in a page as text, 7 bits in a character, lowest first: 8 bytes of text for 7 of data, where base64 takes
// 9.3. A character is its 7 bits, but for three that text in HTML cannot hold: a parser replaces NUL, makes a carriage
// return a line feed, and may take "<" for the end of the element. One of these and the 7 bits after it are one character,
// which has two bytes in UTF-8 and so costs nothing: joinedFrom + 128 * its place in apart + the 7 bits. The element says
// how many bytes the text stands for, and the data ends with a checksum: a page that a program has altered says so.
const (
	apart      = "\x00\r<"
	joinedFrom = 0x100
)

// dense is data as text for an element of a page; dense.js reads it.
func dense(data []byte) string {
	var text strings.Builder
	text.Grow(denseLen(len(data)))
	joined := -1 // place in apart of the 7 bits before
	add := func(bits byte) {
		if joined >= 0 {
			text.WriteRune(joinedFrom + rune(joined)<<7 + rune(bits))
			joined = -1
		} else if joined = strings.IndexByte(apart, bits); joined < 0 {
			text.WriteByte(bits)
		}
	}
	part, filled := uint(0), 0 // bits that no character has yet
	for _, b := range data {
		part |= uint(b) << filled
		for filled += 8; filled >= 7; filled -= 7 {
			add(byte(part & 127))
			part >>= 7
		}
	}
	if filled > 0 {
		add(byte(part))
	}
	if joined >= 0 {
		add(0)
	}
	return text.String()
}

// denseLen is at most how many bytes n bytes of data take as text.
func denseLen(n int) int { return (8*n+6)/7 + 1 }

// denseElement is an element of a page that holds data.
func denseElement(id string, data []byte) string {
	return fmt.Sprintf(`<script type="application/octet-stream" id="%s" data-bytes="%d">%s</script>`, id, len(data), dense(data))
}
