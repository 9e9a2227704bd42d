package pickle

import "encoding/binary"

// quickBytes are the most that an opcode of quick takes.
const quickBytes = 9

// quick runs the opcodes that most of a trace consists of, until one comes that is none of them, or
// that may fail or grow anything.
func (d *Decoder) quick() {
	at, stack, bottom := d.start, d.stack, len(d.stack)-d.height()
	for at+quickBytes <= len(d.buffer) && len(stack) < cap(stack) {
		b := d.buffer[at : at+quickBytes]
		v, n, kept := Value{Kind: KindInt}, 0, true
		switch b[0] {
		case 'h':
			v, kept = d.memo.get(uint64(b[1]))
			n = 2
		case 'j':
			v, kept = d.memo.get(uint64(binary.LittleEndian.Uint32(b[1:])))
			n = 5
		case 0x94:
			if len(stack) > bottom && d.memorize(stack[len(stack)-1]) {
				at++
				continue
			}
		case 'K':
			v.N, n = uint64(b[1]), 2
		case 'M':
			v.N, n = uint64(binary.LittleEndian.Uint16(b[1:])), 3
		case 'J':
			v.N, n = uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), 5
		case 0x8a:
			if width := int(b[1]); 0 < width && width <= quickBytes-2 {
				shift := 64 - 8*uint(width)
				word := uint64(binary.LittleEndian.Uint32(b[1:]))>>8 | uint64(binary.LittleEndian.Uint32(b[5:]))<<24
				v.N, n = uint64(int64(word<<shift)>>shift), 2+width
			}
		}
		if n == 0 || !kept {
			break
		}
		stack = append(stack, v)
		at += n
	}
	d.start, d.stack = at, stack
}

// memorize keeps a value under the next number, if that grows nothing.
func (d *Decoder) memorize(v Value) bool {
	word, ok := packed(v)
	if !ok || d.memo.full() || d.Budget < 8 {
		return false
	}
	d.Budget -= 8
	*d.memo.at(d.memo.count) = word
	d.memo.count++
	return true
}
