package hooks

import (
	"debug/elf"
	"errors"
	"io/fs"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Each program below a recorded job loads the library. What that costs is mostly the lookup of
// symbols and the mapping of segments: with 233 lookups and four segments it was 0.13 ms, with
// these numbers it is 0.08 ms.
func TestLibraryLoadsQuickly(t *testing.T) {
	file, err := elf.Open("dist/libmemprof.so")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("not built")
	}
	assert.NoError(t, err)
	defer file.Close()
	segments := 0
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD {
			segments++
		}
	}
	assert.That(t, segments <= 2, "%d segments, want 2", segments)
	relocations, err := file.Section(".rela.dyn").Data()
	assert.NoError(t, err)
	lookups := 0
	for ; len(relocations) >= 24; relocations = relocations[24:] { // Elf64_Rela
		if file.ByteOrder.Uint64(relocations[8:])>>32 != 0 { // the symbol
			lookups++
		}
	}
	assert.That(t, lookups <= 12, "%d symbols are looked up when it is loaded, want at most 12", lookups)
	if flags, err := file.DynValue(elf.DT_FLAGS); err != nil || len(flags) > 0 && flags[0]&uint64(elf.DF_BIND_NOW) != 0 {
		t.Errorf("flags %v, %v: all functions are looked up when it is loaded", flags, err)
	}
}
