package verify

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// named is what a Mismatch names: Seq, and the first and last event of the block.
type named struct{ Seq, First, Last int64 }

// block is the block of an event in a recording of n events.
func block(seq, n int64) named {
	first := seq / dataset.BlockEvents * dataset.BlockEvents
	return named{seq, first, min(first+dataset.BlockEvents, n) - 1}
}

func (n named) withoutEvent() named {
	n.Seq = -1
	return n
}

// mutation is one change of the story, after which it must not verify.
type mutation struct {
	name string
	at   int64 // seq of the event that the edit changes
	edit func(e []trace.Event, at int64) []trace.Event
	// replay is the event that the replay alone finds wrong, if the changed trace has
	// checksums and seqs that are right; -1 if it takes no notice.
	replay int64
	// recorded is the event named beside the block, where the checksums are the old ones.
	recorded int64
}

func change(f func(e *trace.Event)) func([]trace.Event, int64) []trace.Event {
	return func(events []trace.Event, at int64) []trace.Event {
		f(&events[at])
		return events
	}
}

func mutations(t testing.TB, j *job) []mutation {
	n := len(j.events)
	small := j.nth(t, 3000, kind(trace.KindAlloc)) // deep inside
	assert.Must(t, j.events[small].Requested%256 != 0, "the story's 3000th request has no room for a byte more")
	// The end of the block that begins at an event.
	end := func(seq int64) int64 {
		addr := j.events[seq].Addr
		for i := seq + 1; i < int64(n); i++ {
			if e := &j.events[i]; e.Addr == addr && (e.Kind == trace.KindFree || e.Kind == trace.KindFreeDone) {
				return i
			}
		}
		t.Fatalf("the block of event %d is never freed", seq)
		return 0
	}
	grown := j.nth(t, 2, func(e *trace.Event) bool { return e.Kind == trace.KindMap && e.Arena == 0 })
	first := j.nth(t, 0, kind(trace.KindDeviceUsed))
	headroom := j.nth(t, 1, kind(trace.KindDeviceUsed))
	growFailed := j.nth(t, 0, kind(trace.KindGrowFailed))
	mapFailed := j.nth(t, 0, kind(trace.KindMapFailed))
	oom := j.nth(t, 0, kind(trace.KindOOM))
	reclaim := j.nth(t, 0, func(e *trace.Event) bool { return e.Kind == trace.KindReclaim && e.Arena == 0 })
	unmap := j.nth(t, 0, kind(trace.KindUnmap))
	iteration := j.nth(t, 20, kind(trace.KindIteration))
	done := j.nth(t, 5, kind(trace.KindFreeDone))
	use := j.nth(t, 9, func(e *trace.Event) bool {
		return e.Kind == trace.KindStreamUse && e.Stream%7 != 0 && j.events[e.Seq+1].Kind == trace.KindFree
	})
	pending := use + 1
	pairDone := pending + 1
	for j.events[pairDone].Kind != trace.KindFreeDone || j.events[pairDone].Addr != j.events[pending].Addr {
		pairDone++
	}
	// The first event of the attempt that an event ends.
	attempt := func(seq int64) int64 {
		for slices.Contains([]trace.Kind{trace.KindDeviceUsed, trace.KindGrowFailed}, j.events[seq-1].Kind) {
			seq--
		}
		return seq
	}
	twin := j.nth(t, 50, func(e *trace.Event) bool {
		if e.Seq+1 == int64(n) {
			return false
		}
		next := &j.events[e.Seq+1]
		return e.Kind == trace.KindAlloc && next.Kind == trace.KindAlloc && e.Addr+e.Provided == next.Addr
	})
	remove := func(e []trace.Event, at int64) []trace.Event { return slices.Delete(e, int(at), int(at)+1) }
	return []mutation{
		{"alloc: one byte more requested", small, change(func(e *trace.Event) { e.Requested++ }), end(small), end(small)},
		{"alloc: one byte more provided", small, change(func(e *trace.Event) { e.Provided++ }), small, small},
		{"alloc: 256 bytes more provided", small, change(func(e *trace.Event) { e.Provided += 256 }), small, small},
		{"alloc: 256 bytes further", small, change(func(e *trace.Event) { e.Addr += 256 }), small, small},
		{"alloc: another arena", small, change(func(e *trace.Event) { e.Arena = (e.Arena + 1) % 4 }), small, small},
		{"alloc: an arena that is not there", small, change(func(e *trace.Event) { e.Arena = 17 }), small, small},
		{"alloc removed", small, remove, -2, small},
		{"free: one byte less requested", end(small), change(func(e *trace.Event) { e.Requested-- }), end(small), end(small)},
		{"free: one byte less provided", end(small), change(func(e *trace.Event) { e.Provided-- }), end(small), end(small)},
		{"free removed", end(small), remove, -2, end(small)},
		{"free twice", end(small), func(e []trace.Event, at int64) []trace.Event { return slices.Insert(e, int(at), e[at]) },
			end(small) + 1, end(small) + 1},
		{"free_done without a free", pending, remove, pairDone - 1, pending},
		{"free_done removed", done, remove, -2, done},
		{"stream_use removed", use, remove, -2, use},
		{"stream_use of nothing", use, change(func(e *trace.Event) { e.Addr++ }), use, use},
		{"growth: twice the bytes asked", grown, change(func(e *trace.Event) { e.Requested *= 2 }), grown, grown},
		{"growth: one byte more asked", grown, change(func(e *trace.Event) { e.Requested++ }), grown, grown},
		{"growth: twice the bytes granted", grown, change(func(e *trace.Event) { e.Provided *= 2 }), grown, grown},
		{"growth: elsewhere", grown, change(func(e *trace.Event) { e.Addr += 2 * mib }), grown, grown},
		{"growth removed", grown, remove, grown, grown},
		{"refused growth: another size", growFailed, change(func(e *trace.Event) { e.Requested += 256 }), growFailed, growFailed},
		{"refused growth removed", growFailed, remove, growFailed, growFailed},
		{"headroom: all of the device used", first, change(func(e *trace.Event) { e.Provided = e.Requested }), first + 1, first + 1},
		{"headroom: more used than there is", headroom, change(func(e *trace.Event) { e.Provided += gib }), headroom, headroom},
		{"headroom: a byte more free, which decides nothing", headroom, change(func(e *trace.Event) { e.Requested++ }), -1, -1},
		{"headroom reading removed", headroom, remove, headroom, headroom},
		{"refused remap: another place", mapFailed, change(func(e *trace.Event) { e.Addr += 2 * mib }), mapFailed, mapFailed},
		{"refused remap granted", mapFailed, change(func(e *trace.Event) { e.Kind, e.Provided = trace.KindMap, e.Requested }), -2, -2},
		{"give-back: one byte more", unmap, change(func(e *trace.Event) { e.Provided++ }), unmap, unmap},
		{"oom: less requested", oom, change(func(e *trace.Event) { e.Requested = 256 }), attempt(oom), attempt(oom)},
		{"reclaim: less requested", reclaim, change(func(e *trace.Event) { e.Requested = 256 }), attempt(reclaim), attempt(reclaim)},
		{"time: one nanosecond", small, change(func(e *trace.Event) { e.Time++ }), -1, -1},
		{"thread", small, change(func(e *trace.Event) { e.Thread++ }), -1, -1},
		{"context", small, change(func(e *trace.Event) { e.Context++ }), -1, -1},
		{"iteration: another number", iteration, change(func(e *trace.Event) { e.Requested++ }), iteration, iteration},
		{"iteration removed", iteration, remove, -2, iteration},
		{"two swapped", twin, func(e []trace.Event, at int64) []trace.Event {
			e[at], e[at+1] = e[at+1], e[at]
			return e
		}, twin, twin},
		{"arena: options", 0, change(func(e *trace.Event) { e.Context++ }), -2, -2},
		{"arena: limit", 1, change(func(e *trace.Event) { e.Requested = 0 }), -2, -2},
		{"a part cut out", small, func(e []trace.Event, at int64) []trace.Event { return slices.Delete(e, int(at), int(at)+300) }, -2, small},
	}
}

