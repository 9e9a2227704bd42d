package fit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// startOf is a start with three graphs in two pieces each and two whole ones. The driver takes 3 MiB for a piece and 6 for a whole one. reads
// says behind how many captures there is a reading.
func startOf(reads ...int64) *engine {
	e := newEngine("kv_cache", true)
	captured, driver := int64(0), int64(570) // of which 70 come after the context, unseen
	capture := func(rows, size int64) {
		e.graph(rows, true)
		captured, driver = captured+1, driver+size
	}
	read := func() {
		if slices.Contains(reads, captured) {
			e.read(driver)
		}
	}
	read()
	for i := range int64(3) {
		e.phase(fmt.Sprintf("pieces %d", 80-i*10), func() {
			capture(8-i, 3)
			capture(8-i, 3)
		})
		read()
	}
	for i := range int64(2) {
		e.phase(fmt.Sprintf("whole %d", 8-i), func() { capture(8-i, 6) })
		read()
	}
	e.phase("serve", func() { e.free(e.take(0, 10)) })
	return e
}

var eightEach = map[string][]int64{"pieces": {10, 20, 30, 40, 50, 60, 70, 80}, "whole": {1, 2, 3, 4, 5, 6, 7, 8}}

// TestPlanDriverGraphs: each list has what it takes, from readings between the lists or without any there. What else the driver has stays its own.
func TestPlanDriverGraphs(t *testing.T) {
	for _, c := range []struct {
		reads  []int64
		margin int64 // KiB, for steps of 2 MiB at readings before and after so many captures of those that are missing: 10 pieces, 6 whole
	}{
		{[]int64{0, 2, 6, 8}, 2048*10/6 + 2048*6/2},
		{[]int64{0, 6, 7, 8}, 2048*10/6 + 2048*6/2},
		{[]int64{0, 4, 8}, 2048*10/4 + 2048*6/2}, // two whole ones with two pieces
		{[]int64{0, 7, 8}, 2048*10/6 + 2048*6/1}, // a whole one with all pieces
	} {
		p := startOf(c.reads...).plan(t, PlanOptions{Lists: eightEach})
		assert.That(t, p.Predicted && p.DriverUnknown == "", "%v: %+v", c.reads, p)
		assert.Equal(t, p.Lists[0].Driver, 16*3*mib)
		assert.Equal(t, p.Lists[1].Driver, 8*6*mib)
		assert.Equal(t, p.DriverGraphs, (48+48)*mib)
		assert.Equal(t, p.Driver, 570*mib)
		assert.Equal(t, (p.Margin-4*mib-p.Graphs/50)/1024, c.margin)
	}
	p := startOf(0, 2, 6, 8).plan(t, PlanOptions{Lists: map[string][]int64{"pieces": {60, 70, 80}, "whole": {7, 8}}}) // as recorded
	assert.That(t, p.DriverGraphs == (18+12)*mib && p.Driver == 570*mib && p.Margin == 4*mib, "%+v", p)
}

// TestPlanDriverReadings: what the allocator and other libraries have is not the driver's. A reading right before a change may have it, and does
// not count.
func TestPlanDriverReadings(t *testing.T) {
	e := startOf()
	e.events = slices.DeleteFunc(e.events, func(ev trace.Event) bool { return ev.Kind == trace.KindOverhead })
	for i := range e.events {
		e.events[i].Seq, e.events[i].Time = int64(i), int64(i)*1e6
	}
	change := func(kind trace.Kind, size int64) {
		for range 3 { // time goes by
			e.add(trace.KindIteration, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, "")
		}
		e.add(kind, trace.Event{Provided: size * mib}, "")
	}
	change(trace.KindMap, 300)
	e.read(900)
	e.library(40, "libnccl.so")
	change(trace.KindUnmap, 100)
	e.read(200 + 40 + 560)
	change(trace.KindMap, 500)
	e.read(200 + 40 + 500 + 565)
	e.read(1 << 40) // no card has it
	e.mark()
	p := e.plan(t, PlanOptions{})
	assert.That(t, p.Driver == 565*mib && strings.Contains(p.DriverUnknown, "no readings"), "%d MiB, %q", p.Driver/mib, p.DriverUnknown)
}

// TestPlanDriverUnknown: without readings on both sides of captures.
func TestPlanDriverUnknown(t *testing.T) {
	for _, c := range []struct {
		reads []int64
		why   string
	}{
		{nil, "captures of pieces"}, {[]int64{0}, "captures of pieces"}, {[]int64{8}, "captures of pieces"}, {[]int64{6, 8}, "captures of pieces"},
		{[]int64{0, 6}, "captures of whole"},
	} {
		p := startOf(c.reads...).plan(t, PlanOptions{Lists: eightEach})
		assert.That(t, strings.Contains(p.DriverUnknown, c.why), "%v: %q", c.reads, p.DriverUnknown)
		assert.That(t, p.DriverGraphs == 0 && p.Lists[0].Driver == 0 && p.Lists[1].Driver == 0 && p.Driver >= 500*mib, "%v: %+v", c.reads, p)
	}
}

