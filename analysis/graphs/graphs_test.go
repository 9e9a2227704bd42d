package graphs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

// run analyzes what was recorded.
func run(t testing.TB, r *modeltest.Recorder, opt analysis.Options) *analysis.Result {
	t.Helper()
	opt.Text = r.Strings.Text
	result, err := analysis.Run(modeltest.Source(r.Events, 7), opt)
	assert.NoError(t, err)
	return result
}

// capturing is a job that captures graphs.
type capturing struct {
	*modeltest.Recorder
	t        *testing.T
	captures int64
	arenas   int32
}

func newCapturing(t *testing.T) *capturing { return &capturing{Recorder: modeltest.New(), t: t} }

// heap is an arena of the job: a bfc allocator whose memory and blocks it records.
type heap struct {
	*bfc.Allocator
	c  *capturing
	id int32
}

// arena describes an arena with options beyond those of all.
func (c *capturing) arena(base int64, options string) int32 {
	c.arenas++
	c.Add(trace.Event{Kind: trace.KindArena, Arena: c.arenas, Addr: base, Provided: 1 << 30, Context: c.Strings.Intern("growth=needed granularity=2097152 coalesces=1 " + options)})
	return c.arenas
}

func (c *capturing) pool(name string) *heap {
	h := &heap{c: c}
	h.id = c.arena(int64(c.arenas+1)<<40, "pool="+name)
	a, err := bfc.New(bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, &overheard{bfc.NewDevice(bfc.DeviceOptions{Base: uint64(h.id) << 40, VMM: true, Granularity: 2 << 20, RefuseUnmap: refuse}), h})
	if err != nil {
		c.t.Fatal(err)
	}
	h.Allocator = a
	return h
}

// refuse keeps what a pool has: it is held.
func refuse(int, uint64, uint64) bool { return true }

// overheard is a device whose grants are events of a heap.
type overheard struct {
	*bfc.Device
	h *heap
}

func (d *overheard) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	addr, granted, ok = d.Device.Grow(bytes)
	d.h.c.Add(trace.Event{Kind: trace.KindMap, Arena: d.h.id, Addr: int64(addr), Requested: int64(bytes), Provided: int64(granted)})
	return addr, granted, ok
}

func (h *heap) alloc(bytes int64) bfc.Block {
	b, _ := h.Alloc(uint64(bytes))
	h.c.Add(trace.Event{Kind: trace.KindAlloc, Arena: h.id, Addr: int64(b.Addr), Requested: bytes, Provided: int64(b.Size)})
	return b
}

func (h *heap) free(blocks ...bfc.Block) {
	for _, b := range blocks {
		if _, err := h.Free(b.Addr); err != nil {
			h.c.t.Fatal(err)
		}
		h.c.Add(trace.Event{Kind: trace.KindFree, Arena: h.id, Addr: int64(b.Addr), Requested: int64(b.Requested), Provided: int64(b.Size)})
	}
}

// capture captures what do does on a stream.
func (c *capturing) capture(stream int64, context string, do func()) {
	c.Stream = stream
	c.captures++
	c.Add(trace.Event{Kind: trace.KindCaptureBegin, Arena: trace.NoArena, Requested: c.captures, Context: c.Strings.Intern(context)})
	do()
	c.captures--
	c.Add(trace.Event{Kind: trace.KindCaptureEnd, Arena: trace.NoArena, Requested: c.captures})
	c.Stream = 0
}

func (c *capturing) run() (*analysis.DeviceResult, error) {
	r, err := analysis.Run(modeltest.Source(c.Events, 7), analysis.Options{Text: c.Strings.Text})
	if err != nil {
		return nil, err
	}
	return &r.Devices[0], nil
}

func (c *capturing) graphs() *graphs.Result {
	c.t.Helper()
	d, err := c.run()
	if err != nil {
		c.t.Fatal(err)
	}
	if d.Graphs == nil {
		c.t.Fatal("no graphs")
	}
	return d.Graphs
}

var noTimes = cmpopts.IgnoreFields(graphs.Shape{}, "Seq", "Start", "Time")

// layers is a small model: an output of n MiB that stays, and two pieces of work of 2n MiB each
// of which the second is made when the first is there.
func layers(h *heap, n int64) bfc.Block {
	out := h.alloc(n * mib)
	x := h.alloc(2 * n * mib)
	y := h.alloc(2 * n * mib)
	h.free(x, y)
	return out
}

