package snapshot

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/snapshot/pickle"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The files of testdata were made by torch 2.11.0+cu130 on an H200: a few steps of a small
// model with record_stream and empty_cache, with stacks. Those with a protocol in their name
// are the same data written anew by Python's pickle.

// pathOf is where a snapshot lies: those that torch wrote are samples.
func pathOf(name string) string {
	if name == "native" || name == "expandable" || strings.HasPrefix(name, "pools-") {
		return filepath.Join("../../samples/snapshots", name+".pickle.gz")
	}
	return filepath.Join("testdata", name+".pickle.gz")
}

// imported is a file's recording.
func imported(t *testing.T, files ...string) (*dataset.Run, []Process) {
	t.Helper()
	dir := t.TempDir()
	made, err := Import(dir, files, "test")
	assert.NoError(t, err)
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	return run, made
}

func eventsOf(t *testing.T, run *dataset.Run, process int) []trace.Event {
	t.Helper()
	events, err := run.Processes[process].ReadAll()
	assert.NoError(t, err)
	return events
}

// span is a block or a piece of memory; state is 1 live, 2 pending.
type span struct{ addr, size, requested, state int64 }

// held replays events to what is mapped and alive at the end. Memory that touches counts as one.
func heldAtEnd(t *testing.T, events []trace.Event) (memory, blocks []span) {
	t.Helper()
	live := map[int64]span{}
	mapped := map[int64]int64{}
	for _, e := range events {
		switch e.Kind {
		case trace.KindMap:
			mapped[e.Addr] = e.Addr + e.Provided
		case trace.KindUnmap:
			for from, to := range mapped {
				if from < e.Addr+e.Provided && e.Addr < to {
					delete(mapped, from)
					if from < e.Addr {
						mapped[from] = e.Addr
					}
					if end := e.Addr + e.Provided; end < to {
						mapped[end] = to
					}
				}
			}
		case trace.KindAlloc:
			_, ok := live[e.Addr]
			assert.Must(t, !ok, "event %d: a block at %#x, where one is live", e.Seq, e.Addr)
			live[e.Addr] = span{e.Addr, e.Provided, e.Requested, 1}
		case trace.KindStreamUse:
			b := live[e.Addr]
			b.state = 2
			live[e.Addr] = b
		case trace.KindFree:
			if live[e.Addr].state == 1 {
				delete(live, e.Addr)
			}
		case trace.KindFreeDone:
			delete(live, e.Addr)
		}
	}
	for _, b := range live {
		blocks = append(blocks, b)
	}
	for from, to := range mapped {
		memory = append(memory, span{addr: from, size: to - from})
	}
	return joined(memory), sorted(blocks)
}

func sorted(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.addr-b.addr, -1), 1)) })
	return spans
}

func joined(spans []span) []span {
	var all []span
	for _, s := range sorted(spans) {
		if n := len(all); n > 0 && all[n-1].addr+all[n-1].size == s.addr {
			all[n-1].size += s.size
			continue
		}
		all = append(all, s)
	}
	return all
}

// heldBySnapshot is what the file's own segments say.
func heldBySnapshot(t *testing.T, path string) (memory, blocks []span) {
	t.Helper()
	d, top, err := (&file{path: path}).decode(newStacks(), func(*entry, int) error { return nil })
	assert.NoError(t, err)
	segments, err := d.segments(top)
	assert.NoError(t, err)
	for _, s := range segments {
		memory = append(memory, span{addr: int64(s.addr), size: int64(s.size)})
		for _, b := range s.blocks {
			if b.live || b.pending {
				state := int64(1)
				if b.pending {
					state = 2
				}
				blocks = append(blocks, span{int64(b.addr), int64(b.size), int64(b.requested), state})
			}
		}
	}
	return joined(memory), sorted(blocks)
}

