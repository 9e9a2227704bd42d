package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// counted is the job with the totals that the hook writes: before each iteration event, and at the end. The phase "step" begins with each
// iteration.
func (j *job) counted() *job {
	out := &job{texts: slices.Concat(j.texts, []string{"of=requests", "of=frees", "of=calls", "of=events", "step"})}
	of := func(n int) int32 { return int32(len(j.texts) + n) }
	var s sums
	totals := func(last int64) {
		for _, e := range []trace.Event{
			{Addr: s.requests, Requested: s.requested, Context: of(0)}, {Addr: s.frees, Requested: s.freed, Context: of(1)},
			{Device: trace.NoDevice, Addr: 7, Requested: 900, Provided: 100, Context: of(2)}, {Device: trace.NoDevice, Requested: last, Context: of(3)},
		} {
			e.Kind, e.Arena = trace.KindTotals, trace.NoArena
			if e.Context == of(3) {
				e.Addr = int64(len(out.events))
			}
			out.add(e)
		}
	}
	phase := func(kind trace.Kind) {
		out.add(trace.Event{Kind: kind, Arena: trace.NoArena, Device: trace.NoDevice, Context: of(4)})
	}
	phase(trace.KindPhaseBegin)
	for _, e := range j.events {
		switch e.Kind {
		case trace.KindAlloc:
			s.request(&e)
		case trace.KindFree:
			s.free(&e)
		case trace.KindIteration:
			phase(trace.KindPhaseEnd)
			totals(0)
		}
		out.add(e)
		if e.Kind == trace.KindIteration {
			phase(trace.KindPhaseBegin)
		}
	}
	phase(trace.KindPhaseEnd)
	totals(1)
	return out
}

// life is the positions of the events of a block, from its alloc on.
func (j *job) life(at int64) []int {
	alloc := &j.events[at]
	positions := []int{int(at)}
	for i := int(at) + 1; i < len(j.events); i++ {
		e := &j.events[i]
		if e.Arena != alloc.Arena || e.Addr != alloc.Addr {
			continue
		}
		switch e.Kind {
		case trace.KindAlloc:
			return positions
		case trace.KindStreamUse, trace.KindFree, trace.KindFreeDone, trace.KindShrink:
			positions = append(positions, i)
		}
	}
	return positions
}

// without leaves out events.
func without(events []trace.Event, positions ...int) []trace.Event {
	var left []trace.Event
	for i, e := range events {
		if !slices.Contains(positions, i) {
			left = append(left, e)
		}
	}
	return left
}

// tampered verifies the job after a change, with sequence numbers and checksums that are right for what it says.
func (j *job) tampered(t *testing.T, edit func(events []trace.Event) []trace.Event) *Mismatch {
	t.Helper()
	changed := &job{texts: j.texts, events: renumber(edit(slices.Clone(j.events)))}
	result, err := verifyPath(t, changed.write(t, dataset.Ending{State: dataset.StateClosed}, dataset.WriterOptions{}))
	var wrong *Mismatch
	if err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	if err == nil && result.Counted != result.Events {
		t.Errorf("%d of %d events are counted", result.Counted, result.Events)
	}
	return wrong
}

// TestDroppedPairs: no block can be left out with all its events, whatever else then lies where it would have. The replay alone sees about
// two of three.
func TestDroppedPairs(t *testing.T) {
	j := story(t).counted()
	byTotals := 0
	for at := 0; at < len(j.events); at++ {
		if at%211 != 0 {
			continue
		}
		for j.events[at].Kind != trace.KindAlloc {
			at++
		}
		wrong := j.tampered(t, func(events []trace.Event) []trace.Event { return without(events, j.life(int64(at))...) })
		if wrong == nil {
			t.Errorf("nothing is wrong without the block of event %d", at)
		} else if wrong.Kind == trace.KindTotals {
			byTotals++
		}
	}
	assert.That(t, byTotals != 0, "the replay alone saw all of them, so that this test shows nothing of the totals")
}

