package verify

import (
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestContradictions: short recordings that could not have been, each wrong in one thing.
func TestContradictions(t *testing.T) {
	const base = 1 << 42
	arena := func(options string) trace.Event {
		return trace.Event{Kind: trace.KindArena, Addr: base, Requested: 4 * mib, Provided: gib, Context: map[string]int32{"plain": 1, "gc": 2}[options]}
	}
	texts := []string{"", "growth=double headroom=0 fraction=0 gc=0 granularity=2097152 coalesces=1",
		"growth=double headroom=0 fraction=0 gc=1 granularity=1048576 coalesces=0", "growth=thrice", "growth=double headroom=-5",
		"growth=double headroom=0 fraction=0 gc=0 granularity=1000 coalesces=1"}
	grow := func(addr, bytes int64) trace.Event {
		return trace.Event{Kind: trace.KindMap, Addr: addr, Requested: bytes, Provided: bytes}
	}
	alloc := func(addr, requested, provided int64) trace.Event {
		return trace.Event{Kind: trace.KindAlloc, Addr: addr, Requested: requested, Provided: provided}
	}
	free := func(addr, requested, provided int64) trace.Event {
		return trace.Event{Kind: trace.KindFree, Addr: addr, Requested: requested, Provided: provided}
	}
	unmap := func(addr, bytes int64) trace.Event {
		return trace.Event{Kind: trace.KindUnmap, Addr: addr, Provided: bytes}
	}
	use := func(addr, stream int64) trace.Event {
		return trace.Event{Kind: trace.KindStreamUse, Addr: addr, Stream: stream}
	}
	onStream := func(stream int64, e trace.Event) trace.Event {
		e.Stream = stream
		return e
	}
	at := func(time int64, e trace.Event) trace.Event {
		e.Time = time
		return e
	}
	options := func(context int32) trace.Event { return trace.Event{Kind: trace.KindArena, Context: context} }

	tests := []struct {
		name   string
		events []trace.Event
		want   string // of the mismatch, "" for none
	}{
		{"in order", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), alloc(base+1024, 10, 256), free(base, 1000, 1024)}, ""},
		{"a growth too many", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), grow(base+2*mib, 2*mib), alloc(base+1024, 10, 256)},
			"event 3 (map): expected no such event: the replay asks for no more and comes to 256 bytes at 0x40000000400, found a map of 2097152 bytes at 0x40000200000, asked for 2097152"},
		{"no growth", []trace.Event{arena("plain"), alloc(base, 1000, 1024)},
			"event 1 (alloc): expected a growth by 2097152 bytes before it, found none"},
		{"a failure that was none", []trace.Event{arena("plain"), grow(base, 2*mib), {Kind: trace.KindOOM, Requested: 1000}},
			"event 2 (oom): expected 1024 bytes at 0x40000000000, found a request of 1000 bytes that failed"},
		{"above the limit", []trace.Event{arena("plain"), {Kind: trace.KindOOM, Requested: 5 * mib}}, ""},
		{"an alloc above the limit", []trace.Event{arena("plain"), alloc(base, 5*mib, 5*mib)},
			"event 1 (alloc): expected the request to fail, found 5242880 bytes at 0x40000000000 for a request of 5242880"},
		{"a collection", []trace.Event{arena("gc"), grow(base, 2*mib), alloc(base, 1000, 1024), free(base, 1000, 1024),
			unmap(base, 2*mib), grow(base+8*mib, 4*mib), alloc(base+8*mib, 3*mib, 4*mib)}, ""},
		{"a collection of half a region", []trace.Event{arena("gc"), grow(base, 2*mib), alloc(base, 1000, 1024), free(base, 1000, 1024),
			unmap(base, mib), grow(base+8*mib, 4*mib), alloc(base+8*mib, 3*mib, 4*mib)},
			"event 6 (alloc): expected 4194304 bytes mapped after it, found maps and unmaps that leave 5242880"},
		{"a give-back of what is in use", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), unmap(base, 2*mib)},
			"event 3 (unmap): expected an unmap of pages that are mapped and within one free chunk, found an unmap of 2097152 bytes at 0x40000000000"},
		{"on a stream that is not its arena's", []trace.Event{arena("plain"), grow(base, 2*mib), onStream(5, alloc(base, 1000, 1024))},
			"event 2 (alloc): expected the stream of its arena, 0, found stream 5"},
		{"used on its arena's stream", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), use(base, 0), free(base, 1000, 1024),
			alloc(base, 1000, 1024)}, ""},
		{"a time before the last", []trace.Event{arena("plain"), at(7e6, grow(base, 2*mib)), at(6e6, alloc(base, 1000, 1024)), at(5e6, free(base, 1000, 1024))},
			"event 3 (free): expected a time of 7000000 ns or later, that of event 1, found 5000000 ns; one of both was changed"},
		{"an iteration twice", []trace.Event{arena("plain"), {Kind: trace.KindIteration}, {Kind: trace.KindIteration}},
			"event 2 (iteration): expected the end of iteration 1, found that of iteration 0"},
		{"a phase that ends twice", []trace.Event{{Kind: trace.KindPhaseBegin}, {Kind: trace.KindPhaseEnd}, {Kind: trace.KindPhaseEnd}},
			`event 2 (phase_end): expected the end of a phase that has begun, found that of ""`},
		{"freed twice while pending", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), use(base, 1), free(base, 1000, 1024), free(base, 1000, 1024)},
			"event 5 (free): expected no second free of a block whose free_done is pending, found a free of 0x40000000000"},
		{"used while pending", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), use(base, 1), free(base, 1000, 1024), use(base, 2)},
			"event 5 (stream_use): expected the address of a block in use, found 0x40000000000"},
		{"done without a free", []trace.Event{arena("plain"), grow(base, 2*mib), alloc(base, 1000, 1024), {Kind: trace.KindFreeDone, Addr: base}},
			"event 3 (free_done): expected a block that was freed and that another stream used, found 0x40000000000"},
		{"an arena twice", []trace.Event{arena("plain"), arena("plain")},
			"event 1 (arena): expected an arena that is new, found arena 0 a second time"},
		{"an arena of nobody", []trace.Event{arena("plain"), {Kind: trace.KindFree, Arena: 3}},
			"event 1 (free): expected an arena that an event before it describes, found arena 3"},
		{"a growth of no name", []trace.Event{options(3)},
			`event 0 (arena): expected options of an arena, found "growth=thrice": unknown growth "thrice"`},
		{"a headroom below zero", []trace.Event{options(4)},
			`event 0 (arena): expected options of an arena, found "growth=double headroom=-5": headroom="-5" is not a number of bytes`},
		{"an odd granularity", []trace.Event{options(5)},
			`event 0 (arena): expected options of an arena, found "growth=double headroom=0 fraction=0 gc=0 granularity=1000 coalesces=1": bfc: granularity 1000 is not a power of two of at least 256`},
		{"somebody else's", []trace.Event{options(0), alloc(77, 1, 1), free(78, 2, 2), unmap(3, 3)}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if _, wrong := replayAll(renumber(test.events), texts); wrong != nil {
				got = wrong.Error()
			}
			assert.Diff(t, test.want, got, "mismatch differs")
		})
	}
}