// torch26 and torch26-cut were written by torch 2.6.0 on memprof's simulated GPU: record_stream, two captured graphs
// of which one was released, a MemPool, a failed request, Python and C++ stacks. The latter began when memory
// was reserved already. The others are the same job (samples/jobs/snapshots.py) with torch 2.11.0+cu130 on an H200,
// the cut ones with a ring of 300 entries that lost its beginning. The peaks are those that
// torch.cuda.memory_stats returned beside them.
func TestPeaksAreTorchs(t *testing.T) {
	for name, want := range map[string]struct{ reserved, requested, allocated int64 }{
		"torch26":     {123731968, 100327440, 100328448},
		"torch26-cut": {146800640, 113260242, 114302464},

		"pools-native":         {123731968, 94183440, 94184448},
		"pools-native-cut":     {125829120, 107116242, 108158464},
		"pools-expandable":     {113246208, 94183440, 94184448},
		"pools-expandable-cut": {136314880, 107116242, 107119104},
	} {
		run, made := imported(t, pathOf(name))
		var r, q, c, maxR, maxQ, maxC int64
		for _, e := range eventsOf(t, run, 0) {
			switch e.Kind {
			case trace.KindMap:
				r += e.Provided
			case trace.KindUnmap:
				r -= e.Provided
			case trace.KindAlloc:
				q, c = q+e.Requested, c+e.Provided
			case trace.KindFree:
				q, c = q-e.Requested, c-e.Provided
			}
			maxR, maxQ, maxC = max(maxR, r), max(maxQ, q), max(maxC, c)
		}
		if maxR != want.reserved || maxQ != want.requested || maxC != want.allocated || made[0].Odd != 0 {
			t.Errorf("%s: reserved %d, requested %d, allocated %d; want %+v; %+v", name, maxR, maxQ, maxC, want, made[0])
		}
	}
}

// What torch says it holds at the end is what the events lead to, to the byte: every block's
// address, size, request and state, and all memory.
func TestEndIsTorchs(t *testing.T) {
	for _, name := range []string{"native", "expandable", "native-protocol2", "native-protocol3", "native-protocol5"} {
		path := pathOf(name)
		run, made := imported(t, path)
		memory, blocks := heldAtEnd(t, eventsOf(t, run, 0))
		wantMemory, wantBlocks := heldBySnapshot(t, path)
		assert.Diff(t, wantMemory, memory, cmp.AllowUnexported(span{}), "%s: memory", name)
		assert.Diff(t, wantBlocks, blocks, cmp.AllowUnexported(span{}), "%s: blocks", name)
		if len(wantBlocks) != 19 || made[0].Odd != 0 || made[0].Blocks != 0 || made[0].Bytes != 0 {
			t.Errorf("%s: %d blocks, %+v", name, len(wantBlocks), made[0])
		}
	}
}

func TestKinds(t *testing.T) {
	for name, want := range map[string]map[string]int{
		"native": {"arena": 3, "map": 9, "reclaim": 1, "unmap": 1, "alloc": 160, "free": 141, "free_done": 6, "stream_use": 6, "iteration": 6, "label": 4, "phase_begin": 30, "phase_end": 30},
	} {
		run, _ := imported(t, pathOf(name))
		got := map[string]int{}
		for _, e := range eventsOf(t, run, 0) {
			got[e.Kind.String()]++
		}
		stacks := got["stack"]
		delete(got, "stack")
		diff := cmp.Diff(want, got)
		assert.That(t, diff == "" && stacks != 0, "%s: %d stack events\n%s", name, stacks, diff)
	}
}

// A file made by hand has what the job of the others does not: a pending free, a request that
// failed, blocks and memory from before the trace, a rest that is too small to be split off,
// and two devices.
func TestMade(t *testing.T) {
	const mib, a, b = 1 << 20, 0x7f0000000000, 0x7f0010000000
	run, made := imported(t, "testdata/made.pickle.gz")
	text := run.Processes[0].Strings().Text
	var got []string
	for _, e := range eventsOf(t, run, 0) {
		if e.Kind != trace.KindArena {
			got = append(got, fmt.Sprintf("%s %d %#x %d %d %s", e.Kind, e.Stream, e.Addr, e.Requested, e.Provided, text(e.Context)))
		}
	}
	want := []string{
		fmt.Sprintf("map 0 %#x %d %d ", a, 2*mib, 2*mib),
		fmt.Sprintf("map 0 %#x %d %d ", a+32*mib, 2*mib, 2*mib),
		fmt.Sprintf("alloc 0 %#x 3000 3072 ", a),
		"phase_begin 0 0x0 0 0 load",
		fmt.Sprintf("free 0 %#x 3000 3072 ", a),
		fmt.Sprintf("map 0 %#x %d %d ", b, 20*mib, 20*mib),
		fmt.Sprintf("alloc 5 %#x %d %d module=mine", b, 3*mib+1, 3*mib+512),
		"phase_end 0 0x0 0 0 load",
		fmt.Sprintf("stream_use -1 %#x 0 0 ", b),
		fmt.Sprintf("free 5 %#x %d %d ", b, 3*mib+1, 3*mib+512),
		fmt.Sprintf("alloc 0 %#x 100 512 ", a+4096),
		fmt.Sprintf("free_done 5 %#x %d %d ", b, 3*mib+1, 3*mib+512),
		fmt.Sprintf("alloc 5 %#x %d %d ", b, 19*mib+100, 20*mib),
		fmt.Sprintf("oom 5 0x0 %d 12345 ", 1<<40),
		"reclaim 0 0x0 0 0 empty_cache",
		fmt.Sprintf("unmap 0 %#x 0 %d ", a+32*mib, 2*mib),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Process{
		{Name: "gpu0", File: "testdata/made.pickle.gz", Device: 0, Entries: 10, Blocks: 1, Bytes: 4 * mib},
		{Name: "gpu1", File: "testdata/made.pickle.gz", Device: 1, Entries: 2},
	}, made); diff != "" {
		t.Error(diff)
	}
}

