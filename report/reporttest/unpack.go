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
		numbers := []int64{}
		rest, last := columns[int(at[0].(float64)):], int64(0)
		for range int(at[1].(float64)) {
			difference, n := binary.Varint(rest)
			if n <= 0 {
				t.Fatal("a column ends too early")
			}
			if len(at) > 2 { // a plain column
				last = 0
			}
			rest, last = rest[n:], last+difference
			numbers = append(numbers, last)
		}
		return numbers
	}
	return value
}
