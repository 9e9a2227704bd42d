package export

import (
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	mib    = 1 << 20
	base   = 0x7f00_0000_0000 // of arena 0
	island = 0x7f10_0000_0000 // of arena 1, which does not coalesce
)

// script puts a process together, an event every 256 µs.
type script struct {
	events []trace.Event
	texts  []string
}

func (s *script) text(text string) int32 {
	for i, known := range s.texts {
		if known == text {
			return int32(i)
		}
	}
	s.texts = append(s.texts, text)
	return int32(len(s.texts) - 1)
}

func (s *script) add(e trace.Event, context string) {
	e.Time = int64(len(s.events)+1) * 256_000
	e.Thread = 7
	e.Context = s.text(context)
	s.events = append(s.events, e)
}

func (s *script) alloc(arena int32, addr, requested, provided int64, context string) {
	s.add(trace.Event{Kind: trace.KindAlloc, Device: arena, Arena: arena, Addr: addr, Requested: requested, Provided: provided}, context)
}

func (s *script) block(kind trace.Kind, arena int32, addr, requested, provided int64) {
	s.add(trace.Event{Kind: kind, Device: arena, Arena: arena, Addr: addr, Requested: requested, Provided: provided}, "")
}

func (s *script) mark(kind trace.Kind, number int64, context string) {
	s.add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: number}, context)
}

func (s *script) stack(node, parent int64, frame string) {
	s.add(trace.Event{Kind: trace.KindStack, Device: trace.NoDevice, Arena: trace.NoArena, Requested: node, Provided: parent}, frame)
}

// hostile tries to break out of quotes and markup.
const hostile = "a\"b,<c>\\\x01\n層"

// job has two devices, each with an arena: stacks, modules, phases that overlap, a free that waits
// for another stream, a pause, a failed request, blocks that stay. Its greatest T on device 0 is 9,002,000
// bytes in 4 blocks (9,002,240 provided); at the end it has 5,001,000 in 2.
func job() *script {
	s := &script{texts: []string{""}}
	s.add(trace.Event{Kind: trace.KindArena, Device: 0, Arena: 0, Addr: base, Requested: -1, Provided: 1 << 30}, "growth=double\tcoalesces=1\tpool=0\ttag=kv\tmain=1")
	s.add(trace.Event{Kind: trace.KindArena, Device: 1, Arena: 1, Addr: island, Requested: -1, Provided: 1 << 30, Stream: 16}, "growth=needed\tcoalesces=0\tpool=0\ttag=")
	s.stack(1, 0, "main (train.py:9)")
	s.stack(2, 1, "step (/src/a b.py:5)")
	s.block(trace.KindMap, 0, base, 1000, 8*mib)
	s.alloc(0, base, 1000, 1024, "module=net.fc")
	s.mark(trace.KindPhaseBegin, 0, "forward")
	s.block(trace.KindMap, 0, base+8*mib, 5_000_000, 8*mib)
	s.alloc(0, base+1024, 5_000_000, 5_000_192, "module=net.conv.0\tstack=2")
	s.mark(trace.KindPhaseBegin, 0, hostile)
	s.alloc(0, base+6*mib, 4_000_000, 4_000_000, "stack=1")
	s.mark(trace.KindPhaseEnd, 0, "forward") // the outer one first
	s.alloc(0, base+12*mib, 1000, 1024, hostile)
	s.block(trace.KindMap, 1, island, 600, 2*mib)
	s.alloc(1, island, 600, 768, "")
	s.add(trace.Event{Kind: trace.KindStreamUse, Device: 0, Arena: 0, Addr: base + 6*mib, Stream: 32}, "")
	s.block(trace.KindFree, 0, base+6*mib, 4_000_000, 4_000_000)
	s.mark(trace.KindPhaseEnd, 0, hostile)
	s.add(trace.Event{Kind: trace.KindPause, Device: 0, Arena: 0, Addr: 5000, Requested: 16 * mib}, "tag=kv")
	s.block(trace.KindFree, 0, base+12*mib, 1000, 1024) // while it is paused
	s.add(trace.Event{Kind: trace.KindResume, Device: 0, Arena: 0, Addr: 5000, Requested: 16 * mib}, "tag=kv")
	s.block(trace.KindFreeDone, 0, base+6*mib, 4_000_000, 4_000_000)
	s.mark(trace.KindIteration, 3, "")
	s.add(trace.Event{Kind: trace.KindDeviceUsed, Device: 1, Arena: 1, Requested: 80 * mib, Provided: 30 * mib}, "")
	s.add(trace.Event{Kind: trace.KindOOM, Device: 1, Arena: 1, Requested: 1 << 40}, "module=net.fc")
	s.block(trace.KindFree, 1, island, 600, 768)
	s.block(trace.KindUnmap, 1, island, 0, 2*mib)
	s.mark(trace.KindIteration, 4, "eval")
	return s
}

// recorded is the job as one of two processes of a run, the other being empty but for a block.
func recorded(t *testing.T) *Recording {
	t.Helper()
	dir := t.TempDir()
	j := job()
	other := &script{texts: []string{""}}
	other.add(trace.Event{Kind: trace.KindArena, Device: 0, Arena: 0, Addr: base, Requested: -1, Provided: 1 << 30}, "coalesces=1\tpool=0")
	other.block(trace.KindMap, 0, base, 100, 2*mib)
	other.alloc(0, base, 100, 256, "module=net.fc")
	tracetest.WriteRun(t, dir,
		tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank0", PID: 4711, Rank: 0, WorldSize: 2}, Events: j.events, Texts: j.texts},
		tracetest.Process{Meta: dataset.ProcessMeta{Name: "rank1", PID: 4712, Rank: 1, WorldSize: 2}, Events: other.events, Texts: other.texts},
		tracetest.Process{
			Meta:   dataset.ProcessMeta{Name: dataset.ReadingsName, Rank: -1, LocalRank: -1, WorldSize: -1},
			Events: []trace.Event{{Kind: trace.KindDeviceUsed, Time: 512_000, Requested: 80 * mib, Provided: 20 * mib, Arena: trace.NoArena, Context: 1}},
			Texts:  []string{"", "all=1"},
		})
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	return &Recording{Run: run}
}