// A request's stack leads from the line that asked to the script.
func TestStacks(t *testing.T) {
	run, _ := imported(t, pathOf("native"))
	text := run.Processes[0].Strings().Text
	frames := map[int64]trace.Event{}
	for _, e := range eventsOf(t, run, 0) {
		if e.Kind == trace.KindStack {
			if e.Requested != int64(len(frames)+1) || e.Provided >= e.Requested {
				t.Fatalf("stack %d of parent %d is the %dth", e.Requested, e.Provided, len(frames)+1)
			}
			frames[e.Requested] = e
		}
		if e.Kind == trace.KindAlloc {
			assert.Must(t, text(e.Context) == "stack="+lastStack(frames), "the first request's context is %q", text(e.Context))
			break
		}
	}
	node := int64(len(frames))
	var chain []string
	for ; node > 0; node = frames[node].Provided {
		chain = append(chain, text(frames[node].Context))
	}
	want := "<lambda> (/home/user/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1097)"
	assert.That(t, chain[0] == want, "innermost %q, want %q", chain[0], want)
	outermost := chain[len(chain)-1]
	assert.That(t, strings.HasPrefix(outermost, "<module> ("), "outermost %q", outermost)
}

func lastStack(frames map[int64]trace.Event) string {
	number := []byte{}
	for n := len(frames); n > 0; n /= 10 {
		number = append([]byte{byte('0' + n%10)}, number...)
	}
	return string(number)
}

// A ring that lost its beginning is worked back: whatever is cut off, memory at the end and
// every block there are the same, and so is each event behind the cut.
func TestCutRings(t *testing.T) {
	for _, name := range []string{"native", "expandable"} {
		path := pathOf(name)
		wantMemory, wantBlocks := heldBySnapshot(t, path)
		whole, _ := imported(t, path)
		all := eventsOf(t, whole, 0)
		for cut := 1; cut < 450; cut += 7 {
			i := newTestImporter(t.TempDir(), path, int64(cut))
			assert.NoError(t, i.survey())
			made, err := i.write()
			assert.NoError(t, err)
			assert.NoError(t, dataset.WriteInfo(i.dir, i.info))
			run, err := dataset.Open(i.dir)
			assert.NoError(t, err)
			events := eventsOf(t, run, 0)
			memory, blocks := heldAtEnd(t, events)
			diff := cmp.Diff(wantMemory, memory, cmp.AllowUnexported(span{}))
			assert.Must(t, diff == "", "%s, %d cut off: memory:\n%s", name, cut, diff)
			if diff := cmp.Diff(wantBlocks, blocks, cmp.AllowUnexported(span{})); diff != "" {
				t.Fatalf("%s, %d cut off: blocks:\n%s", name, cut, diff)
			}
			assert.That(t, made[0].Odd == 0, "%s, %d cut off: %d entries are odd", name, cut, made[0].Odd)
			compareTails(t, all, events, 452-cut-20)
		}
	}
}

// compareTails compares the last allocs and frees of two recordings of one job.
func compareTails(t *testing.T, a, b []trace.Event, count int) {
	t.Helper()
	of := func(events []trace.Event) []span {
		var all []span
		for _, e := range events {
			if e.Kind == trace.KindAlloc || e.Kind == trace.KindFree || e.Kind == trace.KindFreeDone {
				all = append(all, span{e.Addr, e.Provided, e.Requested, int64(e.Kind)})
			}
		}
		return all[len(all)-min(max(count/2, 0), len(all)):]
	}
	diff := cmp.Diff(of(a), of(b), cmp.AllowUnexported(span{}))
	assert.Must(t, diff == "", "the last %d differ:\n%s", count/2, diff)
}

func TestRanks(t *testing.T) {
	run, made := imported(t, pathOf("native"), pathOf("expandable"))
	if len(made) != 2 || made[0].Name != "rank0" || made[1].Name != "rank1" || run.Processes[1].WorldSize != 2 || run.Processes[1].Rank != 1 {
		t.Errorf("%+v", made)
	}
}

