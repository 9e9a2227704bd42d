package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// engine makes the events of an engine's start; numbers of blocks are those of [job.alloc].
type engine struct {
	*job
	next int64
	used []accounting.Used
}

// read is a reading of so many MiB before the next event.
func (e *engine) read(size int64) {
	e.used = append(e.used, accounting.Used{Time: int64(len(e.events))*1e6 - 5e5, Bytes: size * mib})
}

func (e *engine) phase(name string, work func()) {
	e.add(trace.KindPhaseBegin, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, name)
	work()
	e.add(trace.KindPhaseEnd, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, name)
}

// take allocates so many MiB in an arena, and returns the block's number.
func (e *engine) take(arena, size int64) int64 {
	e.next++
	e.alloc(e.next, size)
	e.events[len(e.events)-1].Arena = int32(arena)
	return e.next
}

// graph captures rows: 12 MiB each, and half of them again, both gone at its end. captured: the recording says so.
func (e *engine) graph(rows int64, captured bool) {
	if captured {
		e.add(trace.KindCaptureBegin, trace.Event{Stream: 5}, "pool=0.1")
	}
	x := e.take(1, 24*rows)
	y := e.take(1, 12*rows)
	e.free(x).free(y)
	if captured {
		e.add(trace.KindCaptureEnd, trace.Event{Stream: 5}, "pool=0.1")
	}
}

const kvToken = 1 << 20 // bytes

// newEngine is up to the captures: 300 MiB of weights, a batch of 80 MiB beside them, a cache of 380 tokens of a MiB and
// 20 MiB of states, and a context of 500 MiB, of which 100 come after the first request.
func newEngine(kv string, marked bool) *engine {
	e := &engine{job: newJob()}
	e.overhead(400, "what=context\thow=total")
	e.phase("load", func() {
		for range 3 {
			e.take(0, 100)
		}
	})
	e.overhead(100, "what=module\thow=total")
	e.phase("profile", func() {
		x, y := e.take(0, 60), e.take(0, 20)
		e.free(x).free(y)
	})
	e.add(trace.KindReclaim, trace.Event{Arena: trace.NoArena}, "empty_cache")
	e.phase(kv, func() {
		e.take(0, 200)
		e.take(0, 200)
	})
	if marked {
		e.add(trace.KindKVCache, trace.Event{Arena: trace.NoArena, Stream: 1, Requested: 380, Provided: kvToken}, "layout=paged\tblock=16")
	}
	pool := trace.Event{Arena: 1, Addr: 1 << 45, Requested: 64 << 30, Provided: 64 << 30}
	e.add(trace.KindArena, pool, "growth=needed granularity=2097152 pool=0.1 tag= main=0")
	return e
}

func (e *engine) plan(t *testing.T, o PlanOptions) *Plan {
	t.Helper()
	o.Total = 3 << 30 // of which the driver has 2 GiB to give
	e.add(trace.KindDeviceUsed, trace.Event{Arena: trace.NoArena, Requested: 2 << 30, Provided: 1 << 30}, "")
	process := e.process("pid1")
	process.Used = map[int32][]accounting.Used{0: e.used}
	p, err := PlanEngine(process, o)
	assert.NoError(t, err)
	parts := p.Weights + p.Workspaces + p.Activations + p.Graphs + p.DriverGraphs + p.NCCL + p.Libraries + p.Driver + p.Others + p.Left
	assert.Equal(t, parts, p.Total, "%+v", p)
	return p
}

// TestPlanEngine: the parts by hand. Graphs of 4, 2 and 1 rows take 144 MiB, as the first; the same from the phases of a dry
// run, which has no captures.
func TestPlanEngine(t *testing.T) {
	for _, captured := range []bool{true, false} {
		e := newEngine("cache", true)
		for _, rows := range []int64{4, 2, 1} {
			e.phase(fmt.Sprintf("decode %d", rows), func() { e.graph(rows, captured) })
		}
		e.phase("serve", func() { e.free(e.take(0, 60)) })
		p := e.plan(t, PlanOptions{Others: 30 * mib, Workspaces: 10 * mib})
		assert.Equal(t, p.Weights, 290*mib)
		assert.Equal(t, p.Workspaces, 10*mib)
		assert.Equal(t, p.Activations, 80*mib)
		assert.Equal(t, p.Graphs, 144*mib)
		assert.Equal(t, p.Driver, 500*mib)
		assert.Equal(t, p.Left, (2048-300-80-144-500-30)*mib)
		assert.Equal(t, p.Recorded, 400*mib)
		assert.Equal(t, p.Fixed, 20*mib)
		assert.Equal(t, p.Margin, 2*2*mib) // two blocks of the cache
		assert.Equal(t, p.Tokens, (990-20)/16*16)
		assert.Equal(t, p.Sequences, 4)
		assert.That(t, *p.Fails == PlanFailure{p.Fails.Seq, 20 * mib, "profile"}, "%+v", p.Fails)
		l := p.Lists[0]
		assert.That(t, l.Name == "decode" && l.Captured == 3 && slices.Equal(l.Sizes, []int64{4, 2, 1}), "%+v", l)
		assert.That(t, l.FromThree == 144*mib && !p.Predicted, "%+v", l)
		// The first of vLLM's estimate is 144, the second grows nothing: a MiB for each of the other two.
		assert.Equal(t, p.Linear, 146*mib)
		// 100 of others came after the first request: 990 + 300 + 80 + 100 of 2048 is 0.7177, with the estimate 0.7890, of which
		// (2048 - 400 - 30)/2048 = 0.7900 is free.
		assert.Equal(t, p.Plain.Value, 0.7177)
		assert.Equal(t, p.Utilization.Value, 0.7890)
		assert.That(t, !p.Utilization.Capped && p.Utilization.KV <= p.KV && p.KV-p.Utilization.KV < mib, "%+v", p.Utilization)
		// What SGLang calls static: 990 + 300 + 100 of 1618.
		assert.Equal(t, p.Static.Value, 0.8590)
		assert.That(t, p.Static.KV <= p.KV && p.KV-p.Static.KV < mib, "%+v", p.Static)
	}
}

