// Package accounting compares what the events of a process explain of a device's used memory with
// readings of it: memprof's arenas, other libraries, driver overhead, driver pools, and the unexplained
// rest.
//
// A [Tracker] follows, in the one pass, the device memory that a process has outside of its arenas. After the
// pass, [Reconcile] compares it with the readings of the run. The package knows the ledger's devices; it knows
// no results but its own.
//
// # How a reading meets the events
//
// The pass knows nothing of readings. It keeps the memory of the process at its peak and its end, and the span in which that did
// not change; a reading within the span counts. Only where several processes share a card that is read as a whole are times chosen
// beforehand, at which each process's memory is kept.
//
// # What counts as measured
//
// Every term is measured by itself: a number from 0 to used, or unknown with a reason. The growth of the whole card's use is no
// measurement, since another process may have changed it, but on the simulated card, or where the readings show that the process
// was alone from before until after. With a reading of the whole card, other processes, unknown driver overhead and unexplained
// bytes are one number, the rest. Used is unknown where no reading was taken before the process's memory changed again;
// unexplained is unknown where the terms exceed used.
package accounting

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// LibraryUse is the device memory that one library allocated through the CUDA API.
type LibraryUse struct {
	Name  string `json:"library"` // file name, "libnccl.so.2"; "" if unknown
	Bytes int64  `json:"bytes"`
}

// OtherMemory is the memory of a process on a device outside of the allocator's arenas, by its own events, in
// bytes.
type OtherMemory struct {
	Libraries []LibraryUse // with live device memory, greatest first

	// DriverOverhead is growth of the used memory of the process, or of a card that no other process uses. Those
	// in Unknown are 0.
	DriverOverhead
	// ContextOfDevice says that a context was measured as growth of the whole card's used memory.
	ContextOfDevice bool
	// ContextIsAll says that the whole used memory of the card was taken for a context.
	ContextIsAll bool
	ContextSince int64 // when Context last changed; 0 if never

	// Pools is the idle memory of the driver's pools: reserved there, and not allocated by Libraries.
	Pools int64

	// Unknown are the unknown parts of the above; UnknownWhy says why. [Reconcile] sets both. Before that,
	// what was measured as growth of the whole card is in OnCard and in no part.
	Unknown    OverheadParts
	UnknownWhy string
	OnCard     CardGrowth

	// Managed and HostPinned are in no sum: managed memory moves between device and host, pinned memory is
	// on the host.
	Managed, HostPinned int64
}

// Other returns the sum of Libraries.
func (b *OtherMemory) Other() (bytes int64) {
	for _, l := range b.Libraries {
		bytes += l.Bytes
	}
	return bytes
}

func (b *OtherMemory) sum() int64 { return b.Other() + b.Overhead() + b.Pools }

// Holding is all memory of a process on a device at one instant.
type Holding struct {
	At    ledger.Instant // Time is the instant
	Since int64          // last change of R or OtherMemory before; the process's start if none
	Until int64          // next change, -1 if none
	OtherMemory
}

// Sum returns the part of the device's used memory that the events explain, in bytes.
func (h *Holding) Sum() int64 {
	return h.At.R + h.OtherMemory.sum()
}

// Holdings are the memory of a process on a device at all instants that the device accounting needs.
type Holdings struct {
	Peak, Final Holding
	// Moments are at the times of Options.Moments, those within the recorded life of the process.
	Moments []Holding
	// Read are the process's own readings of the device's used memory around the peak and the end, all
	// processes included. ReadPeak is the greatest of all. They are nil and 0 if it took none.
	Read     Course
	ReadPeak int64
}

// place says where memory lies that was not served from an arena.
type place uint8

const (
	onDevice place = iota
	isManaged
	onHost
)

// otherBlock is a block that was not served from an arena.
type otherBlock struct {
	device *Device
	bytes  int64
	origin *origin
}

// origin is where memory of another library comes from, by the context of its external_alloc: the library, and the
// kind of memory.
type origin struct {
	library string
	kind    place
}

func parseOrigin(fields trace.Context) *origin {
	t := &origin{library: fields.Get("library")}
	switch {
	case fields.Is("managed"):
		t.kind = isManaged
	case fields.Is("host"):
		t.kind = onHost
	}
	return t
}

func sortLibraries(libraries []LibraryUse) {
	slices.SortStableFunc(libraries, func(a, b LibraryUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
}

// mostLibraries bounds how many libraries are listed; furtherLibraries stands for all others.
const (
	mostLibraries    = 64
	furtherLibraries = "(further libraries)"
)

// add adds bytes, negative for a free, to the memory of an origin.
func (b *OtherMemory) add(t *origin, bytes int64) {
	switch t.kind {
	case onHost:
		b.HostPinned += bytes
		return
	case isManaged:
		b.Managed += bytes
		return
	}
	for i := range b.Libraries {
		if b.Libraries[i].Name == t.library {
			b.Libraries[i].Bytes += bytes
			return
		}
	}
	if len(b.Libraries) >= mostLibraries-1 && t.library != furtherLibraries {
		b.add(&origin{library: furtherLibraries}, bytes)
		return
	}
	b.Libraries = append(b.Libraries, LibraryUse{t.library, bytes})
}