// renumber gives copies of changed events the seqs that a forger would.
func renumber(events []trace.Event) []trace.Event {
	for i := range events {
		events[i].Seq = int64(i)
	}
	return events
}

// TestMutationsOfRecording: whatever is changed in a part, the first wrong event or its
// block is named, while the checksums are those of the recording.
func TestMutationsOfRecording(t *testing.T) {
	j := story(t)
	n := int64(len(j.events))
	for _, m := range mutations(t, j) {
		t.Run(m.name, func(t *testing.T) {
			dir := j.write(t, dataset.Ending{}, dataset.WriterOptions{})
			tracetest.Rewrite(t, filepath.Join(dir, "rank0-0000.parquet"), func(rows []trace.Event) []trace.Event {
				return m.edit(rows, m.at)
			})
			_, err := verifyPath(t, dir)
			var wrong *Mismatch
			assert.Must(t, errors.As(err, &wrong), "error is %v, want a Mismatch", err)
			want := block(m.at, n)
			switch {
			case m.recorded == -2: // whichever event of the block, if any, comes out differently
				want.Seq = wrong.Seq
			case m.recorded > want.Last, m.recorded < 0:
				want = want.withoutEvent()
			default:
				want.Seq = m.recorded
			}
			assert.Diff(t, want, named{wrong.Seq, wrong.FirstSeq, wrong.LastSeq}, "%v\nnames the wrong place", wrong)
			assert.That(t, m.recorded != -2 || wrong.Seq < 0 || wrong.Seq >= m.at, "%v\nnames an event before the change at %d", wrong, m.at)
			assert.That(t, strings.HasPrefix(wrong.Error(), "rank0: events "), "%q does not begin with the block", wrong)
		})
	}
}