// TestPlanPredicted: of three captures, a list of eight sizes. What the driver takes for a graph it takes for the others, too.
func TestPlanPredicted(t *testing.T) {
	e := newEngine("kv_cache", true)
	e.read(500)
	for _, rows := range []int64{8, 7, 6} {
		e.phase(fmt.Sprintf("decode %d", rows), func() {
			e.graph(rows, true)
			e.overhead(3, "what=graph\thow=total")
		})
	}
	e.read(509)
	p := e.plan(t, PlanOptions{Lists: map[string][]int64{"decode": {1, 2, 3, 4, 5, 6, 7, 8}}})
	assert.That(t, p.Predicted && slices.Equal(p.Lists[0].Sizes, []int64{8, 7, 6, 5, 4, 3, 2, 1}), "%+v", p.Lists[0])
	assert.Equal(t, p.Graphs, 288*mib)
	assert.Equal(t, p.Driver, 500*mib)
	assert.Equal(t, p.DriverGraphs, 8*3*mib)
	assert.Equal(t, p.Margin, 4*mib+288*mib/50+2*mib*5/3) // five graphs of which a step in three is not seen
	assert.Equal(t, p.Lists[0].Linear, (288+7)*mib)
	assert.Equal(t, e.plan(t, PlanOptions{Card: 4 << 30}).Total, 4<<30) // whatever the recorded one has
	// Without a list it is vLLM's up to the largest: 8, 4, 2, 1.
	assert.That(t, slices.Equal(e.plan(t, PlanOptions{}).Lists[0].Sizes, []int64{8, 4, 2, 1}), "sizes")
}

// TestPlanUnmarked: the cache is what is largest after the batch. Graphs without a phase have the sizes of the list, the largest first.
func TestPlanUnmarked(t *testing.T) {
	e := newEngine("", false)
	for _, rows := range []int64{4, 2, 1} {
		e.graph(rows, true)
	}
	p := e.plan(t, PlanOptions{})
	assert.That(t, p.Recorded == 400*mib && p.Weights == 300*mib && p.Tokens == 0 && p.Sequences == 0 && p.Graphs == 144*mib, "%+v", p)
	assert.That(t, p.Lists[0].Captured == 3 && len(p.Lists[0].Sizes) == 0 && p.Lists[0].Why != "" && p.Lists[0].FromThree == -1, "%+v", p.Lists[0])
	p = e.plan(t, PlanOptions{Lists: map[string][]int64{"": {1, 2, 4}}})
	assert.That(t, !p.Predicted && p.Graphs == 144*mib && p.Sequences == 4 && p.Lists[0].FromThree == 144*mib, "%+v", p)
	_, err := PlanEngine(newEngine("kv", true).process("pid1"), PlanOptions{Total: 2 << 30})
	assert.That(t, errors.Is(err, ErrNoStart), "%v", err)
}

// TestPlanTooMuch: what no card has is an error, or no prediction.
func TestPlanTooMuch(t *testing.T) {
	e := newEngine("kv", true)
	for _, rows := range []int64{4, 3, 2} {
		e.phase(fmt.Sprintf("decode %d", rows), func() { e.graph(rows, true) })
	}
	p := e.plan(t, PlanOptions{Lists: map[string][]int64{"": {1 << 20, 1 << 19}}})
	assert.That(t, !p.Predicted && p.Lists[0].Why != "" && p.Graphs == 144*mib, "%+v", p.Lists[0])
	for range 40 {
		e.take(1, 1<<20)
	}
	_, err := PlanEngine(e.process("pid1"), PlanOptions{Total: 2 << 30})
	assert.That(t, err != nil && strings.Contains(err.Error(), "more than any card has"), "%v", err)
	e.take(0, 1<<20+1)
	_, err = PlanEngine(e.process("pid1"), PlanOptions{Total: 2 << 30})
	assert.That(t, err != nil && strings.Contains(err.Error(), "more than any card has"), "%v", err)
}

// TestPlanCapped: vLLM refuses to start with a share of the card that is not free, and gives the cache less.
func TestPlanCapped(t *testing.T) {
	e := newEngine("kv", true)
	for rows := int64(8); rows > 0; rows-- { // the pool takes 288 MiB, the estimate is 295
		e.phase(fmt.Sprintf("decode %d", rows), func() { e.graph(rows, true) })
	}
	p := e.plan(t, PlanOptions{})
	assert.That(t, p.Utilization.Capped && !p.Plain.Capped && p.Graphs == 288*mib && p.Linear == 295*mib, "%+v", p)
	assert.That(t, p.KV-p.Utilization.KV > 2*mib && p.KV-p.Plain.KV < mib, "%d, with the estimate %d, without %d", p.KV, p.Utilization.KV, p.Plain.KV)
}

// TestDefaultSizes: vLLM's list up to 512 has 51 sizes.
func TestDefaultSizes(t *testing.T) {
	sizes := defaultSizes(512)
	assert.That(t, len(sizes) == 51 && slices.Equal(sizes[:3], []int64{512, 496, 480}) && slices.Equal(sizes[16:18], []int64{256, 248}) &&
		slices.Equal(sizes[47:], []int64{8, 4, 2, 1}), "%v", sizes)
}
