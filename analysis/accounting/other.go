// Package accounting compares what the events of a process explain of a device's used memory with
// readings of it: memprof's arenas, other libraries, driver overhead, driver pools, and the unexplained
// rest.
//
// A [Tracker] follows, in the one pass, what the process has beside its arenas. After the pass,
// [CloseBooks] compares it with the readings of the run. The package knows the ledger's devices; it knows
// no results but its own.
package accounting

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// LibraryUse is the device memory that a library has taken through the CUDA API.
type LibraryUse struct {
	Name  string // file name, "libnccl.so.2"; "" where it was not found out
	Bytes int64
}

// OtherMemory is what a process has on a device beside the allocator's arenas, as its own
// events tell. Bytes.
type OtherMemory struct {
	Libraries []LibraryUse // with live device memory, greatest first

	// Context, Modules, Loads and Graphs are driver overhead: by how much the use of the
	// process, or of a card that it has to itself, grew while a context was made, kernels
	// were loaded, libraries were initialised and graphs were made. Those in Unknown are 0.
	Context, Modules, Loads, Graphs int64
	// ContextOfDevice says that a context was measured by the whole card's use.
	ContextOfDevice bool
	// ContextIsAll says that all that the card had in use stood for a context.
	ContextIsAll bool
	ContextSince int64 // when Context last changed; 0 if never

	// Pools are what the driver's memory pools keep beyond what Libraries have of them.
	Pools int64

	// Unknown are the parts of the above of which no number can be given, and UnknownWhy
	// says why. [CloseBooks] decides it: before, what the use of the whole card showed is in
	// OnCard and in no part.
	Unknown    OverheadParts
	UnknownWhy string
	OnCard     CardGrowth

	// Managed and HostPinned are in no sum: managed memory lies where it was last used,
	// pinned memory on the host.
	Managed, HostPinned int64
}

// Other is what all libraries have.
func (b *OtherMemory) Other() (bytes int64) {
	for _, l := range b.Libraries {
		bytes += l.Bytes
	}
	return bytes
}

// Overhead is the driver overhead that is known.
func (b *OtherMemory) Overhead() int64 { return b.Context + b.Modules + b.Loads + b.Graphs }

func (b *OtherMemory) sum() int64 { return b.Other() + b.Overhead() + b.Pools }

// Holding is all that a process has on a device at one instant.
type Holding struct {
	At    ledger.Instant // Time is the instant
	Since int64          // when R, or what is beside the arenas, last changed before; the process's start if never
	Until int64          // when it changed next, -1 for never
	OtherMemory
}

// Sum is what the events explain of the device's used memory.
func (h *Holding) Sum() int64 {
	return h.At.R + h.OtherMemory.sum()
}

// Holdings are those of a device that its books are made of.
type Holdings struct {
	Peak, Final Holding
	// Moments are at the times of Options.Moments, those within the recorded life of the process.
	Moments []Holding
	// Read is what the process itself read of the device's use by all, around the peak and the
	// end, and ReadPeak the greatest of all it read; nil and 0 where it was not told to.
	Read     Course
	ReadPeak int64
}

// place tells where memory lies that was not served from an arena.
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
	owner  *owner
}

// owner is the context of an external_alloc, parsed.
type owner struct {
	library string
	kind    place
}

func parseOwner(fields trace.Context) *owner {
	t := &owner{library: fields.Get("library")}
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

// add changes what one owner has.
func (b *OtherMemory) add(t *owner, bytes int64) {
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
		b.add(&owner{library: furtherLibraries}, bytes)
		return
	}
	b.Libraries = append(b.Libraries, LibraryUse{t.library, bytes})
}