// Three captures with a pool each take the sum; what they would take otherwise is replayed.
func TestGraphsInPoolsOfTheirOwn(t *testing.T) {
	c := newCapturing(t)
	for i, n := range []int64{2, 4, 8} {
		h := c.pool(fmt.Sprintf("0.%d", i+1))
		c.capture(7, "", func() { layers(h, n) })
	}
	got := c.graphs()
	store := func(pool string, n int64) graphs.Store {
		return graphs.Store{
			Pool: pool, Physical: 5 * n * mib, Final: 5 * n * mib, Sum: 5 * n * mib, Max: 5 * n * mib, Distinct: 5 * n * mib,
			Shapes: []graphs.Shape{{Captures: 1, Requested: 5 * n * mib, Provided: 5 * n * mib, Own: 5 * n * mib, Address: 5 * n * mib, Outputs: n * mib}},
		}
	}
	want := &graphs.Result{
		Captures: 3, Stores: []graphs.Store{store("0.1", 2), store("0.2", 4), store("0.3", 8)},
		WhatIfs: []graphs.WhatIf{{
			Shapes: 3, Unnamed: 3, Model: "bfc", Physical: 70 * mib, Recorded: 70 * mib, Separate: 70 * mib, Largest: 40 * mib,
			// After the largest: 8 MiB stay and 32 are free, which has room for what comes.
			Descended: 40 * mib,
			// The first leaves 8 of 10 free, the second then lacks 4 and 8, and the third, with 8 at
			// the end free, 8 and 16.
			Ascended: 46 * mib,
			Aliased:  40 * mib, Outlive: 14 * mib,
		}},
	}
	assert.Diff(t, want, got, noTimes, "graphs")
}

// What captures report of persistent inputs is a number up to what the process ever had on the
// device: here 6 MiB mapped, and 6 MiB of a library.
func TestGraphsDoubtInputs(t *testing.T) {
	for inputs, want := range map[int64]graphs.Inputs{
		12 * mib:              {Sum: 12*mib + 5, Max: 12 * mib},
		12*mib + 1:            {Sum: -1, Max: -1, Unknown: 1},
		0x557_0000_0000:       {Sum: -1, Max: -1, Unknown: 1}, // an address, not a size
		0x7fff_ffff_ffff_ffff: {Sum: -1, Max: -1, Unknown: 1},
		-1:                    {Sum: 5, Max: 5}, // no number at all
	} {
		c := newCapturing(t)
		h := c.pool("0.1")
		c.Add(trace.Event{Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Addr: 1 << 40, Provided: 6 * mib})
		c.capture(7, "pool=0.1\tname=a\tinputs=5", func() { layers(h, 1) })
		c.capture(7, fmt.Sprintf("pool=0.1\tname=b\tinputs=%d", inputs), func() { h.alloc(4 * mib) })
		got, shape := c.graphs().Stores[0], want.Max
		if want.Unknown == 0 && inputs < 0 {
			shape = 0
		}
		assert.That(t, got.Inputs == want && got.Shapes[1].Inputs == shape,
			"%d bytes of inputs: %+v and %d, want %+v and %d", inputs, got.Inputs, got.Shapes[1].Inputs, want, shape)
	}
}

// Two captures in one pool: the second is served from what the first left, and goes on behind
// it. A name, the hook's or the phase's, makes pieces one shape.
func TestGraphsInOnePool(t *testing.T) {
	c := newCapturing(t)
	h := c.pool("0.5")
	phase := func(kind trace.Kind, name string) {
		c.Add(trace.Event{Kind: kind, Arena: trace.NoArena, Context: c.Strings.Intern(name)})
	}
	phase(trace.KindPhaseBegin, "bs1")
	phase(trace.KindPhaseBegin, "forward")
	c.capture(7, "pool=0.5", func() { layers(h, 1) })
	phase(trace.KindPhaseEnd, "forward")
	phase(trace.KindPhaseEnd, "bs1")
	var kept bfc.Block
	c.capture(7, "pool=0.5\tname=bs 2\tinputs=4096", func() { kept = layers(h, 2) })
	c.capture(7, "name=bs 2\tinputs=8192", func() { h.free(h.alloc(3 * mib)) })
	c.capture(9, "pool=0.6\tname=empty", func() {})
	h.free(kept) // when all is over
	got := c.graphs()
	// The first: 1 at 0, 2 at 1, and 2 at 3 in the 3 to the end of the grant. The second: 2 at 1,
	// 4 at 3 in 5, 4 at 8. Its second piece: 3 at 3.
	want := &graphs.Result{
		Captures: 4,
		Stores: []graphs.Store{
			{
				Pool: "0.5", Physical: 12 * mib, Final: 12 * mib, Sum: 18 * mib, Max: 12 * mib, Distinct: 12 * mib, Saved: 6 * mib,
				Inputs: graphs.Inputs{Sum: 8192, Max: 8192},
				Shapes: []graphs.Shape{
					{Name: "bs1", Captures: 1, Requested: 5 * mib, Provided: 6 * mib, Shared: 6 * mib, Address: 6 * mib, Outputs: mib},
					{Name: "bs 2", Captures: 2, Requested: 10 * mib, Provided: 11 * mib, Own: 6 * mib, Shared: 6 * mib, Address: 12 * mib, Outputs: 2 * mib, Inputs: 8192},
				},
			},
			{Pool: "0.6", Shapes: []graphs.Shape{{Name: "empty", Captures: 1}}},
		},
		WhatIfs: []graphs.WhatIf{{
			Pool: "0.5", Shapes: 2, Model: "bfc", Physical: 12 * mib, Recorded: 12 * mib,
			Separate: 16 * mib, Largest: 10 * mib,
			Descended: 10 * mib, Ascended: 12 * mib, Aliased: 10 * mib, Outlive: 3 * mib,
		}},
	}
	assert.Diff(t, want, got, noTimes, "graphs")
	if s := got.Stores[0].Shapes; s[1].Time != 8_000+3_000 || s[0].Seq != 3 || s[0].Start != 3_000 {
		t.Errorf("captures took %d and %d ns, the first shape is of seq %d", s[0].Time, s[1].Time, s[0].Seq)
	}
}