// Hostile pickles end in an error with a place, and take no memory to speak of.
func TestHostile(t *testing.T) {
	for name, c := range map[string]struct{ pickle, want string }{
		"global":          {"\x80\x02cos\nsystem\n(U\x04trueo.", "at byte 2: opcode 0x63: the pickle asks for code to be run"},
		"reduce":          {"\x80\x04}R.", "opcode 0x52: the pickle asks for code"},
		"stack global":    {"\x80\x04\x8c\x02os\x8c\x06system\x93.", "opcode 0x93: the pickle asks for code"},
		"memo of 2^32":    {"\x80\x02}r\xff\xff\xff\xff.", "needs more memory than it may have"},
		"text of 2^63":    {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "a text of"},
		"text of 2 GiB":   {"\x80\x04X\xff\xff\xff\x7f", "a text of 2147483647 bytes"},
		"cut off":         {"\x80\x04}(", "at byte 4: the pickle is cut off"},
		"empty":           {"", "at byte 0: the pickle is cut off"},
		"protocol 6":      {"\x80\x06.", "protocol 6"},
		"no mark":         {"\x80\x04}u.", "no mark is set"},
		"append to text":  {"\x80\x04\x8c\x01aNa.", "no list"},
		"odd pairs":       {"\x80\x04}(Nu.", "pairs for a dictionary"},
		"unkept":          {"\x80\x04h\x05.", "value 5 was not kept"},
		"top is a tuple":  {"\x80\x04).", "outermost value is neither a dictionary nor a list"},
		"list of numbers": {"\x80\x04](K\x01e.", "a segment that is no dictionary"},
		"empty list":      {"\x80\x04].", "the snapshot is empty"},
		"nothing in it":   {"\x80\x04}.", "the snapshot is empty"},
		"tuple too large": {"\x80\x04N\x87.", "a tuple of 3 values"},
		"pop of mark":     {"\x80\x04(0.", "nothing is on the stack"},
		"two left":        {"\x80\x04NN.", "leaves 2 values"},
		"many keys":       {"\x80\x04}(" + strings.Repeat("NN", 300) + "u.", "a dictionary of 300 keys"},
		"huge integer":    {"\x80\x04\x8a\x20" + strings.Repeat("\xff", 32) + ".", "an integer of 32 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "hostile.pickle")
		assert.NoError(t, os.WriteFile(path, []byte(c.pickle), 0o600))
		_, err := Import(t.TempDir(), []string{path}, "test")
		assert.That(t, err != nil && strings.Contains(err.Error(), c.want), "%s: %v, want %q", name, err, c.want)
		assert.That(t, errors.Is(err, pickle.ErrCode) == strings.Contains(c.want, "code"), "%s: %v", name, err)
	}
	pipe, w, err := os.Pipe()
	assert.NoError(t, err)
	defer w.Close()
	defer pipe.Close()
	_, err = Import(t.TempDir(), []string{fmt.Sprint("/proc/self/fd/", pipe.Fd())}, "test")
	assert.That(t, err != nil && strings.Contains(err.Error(), "is a pipe"), "a pipe: %v", err)
}

// FuzzImport: no bytes do worse than an error.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"native", "native-protocol2"} {
		in, err := os.Open(pathOf(name))
		assert.NoError(f, err)
		unpacked, err := gzip.NewReader(in)
		assert.NoError(f, err)
		text, err := io.ReadAll(unpacked)
		assert.NoError(f, err)
		f.Add(text)
		f.Add(bytes.Replace(text, []byte("free_requested"), []byte("segment_alloc_"), 1))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "snapshot.pickle")
		assert.NoError(t, os.WriteFile(path, text, 0o600))
		Import(t.TempDir(), []string{path}, "test")
	})
}

// FuzzPickle: no bytes do worse than an error, and none make the stacks keep more than they may.
func FuzzPickle(f *testing.F) {
	for _, seed := range []string{
		"\x80\x04}.", "\x80\x02}(X\x06\x00\x00\x00actionK\x01u.", "\x80\x04](K\x01K\x02\x86\x94e.", "\x80\x04\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.",
		"\x80\x04]\x94(}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x06frames]\x94h\x01auh\x01e.",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := &decoder{Decoder: pickle.NewDecoder(bytes.NewReader(text), 1<<20, wellKnown[:])}
		known, e := newStacks(), entry{}
		d.Entry = func(items []pickle.Value, _ int) error { return d.readEntry(items, &e, known) }
		if top, err := d.Decode(); err == nil {
			d.segments(top)
			d.annotations(top)
			d.settings(top)
		}
		kept := len(d.Texts()) + len(known.nodes.nodes)*16
		assert.That(t, kept <= 8<<20, "%d bytes are kept, of a budget of 1 MiB", kept)
	})
}
