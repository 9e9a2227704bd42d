package reporttest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Unpack reads the data of a page, with the numbers of columns in their places.
func Unpack(t testing.TB, page []byte) any { return unpack(t, page, "data") }

// UnpackEvents is Unpack for the exact events.
func UnpackEvents(t testing.TB, page []byte) any { return unpack(t, page, "events") }

func unpack(t testing.TB, page []byte, id string) any {
	t.Helper()
	text, count := Stored(t, page, id)
	compressed := fromDense(t, text)
	assert.Must(t, len(compressed) >= count, "%d bytes in the text of %q, want %d", len(compressed), id, count)
	return UnpackBytes(t, compressed[:count])
}

// Stored is the text of an element of a page that holds data, and how many bytes that stands for; "" if there is none.
func Stored(t testing.TB, page []byte, id string) (text string, count int) {
	t.Helper()
	found := regexp.MustCompile(`(?s)id="` + id + `" data-bytes="(\d+)">([^<]*)</script>`).FindSubmatch(page)
	if found == nil {
		return "", 0
	}
	count, err := strconv.Atoi(string(found[1]))
	assert.NoError(t, err)
	return string(found[2]), count
}

// fromDense are the bytes that a text of a page stands for, and up to two more.
func fromDense(t testing.TB, text string) []byte {
	t.Helper()
	var bits []byte
	for _, c := range text {
		sevens := []int{int(c)}
		if c >= 128 {
			sevens = []int{map[rune]int{2: 0, 3: '\r', 4: '<'}[c>>7], int(c & 127)}
		}
		for _, seven := range sevens {
			for k := range 7 {
				bits = append(bits, byte(seven>>k&1))
			}
		}
	}
	out := make([]byte, len(bits)/8)
	for i := range out {
		for k := range 8 {
			out[i] |= bits[8*i+k] << k
		}
	}
	return out
}

// UnpackBytes reads a pack that is not in a page.
func UnpackBytes(t testing.TB, compressed []byte) any {
	t.Helper()
	z, err := zlib.NewReader(bytes.NewReader(compressed))
	assert.NoError(t, err)
	data, err := io.ReadAll(z)
	assert.NoError(t, err)
	length := binary.LittleEndian.Uint32(data)
	var description any
	assert.NoError(t, json.Unmarshal(data[4:4+length], &description))
	return WithColumns(t, description, data[4+length:])
}

func WithColumns(t testing.TB, value any, columns []byte) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = WithColumns(t, value[i], columns)
		}
	case map[string]any:
		at, packed := value["$"].([]any)
		if !packed {
			for key := range value {
				value[key] = WithColumns(t, value[key], columns)
			}
			return value
		}
		column, form := columns[int(at[0].(float64)):], 0.0
		if len(at) > 2 {
			form = at[2].(float64)
		}
		if form > 1 {
			return bitsOf(column, int(at[1].(float64)), form == 3)
		}
		return varintsOf(t, column, int(at[1].(float64)), form == 1)
	}
	return value
}

// varintsOf decodes a column of varints: values if it is plain, else the differences of each from the one before.
func varintsOf(t testing.TB, column []byte, count int, plain bool) []int64 {
	t.Helper()
	numbers, last := []int64{}, int64(0)
	for range count {
		difference, n := binary.Varint(column)
		assert.Must(t, n > 0, "a column ends too early")
		if plain {
			last = 0
		}
		column, last = column[n:], last+difference
		numbers = append(numbers, last)
	}
	return numbers
}

// bitsOf decodes a column of the values' lengths in bits, and then of their bits without the highest.
func bitsOf(column []byte, count int, zigzag bool) []int64 {
	numbers := []int64{}
	bit := 8 * count
	for _, length := range column[:count] {
		value := uint64(0)
		if length > 0 {
			for i := range length - 1 {
				value |= uint64(column[bit/8]>>(bit%8)&1) << i
				bit++
			}
			value |= 1 << (length - 1)
		}
		if zigzag {
			value = value>>1 ^ -(value & 1)
		}
		numbers = append(numbers, int64(value))
	}
	return numbers
}