// What is bound again in every capture is freed in the next one: the replay of another order
// lets it live as long.
func TestOutputsThatAreReplaced(t *testing.T) {
	c := newCapturing(t)
	h := c.pool("0.5")
	var out bfc.Block
	for i, n := range []int64{8, 4, 2} {
		c.capture(7, "", func() {
			x := h.alloc(2 * n * mib)
			next := h.alloc(n * mib)
			h.free(x)
			if i > 0 {
				h.free(out)
			}
			out = next
		})
	}
	w := c.graphs().WhatIfs[0]
	// Largest first: x 0..16, out 16..24; x 0..8, out 8..12, and the first is freed.
	// Smallest first: x 0..4, out 4..6; 4 of 4..6 is taken, so x 6..14 and out 0..4; then
	// 2 of 14 are free at 4..6 and 8 at the end, x 6..22 and out 22..30.
	want := graphs.WhatIf{
		Pool: "0.5", Shapes: 3, Unnamed: 3, Model: "bfc", Physical: 24 * mib, Recorded: 24 * mib, Separate: 42 * mib, Largest: 24 * mib,
		Descended: 24 * mib, Ascended: 30 * mib, Aliased: 24 * mib, Outlive: 14 * mib,
	}
	assert.Diff(t, want, w, "what if")
}

// Whose an allocation is: that of the pool, of the stream where the pool is not known, or the
// only one; what another thread takes of another pool meanwhile is nobody's.
func TestWhoseAllocation(t *testing.T) {
	c := newCapturing(t)
	a, b, other := c.pool("0.1"), c.pool("0.2"), c.pool("0.3")
	c.capture(7, "name=a", func() {
		c.Stream = 8 // forked from the captured one
		a.alloc(1000)
		c.capture(9, "name=b\tpool=0.2", func() {
			b.alloc(2000)
			c.Stream = 7
			a.alloc(3000)
			b.alloc(4000)
			other.alloc(5000)
		})
		c.Stream = 7
	})
	var got []string
	for _, s := range c.graphs().Stores {
		for _, shape := range s.Shapes {
			got = append(got, fmt.Sprint(s.Pool, " ", shape.Name, " ", shape.Requested))
		}
	}
	assert.Diff(t, []string{"0.1 a 4000", "0.2 b 6000"}, got, "shapes")
}