// TestTampering: what verify names, and what it does not claim to see.
func TestTampering(t *testing.T) {
	j := story(t).counted()
	if wrong := j.tampered(t, func(events []trace.Event) []trace.Event { return events }); wrong != nil {
		t.Fatal(wrong)
	}
	within := j.nth(t, 3000, func(e *trace.Event) bool {
		return e.Kind == trace.KindAlloc && e.Requested%256 > 1 && len(j.life(e.Seq)) == 2
	})
	beside := j.nth(t, 1, func(e *trace.Event) bool {
		return e.Seq > within && e.Device == j.events[within].Device && e.Kind == trace.KindAlloc && e.Requested%256 > 1 && e.Requested%256 < 255 && len(j.life(e.Seq)) == 2
	})
	mark := j.nth(t, 20, kind(trace.KindIteration))
	each := func(change func(e *trace.Event)) func([]trace.Event) []trace.Event {
		return func(events []trace.Event) []trace.Event {
			for _, at := range j.life(within) {
				change(&events[at])
			}
			return events
		}
	}
	first := func(change func(e *trace.Event)) func([]trace.Event) []trace.Event {
		return func(events []trace.Event) []trace.Event { change(&events[within]); return events }
	}
	drop := func(at int64) func([]trace.Event) []trace.Event {
		return func(events []trace.Event) []trace.Event { return without(events, int(at)) }
	}
	cut := func(left int64) func([]trace.Event) []trace.Event {
		return func(events []trace.Event) []trace.Event { return events[:left] }
	}
	n := int64(len(j.events))
	for _, c := range []struct {
		name string
		edit func(events []trace.Event) []trace.Event
		want string // in the mismatch; "" where there is none
	}{
		{"size within the chunk", each(func(e *trace.Event) { e.Requested-- }), "(totals): expected"},
		{"stream", each(func(e *trace.Event) { e.Stream += 8 }), "expected the stream of its arena"},
		{"a second later", first(func(e *trace.Event) { e.Time += 1e9 }), "one of both was changed"},
		{"a tenth of a second earlier", first(func(e *trace.Event) { e.Time = max(0, e.Time-1e8) }), "one of both was changed"},
		{"a mark seconds later", func(events []trace.Event) []trace.Event { events[mark].Time += 5e9; return events }, "one of both was changed"},
		{"a mark seconds earlier", func(events []trace.Event) []trace.Event { events[mark].Time -= 5e9; return events }, "one of both was changed"},
		{"an iteration mark less", drop(mark), "found 1 event less, between event"},
		{"a phase that does not begin", drop(mark + 1), "expected the end of a phase that has begun"},
		{"a phase that does not end", drop(mark - 5), "(totals): expected"},
		{"the end of another phase", func(events []trace.Event) []trace.Event { events[mark-5].Context = 0; return events }, "expected the end of a phase that has begun"},
		{"another iteration's number", func(events []trace.Event) []trace.Event { events[mark].Requested++; return events }, "expected the end of iteration 20"},
		{"a tail less", cut(n - 300), "expected the totals with which a process ends behind it"},
		{"a tail less, up to a mark", cut(mark), "expected the totals with which a process ends behind it"},
		{"the last event less", cut(n - 1), "expected the totals with which a process ends behind it"},
		{"totals that fit what is there", func(events []trace.Event) []trace.Event { events[n-1].Addr--; return events }, "(totals): expected"},

		{"two sizes of one sum", func(events []trace.Event) []trace.Event {
			by := int64(1)
			for _, block := range [][]int{j.life(within), j.life(beside)} {
				for _, at := range block {
					events[at].Requested -= by
				}
				by = -by
			}
			return events
		}, ""},
		{"a nanosecond later", first(func(e *trace.Event) { e.Time++ }), ""},
		{"another origin", first(func(e *trace.Event) { e.Context = 1 }), ""},
		{"another thread", first(func(e *trace.Event) { e.Thread++ }), ""},
	} {
		wrong := j.tampered(t, c.edit)
		if (wrong != nil) != (c.want != "") || wrong != nil && !strings.Contains(wrong.Error(), c.want) {
			t.Errorf("%s: found %v, want %q", c.name, wrong, c.want)
		}
	}
}
