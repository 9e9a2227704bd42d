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

// Allocation is one that a page has at some of its exact events, by position.
type Allocation struct {
	From, To               int64
	Addr, Bytes, Requested int64
}

// Allocations decodes the live allocations of a device's exact events, as the page's script does. Bases are those of
// the arenas.
func Allocations(device map[string]any, positions int, bases []int64) (all []Allocation) {
	column := func(name string) []int64 { return device[name].([]int64) }
	last := make([]int64, len(column("arena")))
	sorts := 0
	for i, sort := range column("sort") {
		at := int(sort) - 1
		if sort == 0 {
			at = sorts
			sorts++
		}
		last[at] += column("addr")[i]
		requested := column("requested")[at]
		a := Allocation{
			From: column("from")[i], To: int64(positions), Addr: bases[column("arena")[at]] + last[at]*int64(device["unit"].(float64)),
			Bytes: (requested+255)&^255 + column("extra")[at], Requested: requested,
		}
		if n := column("events")[i]; n > 0 {
			a.To = a.From + n
		}
		if column("kind")[at] == 3 {
			all = append(all, a)
		}
	}
	return all
}
