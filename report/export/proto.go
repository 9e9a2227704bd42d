package export

import "encoding/binary"

// message is an encoded protobuf message to which fields are appended.
type message []byte

// Wire types of protobuf.
const (
	wireVarint = 0
	wireBytes  = 2
)

func (m *message) tag(field, wire uint64) {
	*m = binary.AppendUvarint(*m, field<<3|wire)
}

// uint appends an integer, a bool or an enum; a negative int64 takes ten bytes.
func (m *message) uint(field, value uint64) {
	m.tag(field, wireVarint)
	*m = binary.AppendUvarint(*m, value)
}

// text appends a string, bytes or an encoded message.
func (m *message) text(field uint64, value string) {
	m.tag(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(value))), value...)
}

func (m *message) message(field uint64, value message) {
	m.tag(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(value))), value...)
}
