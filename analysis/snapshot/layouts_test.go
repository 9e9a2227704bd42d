package snapshot

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pickler writes pickles as torch's C++ does: protocol 2, texts kept by number, and all items of a
// container added at once.
type pickler struct {
	out   []byte
	texts map[string]int
	kept  int
	one   bool // a list of one item gets it without a mark, as Python writes it
}

func (p *pickler) put() {
	p.out = binary.LittleEndian.AppendUint32(append(p.out, 'r'), uint32(p.kept))
	p.kept++
}

func (p *pickler) value(v any) {
	switch v := v.(type) {
	case nil:
		p.out = append(p.out, 'N')
	case bool:
		p.out = append(p.out, map[bool]byte{true: 0x88, false: 0x89}[v])
	case int:
		p.out = binary.LittleEndian.AppendUint64(append(p.out, 0x8a, 8), uint64(v))
	case uint64: // of nine bytes, the last 0
		p.out = append(binary.LittleEndian.AppendUint64(append(p.out, 0x8a, 9), v), 0)
	case string:
		if number, known := p.texts[v]; known {
			p.out = binary.LittleEndian.AppendUint32(append(p.out, 'j'), uint32(number))
			return
		}
		p.texts[v] = p.kept
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'X'), uint32(len(v)))
		p.out = append(p.out, v...)
		p.put()
	case frame:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'j'), uint32(v))
	case []any:
		if p.one && len(v) == 1 {
			p.out = append(p.out, ']')
			p.value(v[0])
			p.out = append(p.out, 'a')
			p.put()
			return
		}
		p.out = append(p.out, ']', '(')
		for _, item := range v {
			p.value(item)
		}
		p.out = append(p.out, 'e')
		p.put()
	case pairs:
		p.out = append(p.out, '}', '(')
		for _, item := range v {
			p.value(item)
		}
		p.out = append(p.out, 'u')
		p.put()
	case [2]int:
		p.value(v[0])
		p.value(v[1])
		p.out = append(p.out, 0x86)
		p.put()
	}
}

// pairs is a dictionary: keys and values in turn.
type pairs []any

func written(t *testing.T, top any) string {
	t.Helper()
	return writtenBy(t, pickler{}, top)
}

func writtenBy(t *testing.T, p pickler, top any) string {
	t.Helper()
	p.out, p.texts = []byte{0x80, 2}, map[string]int{}
	p.value(top)
	path := filepath.Join(t.TempDir(), "made.pickle")
	assert.NoError(t, os.WriteFile(path, append(p.out, '.'), 0o600))
	return path
}

func act(action string, addr, size int, more ...any) pairs {
	return append(pairs{"action", action, "addr", addr, "size", size, "stream", 0}, more...)
}

const (
	testAddr = 0x7f0000000000
	testMiB  = 1 << 20
)

func testSegment(device, addr, size int, blocks []any, more ...any) pairs {
	return append(pairs{"device", device, "address", addr, "total_size", size, "stream", 0, "segment_type", "large", "blocks", blocks}, more...)
}

// kept is how many bytes a decoding keeps, and the entries of each device.
func kept(t *testing.T, path string) (bytes int64, entries [maxDevices]int) {
	t.Helper()
	d, _, err := (&file{path: path}).decode(newStacks(), func(_ *entry, device int) error {
		entries[device]++
		return nil
	})
	assert.NoError(t, err)
	return Budget - d.Budget, entries
}

// What a trace's entries take goes again, whoever wrote the pickle, with the pool and the frames
// of each. A value on the stack, a list's number and three in the memo stay, for each entry.
func TestEntriesAreForgotten(t *testing.T) {
	const count = 20_000
	frames := make([]any, 20)
	for at := range frames {
		frames[at] = at
	}
	var traces []any
	for device := range 3 {
		var entries []any
		for i := range count * (device + 1) {
			entries = append(entries, act("alloc", testAddr+i*512, 512, "pool_id", [2]int{0, 1}, "frames", frames))
		}
		traces = append(traces, entries)
	}
	bytes, entries := kept(t, written(t, pairs{"segments", []any{}, "device_traces", traces}))
	assert.That(t, entries[0] == count && entries[1] == 2*count && entries[2] == 3*count, "entries by device: %v", entries[:3])
	most := int64(6 * count * 150)
	assert.That(t, bytes <= most, "%d bytes are kept, want at most %d", bytes, most)
}

// A trace of one entry is its device's, beside other devices and alone.
func TestTracesOfOneEntry(t *testing.T) {
	one := act("alloc", testAddr, 512)
	for _, counts := range [][]int{{1}, {1, 1}, {1, 2}, {2, 1}, {0, 1}, {1, 0}, {1, 0, 1, 3}} {
		var traces []any
		want := [maxDevices]int{}
		for device, n := range counts {
			traces = append(traces, slices.Repeat([]any{one}, n))
			want[device] = n
		}
		for _, python := range []bool{false, true} {
			_, entries := kept(t, writtenBy(t, pickler{one: python}, pairs{"segments", []any{}, "device_traces", traces}))
			assert.That(t, entries == want, "%d entries by device, written by Python %t: %v", counts, python, entries[:len(counts)])
		}
	}
}