// What is freed between two captures is in nobody's way; what a shape lets go of while another
// stream uses it is free when the shape is over; what is freed when all is over outlives all.
func TestFreesOutsideOfCaptures(t *testing.T) {
	c := newCapturing(t)
	h := c.pool("0.5")
	event := func(kind trace.Kind, b bfc.Block, stream int64) {
		c.Stream = stream
		c.Add(trace.Event{Kind: kind, Arena: h.id, Addr: int64(b.Addr)})
		c.Stream = 7
	}
	var last bfc.Block
	for _, n := range []int64{4, 8} {
		var between, waits bfc.Block
		c.capture(7, "", func() {
			between, waits, last = h.alloc(n*mib), h.alloc(n*mib), h.alloc(n*mib)
			event(trace.KindStreamUse, waits, 9)
			event(trace.KindFree, waits, 7)
		})
		event(trace.KindFreeDone, waits, 7)
		for _, b := range []bfc.Block{between, waits} {
			if _, err := h.Free(b.Addr); err != nil {
				t.Fatal(err)
			}
		}
		event(trace.KindFree, between, 7)
	}
	h.free(last)
	// In ascending order the last 4 of 12 stay, and one block of 8 fits in front of them. Nothing
	// follows the second, so all that it has then stays: in descending order 8 are free between
	// that, for two blocks of 4.
	want := graphs.WhatIf{
		Pool: "0.5", Shapes: 2, Unnamed: 2, Model: "bfc", Physical: 28 * mib, Recorded: 28 * mib, Separate: 36 * mib, Largest: 24 * mib,
		Descended: 28 * mib, Ascended: 28 * mib, Aliased: 24 * mib, Outlive: 20 * mib,
	}
	assert.Diff(t, want, c.graphs().WhatIfs[0], "what if")
}

// What a shape has let go of is not in the way of those that follow, however long it waits.
func TestFreesThatWaitLong(t *testing.T) {
	c := newCapturing(t)
	h := c.pool("0.5")
	var waits []bfc.Block
	for range 3 {
		c.capture(7, "", func() {
			b := h.alloc(4 * mib)
			waits = append(waits, b)
			c.Stream = 9
			c.Add(trace.Event{Kind: trace.KindStreamUse, Arena: h.id, Addr: int64(b.Addr)})
			c.Stream = 7
			c.Add(trace.Event{Kind: trace.KindFree, Arena: h.id, Addr: int64(b.Addr)})
		})
	}
	for _, b := range waits {
		c.Add(trace.Event{Kind: trace.KindFreeDone, Arena: h.id, Addr: int64(b.Addr)})
	}
	w := c.graphs().WhatIfs[0]
	assert.That(t, w.Physical == 12*mib && w.Recorded == 12*mib && w.Descended == 4*mib && w.Outlive == 0, "what if %+v", w)
}

// A graph memory splits wherever anything is left over, pools by their own policy.
func TestAliasedSplits(t *testing.T) {
	c := newCapturing(t)
	for i := range 2 {
		h := c.pool(fmt.Sprintf("0.%d", i+1))
		// In a pool 5 is given all 6 of the first growth, and 11 all 12 of the second.
		c.capture(7, "", func() { x, y := h.alloc(5*mib), h.alloc(11*mib); h.free(x, y) })
	}
	w := c.graphs().WhatIfs[0]
	assert.That(t, w.Recorded == 36*mib && w.Largest == 18*mib && w.Descended == 18*mib && w.Aliased == 16*mib, "what if %+v", w)
}

// Requests of blocks that a checkpoint brought back were not made: nothing is replayed.
func TestRestoredPoolsAreNotReplayed(t *testing.T) {
	c := newCapturing(t)
	h := c.pool("0.5")
	c.capture(7, "", func() { h.free(layers(h, 1)) })
	c.Add(trace.Event{Kind: trace.KindRestore, Arena: h.id, Addr: int64(h.id) << 40, Requested: 1000, Provided: 1024})
	c.capture(7, "", func() {})
	c.capture(7, "pool=0.5", func() {})
	w := c.graphs().WhatIfs[0]
	assert.That(t, w.Why != "" && w.Aliased == 0, "replayed: %+v", w)
}

// A native allocator's pages are its segments, and its own policy is replayed.
func TestGraphsNative(t *testing.T) {
	c := newCapturing(t)
	for i, size := range []int64{600_000, 3 * mib} {
		id, base := int32(i+1), int64(i+1)<<40
		c.arenas++
		c.Add(trace.Event{Kind: trace.KindArena, Arena: id, Context: c.Strings.Intern(fmt.Sprintf("allocator=native\tprovided=unknown\tcoalesces=0\tpool=0.%d", id))})
		c.capture(7, "", func() {
			add := func(kind trace.Kind, addr, requested, provided int64) {
				c.Add(trace.Event{Kind: kind, Arena: id, Addr: base + addr, Requested: requested, Provided: provided})
			}
			add(trace.KindMap, 0, 2*mib, 2*mib)
			add(trace.KindAlloc, 0, 1000, 1000)
			if i == 0 {
				add(trace.KindAlloc, 1024, size, size)
				return
			}
			add(trace.KindMap, 64*mib, 20*mib, 20*mib)
			add(trace.KindAlloc, 64*mib, size, size)
			add(trace.KindAlloc, 68*mib, 2*size, 2*size)
			add(trace.KindFree, 64*mib, size, size)
		})
	}
	got := c.graphs()
	want := &graphs.Result{
		Captures: 2,
		Stores: []graphs.Store{
			{Pool: "0.1", Physical: 2 * mib, Final: 2 * mib, Sum: 2 * mib, Max: 2 * mib, Distinct: 2 * mib, Shapes: []graphs.Shape{
				{Captures: 1, Requested: 601_000, Provided: -1, Own: 2 * mib, Address: 2 * mib, Outputs: 601_000},
			}},
			{Pool: "0.2", Physical: 22 * mib, Final: 22 * mib, Sum: 22 * mib, Max: 22 * mib, Distinct: 22 * mib, Shapes: []graphs.Shape{
				{Captures: 1, Requested: 9*mib + 1000, Provided: -1, Own: 22 * mib, Address: 22 * mib, Outputs: 6*mib + 1000},
			}},
		},
		WhatIfs: []graphs.WhatIf{{
			Shapes: 2, Unnamed: 2, Model: "torch", Physical: 24 * mib, Recorded: 24 * mib, Separate: 24 * mib, Largest: 22 * mib,
			Descended: 22 * mib, Ascended: 22 * mib, Aliased: 22 * mib, Outlive: 6*mib + 602_000,
		}},
	}
	assert.Diff(t, want, got, noTimes, "graphs")
}

