package export

import (
	"bufio"
	"encoding/binary"
	"math"
	"strings"
)

// The opcodes of pickle's protocol 2 that pickler writes. The viewer of torch's snapshots knows these and few
// others.
const (
	opProto     = 0x80 // then the version
	opStop      = '.'
	opMark      = '('
	opTrue      = 0x88
	opFalse     = 0x89
	opInt1      = 'K'  // then an unsigned byte
	opInt2      = 'M'  // then 2 bytes, unsigned
	opInt4      = 'J'  // then 4 bytes, signed
	opLong      = 0x8a // then a count of bytes and so many, two's complement
	opText      = 'X'  // then 4 bytes of length and UTF-8
	opEmptyList = ']'
	opAppends   = 'e' // append the values above the mark to the list below it
	opEmptyDict = '}'
	opSetItems  = 'u' // add the pairs above the mark to the dict below it
	opTuple2    = 0x86
	opPut1      = 'q' // keep the top of the stack as number (1 byte)
	opPut4      = 'r' // the same, 4 bytes
	opGet1      = 'h' // push the value kept as number (1 byte)
	opGet4      = 'j' // the same, 4 bytes
)

// pickler writes values in sequence. All integers are little-endian.
type pickler struct {
	out  *bufio.Writer
	memo map[string]uint32 // texts written before
	kept uint32            // values kept so far; the next number
}

func newPickler(out *bufio.Writer) *pickler {
	p := &pickler{out: out, memo: map[string]uint32{}}
	p.ops(opProto, 2)
	return p
}

func (p *pickler) ops(codes ...byte) { p.out.Write(codes) }

func (p *pickler) integer(n int64) {
	var b [10]byte
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.ops(opInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.ops(opInt2, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		b[0] = opInt4
		binary.LittleEndian.PutUint32(b[1:], uint32(n))
		p.out.Write(b[:5])
	default:
		b[0], b[1] = opLong, 8
		binary.LittleEndian.PutUint64(b[2:], uint64(n))
		p.out.Write(b[:])
	}
}

func (p *pickler) boolean(b bool) {
	if b {
		p.ops(opTrue)
		return
	}
	p.ops(opFalse)
}

// text writes a string, or a reference to it if it was written before.
func (p *pickler) text(s string) {
	if n, known := p.memo[s]; known {
		p.get(n)
		return
	}
	valid := strings.ToValidUTF8(s, "\uFFFD")
	var b [5]byte
	b[0] = opText
	binary.LittleEndian.PutUint32(b[1:], uint32(len(valid)))
	p.out.Write(b[:])
	p.out.WriteString(valid)
	p.memo[s] = p.put()
}

// put keeps the value written last and returns its number.
func (p *pickler) put() uint32 {
	n := p.kept
	p.kept++
	if n <= math.MaxUint8 {
		p.ops(opPut1, byte(n))
		return n
	}
	p.numbered(opPut4, n)
	return n
}

// get writes a reference to a kept value. In Python both are the same object.
func (p *pickler) get(n uint32) {
	if n <= math.MaxUint8 {
		p.ops(opGet1, byte(n))
		return
	}
	p.numbered(opGet4, n)
}

func (p *pickler) numbered(op byte, n uint32) {
	var b [5]byte
	b[0] = op
	binary.LittleEndian.PutUint32(b[1:], n)
	p.out.Write(b[:])
}

// dict writes a dict. fields must write its keys and values alternately.
func (p *pickler) dict(fields func()) {
	p.ops(opEmptyDict, opMark)
	fields()
	p.ops(opSetItems)
}

// list begins a list. Call item before each item, and end after the last. Items are appended in batches, so that
// a reader's stack stays small.
func (p *pickler) list() (item, end func()) {
	const batch = 1000
	open, n := false, 0
	p.ops(opEmptyList)
	end = func() {
		if open {
			p.ops(opAppends)
			open, n = false, 0
		}
	}
	item = func() {
		if n == batch {
			end()
		}
		if !open {
			p.ops(opMark)
			open = true
		}
		n++
	}
	return item, end
}

func (p *pickler) field(name string, value int64) {
	p.text(name)
	p.integer(value)
}

func (p *pickler) textField(name, value string) {
	p.text(name)
	p.text(value)
}
