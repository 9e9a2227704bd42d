package spool

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/memprof/memprof/trace"
)

// SegmentRecords is the number of records, and so of slots, of a segment.
const SegmentRecords = 65536

// SegmentBytes is the size of a segment.
const SegmentBytes = SegmentRecords * recordBytes

// The spool format of hooks/capture/spool/record.h.
const (
	version        = 1
	recordBytes    = 64
	processBytes   = 1880 // sizeof(struct memprof_process)
	committed      = 0x4d500000
	commitMask     = 0xffff0000
	kindString     = 255
	noArena        = 0xffffffff
	noDevice       = 0xffff
	maxStringBytes = 4096
	pieceBytes     = 48

	stateClosed  = 1
	stateStopped = 2
)

var magic = [8]byte{'M', 'E', 'M', 'P', 'R', 'O', 'F', 'P'}

// Header has the fields of struct memprof_process that readers need.
type Header struct {
	PID                  uint32
	Claimed              uint64
	State                uint32
	StopErrno            uint32
	StopSlot             uint64
	Rank, LocalRank      int32
	WorldSize            int32
	LocalWorldSize       int32  // 0 or -1 if unknown
	Libraries            uint32 // set of enum memprof_library
	StopReason           string
	Command, Frameworks  string
	recordSize, segments uint32
	version              uint32
}

// Closed says whether the process exited normally.
func (h *Header) Closed() bool { return h.State == stateClosed }

// Stopped says whether the hook stopped recording.
func (h *Header) Stopped() bool { return h.State == stateStopped }

// LibraryNames are the libraries that the process loaded, of those for which record sets environment variables.
func (h *Header) LibraryNames() []string {
	var names []string
	for i, name := range []string{"NCCL", "XLA"} {
		if h.Libraries&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// parseProcess returns ok = false while the hook has not written the magic bytes.
func parseProcess(b []byte) (h Header, ok bool) {
	if len(b) < processBytes || !bytes.Equal(b[:8], magic[:]) {
		return h, false
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	text := func(b []byte) string {
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return trace.ValidText(string(b))
	}
	return Header{
		version: u32(b[8:]), PID: u32(b[12:]),
		recordSize: u32(b[32:]), segments: u32(b[36:]),
		Claimed: u64(b[40:]), State: u32(b[48:]), StopErrno: u32(b[52:]), StopSlot: u64(b[56:]),
		Rank: int32(u32(b[64:])), LocalRank: int32(u32(b[68:])), WorldSize: int32(u32(b[72:])), LocalWorldSize: int32(u32(b[76:])),
		StopReason: text(b[80:336]), Command: text(b[336:1360]), Frameworks: text(b[1360:1872]),
		Libraries: u32(b[1872:]),
	}, true
}

func (h *Header) check(path string) error {
	if h.version > version {
		return &trace.PathError{Path: path, Err: trace.ErrNewerSchema,
			Detail: fmt.Sprintf("spool version %d, this memprof knows up to %d", h.version, version),
			Remedy: "use the memprof that recorded it, or a newer version"}
	}
	if h.version == 0 || h.recordSize != recordBytes || h.segments != SegmentRecords {
		return &trace.PathError{Path: path, Err: trace.ErrDamaged,
			Detail: fmt.Sprintf("version %d, records of %d bytes, segments of %d records", h.version, h.recordSize, h.segments),
			Remedy: "this process cannot be recovered; delete its directory, then recover the others"}
	}
	return nil
}

// decodeRecord decodes a record. Time is that of the hook's clock, Context the number of a string in the spool.
func decodeRecord(rec []byte, kind trace.Kind) trace.Event {
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	e := trace.Event{
		Kind: kind, Time: int64(u64(rec[8:])), Addr: int64(u64(rec[16:])),
		Requested: int64(u64(rec[24:])), Provided: int64(u64(rec[32:])), Stream: int64(u64(rec[40:])),
		Arena: int32(u32(rec[48:])), Context: int32(u32(rec[52:])), Thread: int32(u32(rec[56:])),
		Device: int32(binary.LittleEndian.Uint16(rec[4:])),
	}
	if u32(rec[48:]) == noArena {
		e.Arena = trace.NoArena
	}
	if e.Device == noDevice {
		e.Device = trace.NoDevice
	}
	return e
}

// committedPrefix is the number of records before the first one that is not committed.
func committedPrefix(block []byte) int {
	n := len(block) / recordBytes
	for i := range n {
		commit := binary.LittleEndian.Uint32(block[i*recordBytes:])
		number := commit &^ commitMask
		if commit&commitMask != committed || (number != kindString && (number > 255 || !trace.Kind(number).Valid())) {
			return i
		}
	}
	return n
}
