package twin_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var (
	twinOps  = flag.Int("twin.ops", 300_000, "operations of the twin comparison; above a million without sanitizers")
	twinSeed = flag.Uint64("twin.seed", 0, "seed of the twin comparison; 0 for a new one")
)

// Operations and records of ../capture/test/bfc/twin.c.
const (
	opEnd = iota
	opAlloc
	opFree
	opFreeAddress
	opUnmap
	opHeld
	opContaining
	opStats
	opWalk
	opRestore
	opIteration
	opTrim
	opUnmapFree
	opShortage
	opShrink
	opRegister
	opDeregister
	opMovable
	opWant
	opOver
)

const (
	didAlloc = 100 + iota
	didFree
	didUnmap
	didContaining
	didStats
	didChunk
	didRestore
	didTrim
	didShrink
	didMovable
	didWant
	didClear
)

const (
	memoryGrow = 200 + iota
	_
	memoryMap
	memoryUnmap
	memoryFree
	memoryTryUnmap
)

// record is one line of what a twin did: its kind and five values.
type record [6]uint64

// TestTwins drives the allocator in C and the one in Go with the same operations, and
// compares every placement, every call of the memory, and the statistics.
func TestTwins(t *testing.T) {
	program := buildTwin(t, *twinOps <= 1_000_000)
	seed := *twinSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	command := exec.Command(program)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	stdin, err := command.StdinPipe()
	assert.NoError(t, err)
	stdout, err := command.StdoutPipe()
	assert.NoError(t, err)
	assert.NoError(t, command.Start())
	expected := make(chan []record, 16)
	done := make(chan struct{}) // closed when nothing more is compared
	var tally map[string]int
	go func() {
		defer close(expected)
		defer stdin.Close()
		d := newDriver(seed, bufio.NewWriterSize(stdin, 1<<20), expected, done)
		d.run(*twinOps)
		tally = d.tally
	}()
	compared, err := compare(bufio.NewReaderSize(stdout, 1<<20), expected)
	close(done)
	stdin.Close()
	io.Copy(io.Discard, stdout)
	if wait := command.Wait(); err == nil && wait != nil {
		err = wait
	}
	assert.Must(t, err == nil, "-twin.seed=%d -twin.ops=%d: after %d records: %v\n%s", seed, *twinOps, compared, err, complaints.String())
	t.Logf("seed %d: %d operations, %d records agree: %v", seed, *twinOps, compared, tally)
	for _, what := range []string{"alloc 0", "alloc 1", "free 0", "free 1", "unmap 0", "unmap 1", "restore 0", "restore 1", "containing 0", "containing 1",
		"memory grow 0", "memory grow 1", "memory map 0", "memory map 1", "memory try unmap 0", "memory try unmap 1", "trim", "memory unmap", "memory free", "chunk", "shrink 0", "shrink 1", "movable", "want"} {
		assert.That(t, tally[what] != 0 || *twinOps < 300_000,
			"-twin.seed=%d -twin.ops=%d: no %s among the operations: nothing was compared of it", seed, *twinOps, what)
	}
}

// built has the twins in C that were built, which TestMain removes.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "memprof-twin-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// buildTwin builds the twin in C once for all tests.
func buildTwin(t *testing.T, sanitized bool) string {
	t.Helper()
	program := filepath.Join(built, fmt.Sprintf("twin-%v", sanitized))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	sources, err := filepath.Glob("../capture/bfc/*.c")
	assert.Must(t, err == nil && len(sources) != 0, "no *.c in ../capture/bfc: %v", err)
	args := []string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O2", "-o", program, "-I../capture", "../capture/test/bfc/twin.c"}
	if sanitized && os.Getenv("MEMPROF_EMULATED") == "" { // qemu has no ptrace, with which leaks are found
		args = append(args, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	}
	compiler := cmp.Or(os.Getenv("CC"), "cc")
	out, err := exec.Command(compiler, append(args, sources...)...).CombinedOutput()
	assert.Must(t, err == nil, "%s: %v\n%s", compiler, err, out)
	return program
}

// compare reads records as long as any are expected, and stops at the first that differs.
func compare(in io.Reader, expected <-chan []record) (compared int, err error) {
	var raw [48]byte
	for batch := range expected {
		for _, want := range batch {
			if _, err := io.ReadFull(in, raw[:]); err != nil {
				return compared, fmt.Errorf("the C twin ended, Go has %s: %w", want, err)
			}
			var got record
			for i := range got {
				got[i] = binary.LittleEndian.Uint64(raw[8*i:])
			}
			if got != want {
				return compared, fmt.Errorf("C has %s, Go has %s", got, want)
			}
			compared++
		}
	}
	if _, err := io.ReadFull(in, raw[:]); !errors.Is(err, io.EOF) {
		return compared, errors.New("the C twin has more records than Go")
	}
	return compared, nil
}

var kindNames = map[uint64]string{
	didAlloc: "alloc", didFree: "free", didUnmap: "unmap", didRestore: "restore", didContaining: "containing", didStats: "stats",
	didChunk: "chunk", memoryGrow: "memory grow",
	memoryTryUnmap: "memory try unmap", didTrim: "trim", didShrink: "shrink", didMovable: "movable", didWant: "want", didClear: "clear",
	memoryMap: "memory map", memoryUnmap: "memory unmap", memoryFree: "memory free",
}

// outcome is the kind of a record and, where it can succeed or fail, 1 or 0.
func (r record) outcome() string {
	switch r[0] {
	case didAlloc, didFree, didUnmap, didRestore, didContaining, didShrink:
		return fmt.Sprint(kindNames[r[0]], " ", r[1])
	case memoryGrow:
		return fmt.Sprint(kindNames[r[0]], " ", r[2])
	case memoryMap, memoryTryUnmap:
		return fmt.Sprint(kindNames[r[0]], " ", r[3])
	}
	return kindNames[r[0]]
}

func (r record) String() string { return fmt.Sprintf("%s %#x", kindNames[r[0]], r[1:]) }

// memory is the model of a device; part of it can be held by others. It records each call.
type memory struct {
	*bfc.Device
	granularity uint64
	used, held  uint64
	record      func(kind uint64, values ...uint64)
}

func (m *memory) free() uint64 {
	free := m.Device.Free()
	return free - min(free, m.held)
}

func (m *memory) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	addr, granted, ok = m.Device.Grow(bytes)
	m.record(memoryGrow, bytes, truth(ok), addr, granted)
	if ok {
		m.used += granted
	}
	return addr, granted, ok
}

func (m *memory) Map(addr, bytes uint64) bool {
	ok := m.Device.Map(addr, bytes)
	if ok {
		m.used += bytes
	}
	m.record(memoryMap, addr, bytes, truth(ok), m.used)
	return ok
}

func (m *memory) Unmap(addr, bytes uint64) {
	m.Device.Unmap(addr, bytes)
	m.used -= bytes
	m.record(memoryUnmap, addr, bytes, m.used)
}

func (m *memory) TryUnmap(addr, bytes uint64) bool {
	ok := m.Device.TryUnmap(addr, bytes)
	if ok {
		m.used -= bytes
	}
	m.record(memoryTryUnmap, addr, bytes, truth(ok), m.used)
	return ok
}

func (m *memory) Free() uint64 {
	free := m.free()
	m.record(memoryFree, free)
	return free
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