// TestReservation: growths lie one behind the other until one that does not fit the first
// reservation is granted or refused.
func TestReservation(t *testing.T) {
	const base = 1 << 42
	grow := func(addr, bytes int64) trace.Event {
		return trace.Event{Kind: trace.KindMap, Addr: addr, Requested: bytes, Provided: bytes}
	}
	refused := func(bytes int64) trace.Event { return trace.Event{Kind: trace.KindGrowFailed, Requested: bytes} }
	for _, test := range []struct {
		name   string
		events []trace.Event
		ok     bool
	}{
		{"behind", []trace.Event{grow(base, 4*mib), grow(base+4*mib, 4*mib)}, true},
		{"not behind", []trace.Event{grow(base, 4*mib), grow(base+6*mib, 2*mib)}, false},
		{"not at the start", []trace.Event{grow(base+2*mib, 2*mib)}, false},
		{"what does not fit goes elsewhere", []trace.Event{grow(base, 6*mib), grow(base+gib, 4*mib), grow(base+2*gib, 2*mib)}, true},
		{"refused, and would have fitted", []trace.Event{grow(base, 4*mib), refused(4 * mib), grow(base+gib, 2*mib)}, false},
		{"refused, and would not have fitted", []trace.Event{grow(base, 4*mib), refused(4*mib + 1), grow(base+gib, 2*mib)}, true},
	} {
		s := &script{granularity: 2 * mib, coalesces: true, events: test.events, room: reservation{next: base, end: base + 8*mib, known: true}}
		for _, e := range test.events {
			s.Grow(uint64(e.Requested))
		}
		ok := s.wrong == nil
		assert.That(t, ok == test.ok, "%s: mismatch %v, want one: %v", test.name, s.wrong, !test.ok)
	}
}
