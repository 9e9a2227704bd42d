package reporttest

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"regexp"
	"testing"
)

// Unpack reads the data of a page, with the numbers of columns in their places.
func Unpack(t testing.TB, page []byte) any { return unpack(t, page, "data") }

// UnpackEvents is Unpack for the exact events.
func UnpackEvents(t testing.TB, page []byte) any { return unpack(t, page, "events") }

func unpack(t testing.TB, page []byte, id string) any {
	t.Helper()
	found := regexp.MustCompile(`(?s)id="` + id + `">([^<]*)</script>`).FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no data")
	}
	compressed, err := base64.StdEncoding.DecodeString(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return UnpackBytes(t, compressed)
}

// UnpackBytes reads a pack that is not in a page.
func UnpackBytes(t testing.TB, compressed []byte) any {
	t.Helper()
	z, err := zlib.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint32(data)
	var description any
	if err := json.Unmarshal(data[4:4+length], &description); err != nil {
		t.Fatal(err)
	}
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
		if n <= 0 {
			t.Fatal("a column ends too early")
		}
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