// TestMutationsOfReplay: a trace whose checksums and seqs are right for what it says
// fails by its replay alone.
func TestMutationsOfReplay(t *testing.T) {
	whole := story(t)
	for _, m := range mutations(t, whole) {
		t.Run(m.name, func(t *testing.T) {
			j := &job{texts: whole.texts, events: renumber(m.edit(slices.Clone(whole.events), m.at))}
			_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
			if m.replay == -1 {
				assert.That(t, err == nil, "error %v for a change that decides nothing", err)
				return
			}
			var wrong *Mismatch
			assert.Must(t, errors.As(err, &wrong), "error is %v, want a Mismatch", err)
			want := named{m.replay, -1, -1}
			if m.replay == -2 {
				want.Seq = max(m.at, wrong.Seq) // not before the change
			}
			assert.Diff(t, want, named{wrong.Seq, wrong.FirstSeq, wrong.LastSeq}, "%v\nnames the wrong place", wrong)
		})
	}
}

// TestCutEnd: rows missing at the end of a part are missed, also whole blocks of them.
func TestCutEnd(t *testing.T) {
	j := story(t)
	n := int64(len(j.events))
	for _, left := range []int64{n - 1, n - 100, 2 * dataset.BlockEvents, 2*dataset.BlockEvents + 1} {
		dir := j.write(t, dataset.Ending{}, dataset.WriterOptions{})
		tracetest.Rewrite(t, filepath.Join(dir, "rank0-0000.parquet"), func(rows []trace.Event) []trace.Event { return rows[:left] })
		_, err := verifyPath(t, dir)
		want := block(left, n)
		diff := diffMismatch(&Mismatch{Process: "rank0", Seq: -1, FirstSeq: want.First, LastSeq: want.Last, Recorded: n, Present: left}, err)
		assert.That(t, diff == "", "%d events left (-want +got):\n%s", left, diff)
	}
}

// TestCutPart: rows missing at the end of a part that is given alone.
func TestCutPart(t *testing.T) {
	dir := story(t).write(t, dataset.Ending{}, dataset.WriterOptions{PartEvents: 5000})
	part := filepath.Join(dir, "rank0-0000.parquet")
	tracetest.Rewrite(t, part, func(rows []trace.Event) []trace.Event { return rows[:4990] })
	_, err := verifyPath(t, part)
	want := &Mismatch{Process: "rank0", Seq: -1, FirstSeq: 4096, LastSeq: 4999, Recorded: 5000, Present: 4990}
	assert.Equal(t, diffMismatch(want, err), "", "(-want +got)")
}

// TestCutMiddle: rows missing at the end of a part that is not the last.
func TestCutMiddle(t *testing.T) {
	j := story(t)
	dir := j.write(t, dataset.Ending{}, dataset.WriterOptions{PartEvents: 5000})
	tracetest.Rewrite(t, filepath.Join(dir, "rank0-0001.parquet"), func(rows []trace.Event) []trace.Event { return rows[:len(rows)-7] })
	_, err := verifyPath(t, dir)
	var wrong *Mismatch
	assert.Must(t, errors.As(err, &wrong), "error is %v, want a Mismatch", err)
	want := block(10000-7, int64(len(j.events)))
	assert.Diff(t, want, named{wrong.Seq, wrong.FirstSeq, wrong.LastSeq}, "%v\nnames the wrong place", wrong)
}

// TestMismatchWords: what a user reads.
func TestMismatchWords(t *testing.T) {
	e := &trace.Event{Seq: 57, Kind: trace.KindAlloc, Addr: 0x1000, Requested: 1000, Provided: 1280}
	m := atEvent(e, place(1024, 0x1000), describe(e))
	m.Process = "rank0"
	for _, test := range []struct {
		edit func()
		want string
	}{
		{func() {}, "rank0: event 57 (alloc): expected 1024 bytes at 0x1000, found 1280 bytes at 0x1000 for a request of 1000"},
		{func() { m.FirstSeq, m.LastSeq = 0, 4095 }, "rank0: events 0 to 4095 are not those that were recorded: their checksum differs; " +
			"the first that cannot be is event 57 (alloc): expected 1024 bytes at 0x1000, found 1280 bytes at 0x1000 for a request of 1000"},
		{func() { m.Seq, m.Recorded, m.Present = -1, 9000, 4090 }, "rank0: events 0 to 4095 are not those that were recorded: their checksum differs, " +
			"and 9000 events were recorded where 4090 are left"},
	} {
		test.edit()
		assert.Diff(t, test.want, m.Error(), "words differ")
	}
}
