package tracetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Number is a number in a struct of Thrift's compact protocol, in which Parquet encodes footers and page
// headers.
type Number struct {
	Path string // ids of fields and indices of elements on the way to it, "/4/0/3"
	at   int
	len  int
	list byte // the type of a list's elements, if it is the number of those
	size bool // it is a length of bytes or a number of elements, else an integer
}

// Numbers finds the numbers of the struct at the start of data, and how many bytes it has.
func Numbers(data []byte) (found []Number, size int, err error) {
	w := &thriftWalk{data: data}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("no Thrift struct: %v", p)
		}
	}()
	w.fields("")
	return w.found, w.at, nil
}

// With returns data with another value of the number.
func (n Number) With(data []byte, value int64) []byte {
	var with []byte
	switch {
	case n.list != 0:
		with = binary.AppendUvarint([]byte{0xf0 | n.list}, uint64(value))
	case n.size:
		with = binary.AppendUvarint(nil, uint64(value))
	default:
		with = binary.AppendVarint(nil, value)
	}
	return slices.Concat(data[:n.at], with, data[n.at+n.len:])
}

// Footer splits a part into the bytes before its footer and the footer; Sealed joins them.
func Footer(part []byte) (before, footer []byte, err error) {
	if len(part) < 12 {
		return nil, nil, errors.New("no Parquet file")
	}
	n := int(binary.LittleEndian.Uint32(part[len(part)-8:]))
	if n > len(part)-12 {
		return nil, nil, errors.New("no Parquet file")
	}
	return part[:len(part)-8-n], part[len(part)-8-n : len(part)-8], nil
}

// Sealed is the inverse of Footer.
func Sealed(before, footer []byte) []byte {
	tail := binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))
	return slices.Concat(before, footer, append(tail, "PAR1"...))
}

// PageHeaders returns the offsets of the page headers of a part; its pages are adjacent.
func PageHeaders(before []byte) (offsets []int, err error) {
	for at := 4; at < len(before); {
		numbers, size, err := Numbers(before[at:])
		if err != nil {
			return nil, err
		}
		offsets = append(offsets, at)
		body := slices.IndexFunc(numbers, func(n Number) bool { return n.Path == "/3" }) // compressed_page_size
		if body < 0 {
			return nil, fmt.Errorf("no page header at byte %d", at)
		}
		bytes, _ := binary.Varint(before[at+numbers[body].at:])
		if bytes < 0 || bytes > int64(len(before)) {
			return nil, fmt.Errorf("the page at byte %d has %d bytes", at, bytes)
		}
		at += size + int(bytes)
	}
	return offsets, nil
}

// thriftWalk reads Thrift data and panics at their end.
type thriftWalk struct {
	data  []byte
	at    int
	found []Number
}

func (w *thriftWalk) byte() byte {
	w.at++
	return w.data[w.at-1]
}

func (w *thriftWalk) number(path string, size bool) int {
	v, n := binary.Uvarint(w.data[w.at:])
	if n <= 0 {
		panic("a number is cut")
	}
	w.found = append(w.found, Number{Path: path, at: w.at, len: n, size: size})
	w.at += n
	return int(v)
}

func (w *thriftWalk) fields(path string) {
	for id := 0; ; {
		head := w.byte()
		if head&15 == 0 {
			return
		}
		if id += int(head >> 4); head>>4 == 0 {
			v, n := binary.Varint(w.data[w.at:])
			id, w.at = int(v), w.at+n
		}
		if typ := head & 15; typ > 2 { // a boolean is in its type
			w.value(fmt.Sprintf("%s/%d", path, id), typ)
		}
	}
}

func (w *thriftWalk) value(path string, typ byte) {
	switch typ {
	case 1, 2, 3:
		w.byte()
	case 4, 5, 6:
		w.number(path, false)
	case 7:
		w.at += 8
	case 8:
		w.at += w.number(path, true)
	case 9, 10:
		head := w.byte()
		n := int(head >> 4)
		at := w.at - 1
		if n == 15 {
			v, size := binary.Uvarint(w.data[w.at:])
			n, w.at = int(v), w.at+size
		}
		w.found = append(w.found, Number{Path: path, at: at, len: w.at - at, list: head & 15, size: true})
		for i := range n {
			w.value(fmt.Sprintf("%s/%d", path, i), head&15)
		}
	case 12:
		w.fields(path)
	default:
		panic(fmt.Sprintf("type %d", typ))
	}
}