// TestPlanDriverSpikes: a reading while the cache is being made has memory that no event has yet; what shrinks behind the captures was there.
func TestPlanDriverSpikes(t *testing.T) {
	e := newEngine("kv_cache", true)
	idle := func() {
		for range 3 { // time goes by
			e.add(trace.KindIteration, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, "")
		}
	}
	for _, size := range []int64{300, 700, 700, 570, 570, 570, 3500, 570, 3500, 2000} {
		e.read(size)
		idle()
	}
	e.read(570)
	e.add(trace.KindMap, trace.Event{Provided: 20 * mib}, "") // which the reading may have
	idle()
	for i := range int64(3) {
		e.phase(fmt.Sprintf("decode %d", 8-i), func() { e.graph(8-i, true) })
	}
	for _, size := range []int64{4000, 579, 579, 400, 579, -200} {
		e.read(20 + size)
		idle()
	}
	p := e.plan(t, PlanOptions{Lists: map[string][]int64{"": {1, 2, 3, 4, 5, 6, 7, 8}}})
	assert.That(t, p.DriverUnknown == "" && p.Driver == 570*mib && p.DriverGraphs == 8*3*mib, "%q, %d, %d", p.DriverUnknown, p.Driver/mib, p.DriverGraphs/mib)
	e = startOf(0, 6, 8)
	e.read(-100) // the process is over, its arenas are not
	e.mark()
	p = e.plan(t, PlanOptions{Lists: eightEach})
	assert.That(t, p.DriverUnknown == "" && p.Driver == 570*mib && p.DriverGraphs == (48+48)*mib, "%q, %d, %d", p.DriverUnknown, p.Driver/mib, p.DriverGraphs/mib)
}

// TestPlanDriverLists: graphs of so many lists are not those of an engine.
func TestPlanDriverLists(t *testing.T) {
	for lists, unknown := range map[int]bool{mostDriverLists: false, mostDriverLists + 1: true} {
		e := newEngine("kv_cache", true)
		e.read(570)
		for i := range lists {
			e.phase(fmt.Sprintf("list%dx 4", i), func() { e.graph(1, true) })
		}
		e.read(570 + 2*int64(lists))
		e.mark()
		p := e.plan(t, PlanOptions{})
		assert.Equal(t, p.DriverUnknown != "", unknown)
		assert.That(t, unknown || p.DriverGraphs == 2*int64(lists)*mib, "%d lists: %d", lists, p.DriverGraphs)
	}
}

// TestPlanTotal: what the driver gives to processes, by its own readings or by the card's name; a plan of what NVML says, says so.
func TestPlanTotal(t *testing.T) {
	e := startOf(0, 6, 8)
	plan := func(o PlanOptions) *Plan {
		p, err := PlanEngine(e.process("pid1"), o)
		assert.NoError(t, err)
		return p
	}
	p := plan(PlanOptions{Total: 3 << 30})
	assert.That(t, p.OwnUnknown && p.Total == 3<<30, "%+v", p)
	p = plan(PlanOptions{Total: 3 << 30, Given: 2 << 30, Others: 5 * mib})
	assert.That(t, !p.OwnUnknown && p.Total == 2<<30 && p.Others == 5*mib, "%+v", p)
	p = plan(PlanOptions{Total: 3 << 30, Card: 4 << 30})
	assert.That(t, !p.OwnUnknown && p.Total == 4<<30, "%+v", p)
	e.add(trace.KindDeviceUsed, trace.Event{Arena: trace.NoArena, Requested: 1 << 30}, "")
	p = plan(PlanOptions{Total: 3 << 30, Given: 2 << 30})
	assert.That(t, !p.OwnUnknown && p.Total == 1<<30, "%+v", p)
}

// TestPlanNative: PyTorch's own allocator says nothing of empty_cache, but unmaps what is free.
func TestPlanNative(t *testing.T) {
	for native, activations := range map[bool]int64{true: 110, false: 180} {
		e := startOf()
		for i := range e.events {
			if e.events[i].Kind == trace.KindReclaim {
				e.events[i].Kind, e.events[i].Provided = trace.KindUnmap, 80*mib
			}
		}
		if native {
			e.texts[e.events[0].Context] += " allocator=native"
		}
		e.phase("serve", func() { e.free(e.take(0, 100)) })
		p := e.plan(t, PlanOptions{})
		assert.Equal(t, p.Activations/mib, activations)
	}
}
