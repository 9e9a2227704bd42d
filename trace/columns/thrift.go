package columns

import "encoding/binary"

// The field types of Thrift's compact protocol.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

var errThrift = damaged("its metadata is cut or malformed")

// thriftDepth is how deep structs and lists may nest; Parquet needs 8.
const thriftDepth = 24

// thriftReader reads bytes in Thrift's compact protocol. Whatever the bytes are, it reads none beyond
// their end, allocates nothing, and terminates, because each step consumes at least one byte.
// After the first error every read returns zero, and structs and lists are at their end.
type thriftReader struct {
	data  []byte // not read yet
	depth int
	err   error
}

func (r *thriftReader) fail() {
	r.err = errThrift
	r.data = nil
}

func (r *thriftReader) byte() byte {
	if len(r.data) == 0 {
		r.fail()
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.data = r.data[n:]
	return v
}

// integer reads an i16, i32 or i64.
func (r *thriftReader) integer() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *thriftReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.data)) {
		r.fail()
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

// fields calls visit with each field of a struct. visit either reads the value, which has the type `typ`,
// and returns true, or returns false to have it skipped.
func (r *thriftReader) fields(visit func(id int16, typ byte) bool) {
	if r.depth++; r.depth > thriftDepth {
		r.fail()
	}
	id := int16(0)
	for r.err == nil {
		head := r.byte()
		typ := head & 0x0f
		if typ == thriftStop {
			break
		}
		if delta := int16(head >> 4); delta != 0 {
			id += delta
		} else {
			id = int16(r.integer())
		}
		if r.err == nil && !visit(id, typ) {
			r.skip(typ)
		}
	}
	r.depth--
}

// list reads the head of a list or set: the number of its elements, at most that of the bytes that
// follow, and their type.
func (r *thriftReader) list() (n int, typ byte) {
	head := r.byte()
	count := uint64(head >> 4)
	if count == 15 {
		count = r.uvarint()
	}
	if count > uint64(len(r.data)) {
		r.fail()
		return 0, thriftStop
	}
	return int(count), head & 0x0f
}

// each calls visit for each element of a list of structs. A list of another type is malformed.
func (r *thriftReader) each(visit func(i int)) (n int) {
	n, typ := r.list()
	if typ != thriftStruct && n > 0 {
		r.fail()
	}
	for i := 0; i < n && r.err == nil; i++ {
		visit(i)
	}
	return n
}

// skip passes over a value. A boolean field has no bytes besides its type.
func (r *thriftReader) skip(typ byte) {
	if r.depth++; r.depth > thriftDepth {
		r.fail()
	}
	switch typ {
	case thriftTrue, thriftFalse:
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uvarint()
	case thriftDouble:
		r.pass(8)
	case thriftUUID:
		r.pass(16)
	case thriftBinary:
		r.bytes()
	case thriftList, thriftSet:
		n, of := r.list()
		for i := 0; i < n && r.err == nil; i++ {
			r.skipElement(of)
		}
	case thriftMap:
		r.skipMap()
	case thriftStruct:
		r.fields(func(int16, byte) bool { return false })
	default:
		r.fail()
	}
	r.depth--
}

// skipElement skips a value in a list or map, where a boolean has a byte.
func (r *thriftReader) skipElement(typ byte) {
	if typ == thriftTrue || typ == thriftFalse {
		typ = thriftByte
	}
	r.skip(typ)
}

func (r *thriftReader) skipMap() {
	n := r.uvarint()
	if n == 0 {
		return
	}
	if n > uint64(len(r.data)) {
		r.fail()
		return
	}
	types := r.byte()
	for i := uint64(0); i < n && r.err == nil; i++ {
		r.skipElement(types >> 4)
		r.skipElement(types & 0x0f)
	}
}

func (r *thriftReader) pass(n int) {
	if n > len(r.data) {
		r.fail()
		return
	}
	r.data = r.data[n:]
}
