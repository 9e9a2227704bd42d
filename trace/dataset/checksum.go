package dataset

import (
	"github.com/memprof/memprof/trace"
)

// BlockEvents is how many events one checksum covers.
const BlockEvents = 4096

// checksumStart is the state before the first event of a process ("memprof\x01").
const checksumStart uint64 = 0x6d656d70726f6601

// Rolling is the running checksum of a process's events.
//
// The state starts at 0x6d656d70726f6601. Each event changes it by its columns in the order seq, time_ns, kind (its number), device, arena, stream, addr, requested,
// provided, context (FNV-1a-64 of its text), thread, each sign-extended to 64 bits. Each value v
// changes the state by
//
//	state = (state ^ v) * 0x9e3779b97f4a7c15   (mod 2^64)
//	state = state ^ (state >> 32)
//
// Both steps are bijections, so a change of one value always changes the state. The checksums of
// a process are the states after its events 4095, 8191, ... and after its last event. Each depends
// on all events before it.
type Rolling struct {
	state    uint64
	position int64 // events added since the start of the process
	blocks   []uint64
}

// NewRolling starts at the first event of a process.
func NewRolling() *Rolling { return &Rolling{state: checksumStart} }

// resumeRolling continues after the first `position` events of a process, with the state after them.
func resumeRolling(state uint64, position int64) *Rolling {
	return &Rolling{state: state, position: position}
}

func mix(state, v uint64) uint64 {
	state = (state ^ v) * 0x9e3779b97f4a7c15
	return state ^ state>>32
}

func textHash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func mixEvent(s uint64, e *trace.Event, text uint64) uint64 {
	s = mix(s, uint64(e.Seq))
	s = mix(s, uint64(e.Time))
	s = mix(s, uint64(e.Kind))
	s = mix(s, uint64(e.Device))
	s = mix(s, uint64(e.Arena))
	s = mix(s, uint64(e.Stream))
	s = mix(s, uint64(e.Addr))
	s = mix(s, uint64(e.Requested))
	s = mix(s, uint64(e.Provided))
	s = mix(s, text)
	return mix(s, uint64(e.Thread))
}

// Add takes one event and the text of its context. It returns true if the event was the last of its
// block; [Rolling.Sum] is then the checksum of the block.
func (r *Rolling) Add(e *trace.Event, text string) bool {
	return r.add(e, textHash(text))
}

func (r *Rolling) add(e *trace.Event, text uint64) bool {
	r.state = mixEvent(r.state, e, text)
	r.position++
	if r.position%BlockEvents != 0 {
		return false
	}
	r.blocks = append(r.blocks, r.state)
	return true
}

// AddBatch takes all events of a batch; s are the strings of its process.
func (r *Rolling) AddBatch(b *trace.Batch, s *Strings) {
	hashes := s.snapshot().hashes
	for i := range b.Seq {
		e := b.Event(i)
		r.add(&e, hashes[e.Context])
	}
}

// Sum is the state after the events so far.
func (r *Rolling) Sum() uint64 { return r.state }

// Position is the number of events since the start of the process.
func (r *Rolling) Position() int64 { return r.position }

// Checksums are those of the blocks completed since this Rolling was made.
func (r *Rolling) Checksums() []uint64 { return r.blocks }

// Finish is Checksums and, if the last block is incomplete, its checksum.
func (r *Rolling) Finish() []uint64 {
	if r.position%BlockEvents == 0 {
		return r.blocks
	}
	return append(r.blocks[:len(r.blocks):len(r.blocks)], r.state)
}