func ofCaptures(m analysis.Metric) bool { return strings.HasPrefix(m.Name, "graphs.") }

func TestGraphMetrics(t *testing.T) {
	c := newCapturing(t)
	for _, n := range []int64{2, 4} {
		h := c.pool(fmt.Sprintf("0.%d", n))
		c.capture(7, "", func() { layers(h, n) })
	}
	shared := c.pool("0.9")
	for range 2 {
		c.capture(7, "", func() { h := layers(shared, 1); shared.free(h) })
	}
	d, err := c.run()
	assert.NoError(t, err)
	want := map[string]float64{
		"graphs.captures": 4, "graphs.physical": 36 * mib, "graphs.sum": 42 * mib, "graphs.max": 20 * mib, "graphs.saved": 6 * mib,
		"graphs.untouched": 0, "graphs.avoidable": 10 * mib,
	}
	for _, m := range analysis.Metrics() {
		if !ofCaptures(m) {
			continue
		}
		value, _, ok := m.Value(d.Subjects())
		assert.That(t, ok && value == want[m.Name], "%s = %v (%v), want %v", m.Name, value, ok, want[m.Name])
		if _, _, ok := m.Value((&analysis.DeviceResult{}).Subjects()); ok {
			t.Errorf("%s of a device without graphs", m.Name)
		}
		delete(want, m.Name)
	}
	assert.That(t, len(want) <= 0, "no metrics %v", want)
}

// A trace of more bytes than there are addresses is not replayed, and does no harm.
func TestGraphsOfTooManyBytes(t *testing.T) {
	c := newCapturing(t)
	for i := range int64(3) {
		id := c.arena(i<<60, fmt.Sprintf("pool=0.%d", i+1))
		c.Add(trace.Event{Kind: trace.KindMap, Arena: id, Addr: i << 60, Requested: 1 << 59, Provided: 1 << 59})
		c.capture(7, "", func() {
			c.Add(trace.Event{Kind: trace.KindAlloc, Arena: id, Addr: i << 60, Requested: 1 << 55, Provided: 1 << 59})
		})
	}
	w := c.graphs().WhatIfs[0]
	assert.That(t, w.Why != "" && w.Aliased == 0, "replayed: %+v", w)
}

// Where nothing can be replayed it says why.
func TestWhyNothingIsReplayed(t *testing.T) {
	for options, want := range map[string]string{
		"coalesces=0": "",
		"coalesces=1": "torch's expandable segments are not modelled",
	} {
		c := newCapturing(t)
		for i := range int64(2) {
			id := c.arenas + 1
			c.arenas++
			c.Add(trace.Event{Kind: trace.KindArena, Arena: id, Context: c.Strings.Intern(fmt.Sprintf("allocator=native\tprovided=unknown\t%s\tpool=0.%d", options, id))})
			c.Add(trace.Event{Kind: trace.KindMap, Arena: id, Addr: (i + 1) << 40, Requested: 2 * mib, Provided: 2 * mib})
			c.capture(7, "", func() {
				c.Add(trace.Event{Kind: trace.KindAlloc, Arena: id, Addr: (i + 1) << 40, Requested: 1000, Provided: 1000})
			})
		}
		w := c.graphs().WhatIfs[0]
		assert.That(t, w.Why == want && (w.Aliased > 0) == (want == ""), "%s: %+v", options, w)
	}
}
