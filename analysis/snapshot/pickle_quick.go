package snapshot

import "encoding/binary"

// quickBytes are the most that an opcode of quick takes.
const quickBytes = 9

// quick runs the opcodes that most of a trace consists of, if they can neither fail nor grow
// anything, and says how many bytes that took; 0 if it did nothing.
func (d *decoder) quick(b []byte) int {
	_ = b[quickBytes-1]
	v, n := value{kind: kindInt}, 0
	switch b[0] {
	case 'h':
		return d.recall(uint64(b[1]), 2)
	case 'j':
		return d.recall(uint64(binary.LittleEndian.Uint32(b[1:])), 5)
	case 0x94:
		if d.memo.full() || d.budget < 8 || d.height() == 0 {
			return 0
		}
		word, ok := packed(d.stack[len(d.stack)-1])
		if !ok {
			return 0
		}
		d.budget -= 8
		*d.memo.at(d.memo.count) = word
		d.memo.count++
		return 1
	case 'K':
		v.n, n = uint64(b[1]), 2
	case 'M':
		v.n, n = uint64(binary.LittleEndian.Uint16(b[1:])), 3
	case 'J':
		v.n, n = uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), 5
	case 0x8a:
		if n = 2 + int(b[1]); b[1] == 0 || n > quickBytes {
			return 0
		}
		shift := 64 - 8*uint(b[1])
		word := uint64(binary.LittleEndian.Uint32(b[1:]))>>8 | uint64(binary.LittleEndian.Uint32(b[5:]))<<24
		v.n = uint64(int64(word<<shift) >> shift)
	default:
		return 0
	}
	if len(d.stack) == cap(d.stack) {
		return 0
	}
	d.stack = append(d.stack, v)
	return n
}

// recall pushes what is kept under a number.
func (d *decoder) recall(number uint64, bytes int) int {
	v, kept := d.memo.get(number)
	if !kept || len(d.stack) == cap(d.stack) {
		return 0
	}
	d.stack = append(d.stack, v)
	return bytes
}
