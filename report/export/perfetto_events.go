package export

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// deviceTracks are the tracks of one device of a process.
type deviceTracks struct {
	counters [len(counterNames)]counterTrack
	events   uint64   // track of instants; 0 before the first
	lanes    []uint64 // tracks of allocations
	vacant   []int    // lanes without an open slice: a binary heap, the lowest first
}

type counterTrack struct {
	track uint64 // 0 before its first value
	value int64  // the last one written
}

// counterNames are the terms of a device's memory.
var counterNames = [...]string{"requested", "provided", "reserved", "pending", "stranded", "reserve", "reusable", "external", "not requested", "paused"}

// counterValues returns the values in the order of counterNames; -1 if unknown.
func counterValues(at *ledger.Instant) [len(counterNames)]int64 {
	return [...]int64{at.T, at.C, at.R, at.Pending, at.Stranded, at.Reserve, at.Reusable, at.External, at.NotRequested, at.Paused}
}

// alwaysShown is the number of counters, from the first, that are written even if they stay 0.
const alwaysShown = 3

func (p *perfetto) device(id int32) *deviceTracks {
	d := p.devices[id]
	if d == nil {
		d = &deviceTracks{}
		p.devices[id] = d
	}
	return d
}

// observe takes an event and the state of its device after it; after is nil if the event has no device.
func (p *perfetto) observe(e *trace.Event, device int32, after *ledger.Instant) {
	if p.began < 0 {
		p.began = e.Time
	}
	switch e.Kind {
	case trace.KindStack:
		p.stacks.add(e)
	case trace.KindAlloc, trace.KindRestore:
		p.allocated(e, device)
	case trace.KindFree:
		p.freed(e)
	case trace.KindPhaseBegin:
		p.phaseBegin(e)
	case trace.KindPhaseEnd:
		p.phaseEnd(e)
	case trace.KindIteration:
		p.iterationEnd(e)
	case trace.KindMap, trace.KindUnmap, trace.KindGrowFailed, trace.KindMapFailed, trace.KindReclaim,
		trace.KindOOM, trace.KindPause, trace.KindResume:
		p.instant(e, device)
	}
	if after != nil {
		p.count(device, after, e.Time)
	}
}

// count writes the counters of a device that have changed.
func (p *perfetto) count(device int32, after *ledger.Instant, time int64) {
	d := p.device(device)
	for i, value := range counterValues(after) {
		c := &d.counters[i]
		if value < 0 || value == c.value && (c.track != 0 || i >= alwaysShown) {
			continue
		}
		if c.track == 0 {
			c.track = p.track(fmt.Sprintf("GPU %d %s", device, counterNames[i]), true)
		}
		c.value = value
		p.packet(packetTrackEvent, counterEvent(p.events, c.track, value), time)
	}
}

// event returns an event of a type on a track. The end of a slice has no name.
func (p *perfetto) event(kind, track uint64, name string) message {
	event := p.events[:0]
	event.uint(eventType, kind)
	event.uint(eventTrack, track)
	if kind != sliceEnd {
		event.uint(eventNameIID, p.intern(p.names, internedEventNames, name))
	}
	return event
}

// annotate adds a value with a name to an event.
func (p *perfetto) annotate(event *message, field uint64, name string, value int64) {
	a := make(message, 0, 64)
	a.uint(annotationNameIID, p.intern(p.keys, internedAnnotationNames, name))
	a.uint(field, uint64(value))
	event.message(eventAnnotations, a)
}

func (p *perfetto) annotateText(event *message, name, value string) {
	if value == "" {
		return
	}
	a := make(message, 0, 64)
	a.uint(annotationNameIID, p.intern(p.keys, internedAnnotationNames, name))
	a.text(annotationText, valid(value))
	event.message(eventAnnotations, a)
}

// allocated opens a slice in the lowest lane without an open one.
func (p *perfetto) allocated(e *trace.Event, device int32) {
	if e.Requested < p.opt.MinBytes {
		return
	}
	d := p.device(device)
	lane := d.lane(func() uint64 { return p.track(fmt.Sprintf("GPU %d allocations", device), false) })
	p.live[e.Addr] = slice{device, lane}
	context := p.process.Strings().Text(e.Context)
	name, stack := attribution.ParseOrigin(context)
	event := p.event(sliceBegin, d.lanes[lane], cmp.Or(name, "(no module)"))
	p.annotate(&event, annotationInt, "requested", e.Requested)
	p.annotate(&event, annotationInt, "provided", e.Provided)
	p.annotate(&event, annotationPointer, "address", e.Addr)
	p.annotate(&event, annotationInt, "arena", int64(e.Arena))
	p.annotate(&event, annotationInt, "seq", e.Seq)
	if stack != 0 {
		if n := p.callstack(stack); n != 0 {
			event.uint(eventCallstack, n)
		}
	}
	p.packet(packetTrackEvent, event, e.Time)
}