// One frame of a long name, in a stack as often as a list can have it, takes no memory to speak of.
func TestLongNames(t *testing.T) {
	p := pickler{out: []byte{0x80, 2}, texts: map[string]int{}}
	p.value(pairs{"name", strings.Repeat("x", 1<<16)})
	number := p.kept - 1
	p.out = append(p.out, '0', '}', '(')
	p.value("device_traces")
	p.out = append(p.out, ']', '(', ']', '(', '}', '(')
	for _, v := range []any{"action", "alloc", "frames"} {
		p.value(v)
	}
	p.out = append(p.out, ']', '(')
	for range 10_000 {
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'j'), uint32(number))
	}
	p.out = append(p.out, "eueeu."...)
	path := filepath.Join(t.TempDir(), "made.pickle")
	assert.NoError(t, os.WriteFile(path, p.out, 0o600))
	known := newStacks()
	if _, _, err := (&file{path: path}).decode(known, func(*entry, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if len(known.nodes.nodes) != 10_000 || len(known.texts) != 1 || len(known.texts[0]) != longestName {
		t.Errorf("%d nodes, %d texts", len(known.nodes.nodes), len(known.texts))
	}
}

func kinds(events []trace.Event) string {
	var all []string
	for _, e := range events {
		if e.Kind != trace.KindArena {
			all = append(all, e.Kind.String())
		}
	}
	return strings.Join(all, " ")
}

// With skip_actions a trace may have one of the two entries of a free only: it stands for both.
func TestHalvesOfFrees(t *testing.T) {
	for action, want := range map[string]string{
		"free_requested": "map alloc alloc free free alloc free",
		"free_completed": "map alloc alloc free free alloc free",
	} {
		entries := []any{
			act("alloc", testAddr, 2*testMiB), act(action, testAddr, 2*testMiB),
			act(action, testAddr+8*testMiB, 2*testMiB), act("alloc", testAddr, 3*testMiB), act(action, testAddr, 3*testMiB),
		}
		free := []any{pairs{"address", testAddr, "size", 20 * testMiB, "state", "inactive"}}
		run, made := imported(t, written(t, pairs{"segments", []any{testSegment(0, testAddr, 20*testMiB, free)}, "device_traces", []any{entries}}))
		got := kinds(eventsOf(t, run, 0))
		assert.That(t, made[0].Odd == 0 && made[0].Blocks == 1 && got == want, "%s: %+v, %s", action, made[0], got)
	}
}

// Torch 1.13 and 2.0 write blocks without addresses, with a history, and entries without times.
func TestOldLayout(t *testing.T) {
	history := func(n int) []any {
		return []any{pairs{"addr", testAddr, "real_size", n, "frames", []any{pairs{"name", "f", "filename", "a.py", "line", 3}}}, pairs{"addr", testAddr, "real_size", 1}}
	}
	segment := pairs{"device", 1, "address", testAddr, "total_size", 2 * testMiB, "stream", 0, "segment_type", "small", "blocks", []any{
		pairs{"size", 1024, "state", "active_allocated", "history", history(700)},
		pairs{"size", 512, "state", "inactive", "history", history(600)},
		pairs{"size", 2*testMiB - 1536, "state", "active_awaiting_free", "history", history(600)},
	}}
	run, made := imported(t, written(t, pairs{"segments", []any{segment}, "device_traces", []any{[]any{}, []any{}}}))
	var got []string
	text := run.Processes[0].Strings().Text
	for _, e := range eventsOf(t, run, 0) {
		if e.Kind == trace.KindAlloc || e.Kind == trace.KindStack {
			got = append(got, fmt.Sprintf("%s %#x %d %d %s", e.Kind, e.Addr, e.Requested, e.Provided, text(e.Context)))
		}
	}
	want := "stack 0x0 1 0 f (a.py:3)," + fmt.Sprintf("alloc %#x 600 %d stack=1,alloc %#x 700 1024 stack=1", testAddr+1536, 2*testMiB-1536, testAddr)
	if strings.Join(got, ",") != want || len(made) != 1 || made[0].Device != 1 || made[0].Odd != 0 || made[0].Blocks != 2 {
		t.Errorf("%+v\n%s\n%s", made, strings.Join(got, ","), want)
	}
	entries := []any{act("segment_alloc", testAddr, 2*testMiB), act("alloc", testAddr, 512)}
	run, _ = imported(t, written(t, pairs{"segments", []any{}, "device_traces", []any{entries}}))
	assert.That(t, run.Info.Start.IsZero(), "a trace without times began on %v", run.Info.Start)
}

// Entries of torch 2.11 have no pool: what is there at the end is of its segment's.
func TestPrivatePools(t *testing.T) {
	entries := []any{
		act("segment_alloc", testAddr, 20*testMiB), act("segment_free", testAddr, 20*testMiB),
		act("segment_alloc", testAddr, 20*testMiB), act("segment_alloc", testAddr+32*testMiB, 20*testMiB),
	}
	segments := []any{
		testSegment(0, testAddr, 20*testMiB, nil, "segment_pool_id", [2]int{0, 7}),
		testSegment(0, testAddr+32*testMiB, 20*testMiB, nil, "segment_pool_id", [2]int{0, 0}),
	}
	run, made := imported(t, written(t, pairs{"segments", segments, "device_traces", []any{entries}}))
	text := run.Processes[0].Strings().Text
	pools := map[int32]string{}
	var got []string
	for _, e := range eventsOf(t, run, 0) {
		switch e.Kind {
		case trace.KindArena:
			_, pools[e.Arena], _ = strings.Cut(strings.ReplaceAll(text(e.Context), "\t", " "), "pool=")
		case trace.KindMap:
			got = append(got, pools[e.Arena][:3])
		}
	}
	assert.That(t, strings.Join(got, " ") == "0.0 0.7 0.0" && made[0].Odd == 0, "pools %v, %+v", got, made[0])
}

// Pages that were unmapped in the trace may seem to be of large requests: a block that begins
// in them and ends in pages that stayed is no contradiction.
func TestPagesOfTwoClasses(t *testing.T) {
	at := testAddr + 10*testMiB
	entries := []any{act("free_requested", at-512, 1024), act("free_completed", at-512, 1024), act("segment_unmap", testAddr, 10*testMiB)}
	free := []any{pairs{"address", at, "size", 2 * testMiB, "state", "inactive"}}
	segment := append(testSegment(0, at, 2*testMiB, free), "is_expandable", true)
	segment[9] = "small"
	_, made := imported(t, written(t, pairs{"segments", []any{segment}, "device_traces", []any{entries}}))
	assert.That(t, made[0].Odd == 0 && made[0].Blocks == 1, "%+v", made[0])
}

// Segments that overlap, and one that is listed often, are contradictions and not memory.
func TestOverlappingSegments(t *testing.T) {
	segment := testSegment(0, testAddr, 20*testMiB, nil)
	overlapping := testSegment(0, testAddr+2*testMiB, 20*testMiB, nil)
	_, made := imported(t, written(t, pairs{"segments", []any{segment, overlapping, segment}, "device_traces", []any{}}))
	assert.That(t, made[0].Odd == 2 && made[0].Bytes == 20*testMiB, "%+v", made[0])
}

// Ranks have one clock: the first entry of a rank is as late as its time says.
func TestRanksHaveOneClock(t *testing.T) {
	of := func(time int) string {
		return written(t, pairs{"segments", []any{}, "device_traces", []any{[]any{act("segment_alloc", testAddr, 2*testMiB, "time_us", time)}}})
	}
	run, _ := imported(t, of(5_000_000), of(3_000_000))
	for process, want := range []int64{2_000_000_000, 0} {
		events := eventsOf(t, run, process)
		last := events[len(events)-1]
		assert.That(t, last.Time == want, "process %d: the map is at %d ns, want %d", process, last.Time, want)
	}
	assert.That(t, run.Info.Start.UnixMicro() == 3_000_000, "start %v", run.Info.Start)
}

// Memory at address 0 is memory as any other.
func TestMemoryAtAddressZero(t *testing.T) {
	path := written(t, pairs{"segments", []any{}, "device_traces", []any{[]any{act("segment_alloc", 0, 2*testMiB), act("segment_free", 0, 2*testMiB)}}})
	run, _ := imported(t, path)
	var kinds []string
	for _, e := range eventsOf(t, run, 0) {
		kinds = append(kinds, e.Kind.String())
	}
	assert.Diff(t, []string{"arena", "map", "reclaim", "unmap"}, kinds, "events")
}

// Blocks without an entry of their segment (skip_actions) have memory of their own.
func TestBlocksWithoutSegments(t *testing.T) {
	run, made := imported(t, written(t, pairs{"segments", []any{}, "device_traces", []any{[]any{
		act("alloc", testAddr, 3*testMiB), act("alloc", testAddr+64*testMiB, 100), act("free_requested", testAddr, 3*testMiB), act("free_completed", testAddr, 3*testMiB),
		act("alloc", testAddr, 5*testMiB),
	}}}))
	assert.Equal(t, made[0].Odd, int64(0))
	assert.Equal(t, kinds(eventsOf(t, run, 0)), "map alloc map alloc free unmap map alloc")
	memory, _ := heldAtEnd(t, eventsOf(t, run, 0))
	assert.That(t, len(memory) == 2 && memory[0].size == 5*testMiB && memory[1].size == 512, "%+v", memory)
}