func (p *perfetto) freed(e *trace.Event) {
	s, known := p.live[e.Addr]
	if !known {
		return
	}
	delete(p.live, e.Addr)
	d := p.devices[s.device]
	p.packet(packetTrackEvent, p.event(sliceEnd, d.lanes[s.lane], ""), e.Time)
	d.vacate(s.lane)
}

// lane returns the lowest vacant lane, or creates one.
func (d *deviceTracks) lane(create func() uint64) int {
	if len(d.vacant) == 0 {
		d.lanes = append(d.lanes, create())
		return len(d.lanes) - 1
	}
	lane := d.vacant[0]
	last := len(d.vacant) - 1
	d.vacant[0] = d.vacant[last]
	d.vacant = d.vacant[:last]
	for at := 0; ; {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < last; child++ {
			if d.vacant[child] < d.vacant[least] {
				least = child
			}
		}
		if least == at {
			return lane
		}
		d.vacant[at], d.vacant[least] = d.vacant[least], d.vacant[at]
		at = least
	}
}

func (d *deviceTracks) vacate(lane int) {
	d.vacant = append(d.vacant, lane)
	for at := len(d.vacant) - 1; at > 0; {
		parent := (at - 1) / 2
		if d.vacant[parent] <= d.vacant[at] {
			return
		}
		d.vacant[parent], d.vacant[at] = d.vacant[at], d.vacant[parent]
		at = parent
	}
}

// instant writes an event on the device's track of instants.
func (p *perfetto) instant(e *trace.Event, device int32) {
	d := p.device(device)
	if d.events == 0 {
		d.events = p.track(fmt.Sprintf("GPU %d events", device), false)
	}
	event := p.event(instant, d.events, e.Kind.String())
	p.annotate(&event, annotationInt, "requested", e.Requested)
	p.annotate(&event, annotationInt, "provided", e.Provided)
	p.annotate(&event, annotationInt, "arena", int64(e.Arena))
	p.annotate(&event, annotationInt, "seq", e.Seq)
	p.annotateText(&event, "context", p.process.Strings().Text(e.Context))
	p.packet(packetTrackEvent, event, e.Time)
}

// threadTrack has the open phases of a thread.
type threadTrack struct {
	track uint64
	open  []int32 // contexts, the innermost last
}

func (p *perfetto) phaseBegin(e *trace.Event) {
	t := p.threads[e.Thread]
	if t == nil {
		t = &threadTrack{track: p.track(fmt.Sprintf("phases (thread %d)", e.Thread), false)}
		p.threads[e.Thread] = t
	}
	t.open = append(t.open, e.Context)
	p.openPhase(t, e.Context, e.Time)
}

func (p *perfetto) openPhase(t *threadTrack, context int32, time int64) {
	name := cmp.Or(trace.ParseContext(trace.KindPhaseBegin, p.process.Strings().Text(context)).Name(), "(no name)")
	p.packet(packetTrackEvent, p.event(sliceBegin, t.track, name), time)
}

// phaseEnd closes the innermost open phase of that name. Because slices must nest, phases inside it that are
// still open are closed and opened again: they become two slices.
func (p *perfetto) phaseEnd(e *trace.Event) {
	t := p.threads[e.Thread]
	if t == nil {
		return
	}
	at := len(t.open) - 1
	for at >= 0 && t.open[at] != e.Context {
		at--
	}
	if at < 0 {
		return
	}
	for range t.open[at:] {
		p.packet(packetTrackEvent, p.event(sliceEnd, t.track, ""), e.Time)
	}
	t.open = slices.Delete(t.open, at, at+1)
	for _, context := range t.open[at:] {
		p.openPhase(t, context, e.Time)
	}
}

func (p *perfetto) iterationEnd(e *trace.Event) {
	p.marked = true
	name := fmt.Sprintf("iteration %d", e.IterationNumber())
	if label := p.process.Strings().Text(e.Context); label != "" {
		name += " " + label
	}
	p.iterationSlice(name, p.began, e.Time)
	p.began = e.Time
}

// iterationSlice writes the begin and the end. The name is not interned because it is used once.
func (p *perfetto) iterationSlice(name string, start, end int64) {
	if p.iteration == 0 {
		p.iteration = p.track("iterations", false)
	}
	var event message
	event.uint(eventType, sliceBegin)
	event.uint(eventTrack, p.iteration)
	event.text(eventName, valid(name))
	p.packet(packetTrackEvent, event, start)
	p.packet(packetTrackEvent, p.event(sliceEnd, p.iteration, ""), end)
}

// finish writes the iterations that analysis found by their period, if none were marked.
func (p *perfetto) finish(result *analysis.Result) {
	if p.marked {
		return
	}
	for i := range result.Devices {
		if d := &result.Devices[i]; d.Period > 0 {
			for _, it := range d.Iterations {
				p.iterationSlice(fmt.Sprintf("iteration %s of GPU %d, found by its period", it.Name(), d.Device), it.Start, it.End)
			}
			return
		}
	}
}
