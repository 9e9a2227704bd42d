package export

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// PerfettoOptions select what is written.
type PerfettoOptions struct {
	// MinBytes is the smallest request with a slice. Counters include all allocations.
	MinBytes int64
}

// Field numbers of perfetto.protos, by message.
const (
	tracePacket = 1 // of Trace

	packetTimestamp  = 8
	packetSequence   = 10 // trusted_packet_sequence_id
	packetTrackEvent = 11
	packetInterned   = 12
	packetFlags      = 13 // sequence_flags
	packetTrack      = 60 // track_descriptor

	flagsCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	flagsNeeds   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	trackUUID    = 1
	trackName    = 2
	trackProcess = 3
	trackParent  = 5
	trackCounter = 8

	processPID  = 1
	processName = 6

	counterUnit      = 3
	counterUnitBytes = 3 // UNIT_SIZE_BYTES

	eventAnnotations = 4
	eventType        = 9
	eventNameIID     = 10
	eventTrack       = 11
	eventName        = 23
	eventCounter     = 30 // counter_value
	eventCallstack   = 56 // callstack_iid

	sliceBegin = 1 // TYPE_SLICE_BEGIN
	sliceEnd   = 2
	instant    = 3
	counter    = 4

	annotationNameIID = 1
	annotationInt     = 4
	annotationText    = 6
	annotationPointer = 7

	internedEventNames      = 2
	internedAnnotationNames = 3
	internedFunctions       = 5
	internedFrames          = 6
	internedCallstacks      = 7
	internedPaths           = 18

	internedIID  = 1
	internedText = 2

	frameFunction = 2
	framePath     = 5
	frameLine     = 6

	callstackFrames = 2
)

// processUUIDs is the range of track UUIDs that each process has.
const processUUIDs = 1 << 32

// Perfetto writes a Perfetto trace; see the package comment.
func Perfetto(w io.Writer, r *Recording, opt PerfettoOptions) error {
	out := &writer{to: w}
	for i, process := range r.Run.Processes {
		p := newPerfetto(out, uint64(i+1), process, opt)
		result, err := r.analyze(process, analysis.Options{Observe: p.observe})
		if err != nil {
			return err
		}
		p.finish(result)
	}
	if err := perfettoReadings(out, r); err != nil {
		return err
	}
	return out.flush()
}

// perfetto writes one process as one sequence of packets. Interned names belong to a sequence.
type perfetto struct {
	out     *writer
	process *dataset.Process
	opt     PerfettoOptions
	number  uint64 // of the process, from 1; also the ID of its sequence
	started bool   // the first packet of the sequence is written

	tracks    uint64 // created so far
	devices   map[int32]*deviceTracks
	threads   map[int32]*threadTrack // those with phases
	iteration uint64                 // its track; 0 before the first mark
	began     int64                  // when the current iteration began; -1 before the first event
	marked    bool

	scratch   message // reused buffer of packets
	events    message // reused buffer of their contents
	interned  message // new names, written with the next packet
	names     internTable
	keys      internTable
	functions internTable
	paths     internTable
	frames    map[frame]uint64
	calls     map[int64]uint64 // callstacks by stack node
	stacks    stackTree
	live      map[int64]slice // allocations by address
}

// internTable numbers texts from 1.
type internTable map[string]uint64

// slice is the open slice of a live allocation.
type slice struct {
	device int32
	lane   int
}

func newPerfetto(out *writer, number uint64, process *dataset.Process, opt PerfettoOptions) *perfetto {
	p := &perfetto{
		out: out, process: process, opt: opt, number: number, began: -1,
		devices: map[int32]*deviceTracks{}, threads: map[int32]*threadTrack{},
		names: internTable{}, keys: internTable{}, functions: internTable{}, paths: internTable{},
		frames: map[frame]uint64{}, calls: map[int64]uint64{}, live: map[int64]slice{},
	}
	p.stacks.text = process.Strings().Text
	var description message
	description.uint(trackUUID, p.uuid())
	var about message
	about.uint(processPID, uint64(process.PID))
	about.text(processName, strings.TrimSpace(process.Name+" "+valid(process.Command)))
	description.message(trackProcess, about)
	p.packet(packetTrack, description, -1)
	return p
}

// valid returns a text as valid UTF-8, which protobuf requires.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// uuid returns the UUID of the process's own track.
func (p *perfetto) uuid() uint64 { return p.number * processUUIDs }

// packet writes a packet with one field, and the names that were interned for it. It keeps content as the buffer
// of the next event.
func (p *perfetto) packet(field uint64, content message, time int64) {
	packet := p.scratch[:0]
	if time >= 0 {
		packet.uint(packetTimestamp, uint64(time))
	}
	packet.uint(packetSequence, p.number)
	if !p.started {
		p.started = true
		packet.uint(packetFlags, flagsCleared)
	} else {
		packet.uint(packetFlags, flagsNeeds)
	}
	if len(p.interned) > 0 {
		packet.message(packetInterned, p.interned)
		p.interned = p.interned[:0]
	}
	packet.message(field, content)
	writePacket(p.out, packet)
	p.scratch, p.events = packet, content
}

func writePacket(out *writer, packet message) {
	head := make(message, 0, 16)
	head.tag(tracePacket, wireBytes)
	out.add(binary.AppendUvarint(head, uint64(len(packet))))
	out.add(packet)
}

// track creates a track below the process's own and returns its UUID; if bytes is true, the track is a counter.
func (p *perfetto) track(name string, bytes bool) uint64 {
	p.tracks++
	uuid := p.uuid() + p.tracks
	p.packet(packetTrack, trackDescription(uuid, p.uuid(), name, bytes), -1)
	return uuid
}

func trackDescription(uuid, parent uint64, name string, bytes bool) message {
	var description message
	description.uint(trackUUID, uuid)
	if parent != 0 {
		description.uint(trackParent, parent)
	}
	description.text(trackName, valid(name))
	if bytes {
		var about message
		about.uint(counterUnit, counterUnitBytes)
		description.message(trackCounter, about)
	}
	return description
}

// intern returns the number of a text. The next packet defines it if it is new.
func (p *perfetto) intern(table internTable, field uint64, text string) uint64 {
	if n, known := table[text]; known {
		return n
	}
	n := uint64(len(table) + 1)
	table[text] = n
	var entry message
	entry.uint(internedIID, n)
	entry.text(internedText, valid(text))
	p.interned.message(field, entry)
	return n
}

// callstack returns the number of a stack; 0 if it has no frames.
func (p *perfetto) callstack(node int64) uint64 {
	if n, known := p.calls[node]; known {
		return n
	}
	frames := outermostFirst(p.stacks.frames(node))
	if len(frames) == 0 {
		return 0
	}
	n := uint64(len(p.calls) + 1)
	p.calls[node] = n
	var entry message
	entry.uint(internedIID, n)
	for _, f := range frames {
		entry.uint(callstackFrames, p.frame(f))
	}
	p.interned.message(internedCallstacks, entry)
	return n
}

func (p *perfetto) frame(f frame) uint64 {
	if n, known := p.frames[f]; known {
		return n
	}
	n := uint64(len(p.frames) + 1)
	p.frames[f] = n
	var entry message
	entry.uint(internedIID, n)
	entry.uint(frameFunction, p.intern(p.functions, internedFunctions, f.function))
	if f.file != "" {
		entry.uint(framePath, p.intern(p.paths, internedPaths, f.file))
		entry.uint(frameLine, uint64(f.line))
	}
	p.interned.message(internedFrames, entry)
	return n
}

// perfettoReadings writes the used memory of each card as a counter.
func perfettoReadings(out *writer, r *Recording) error {
	readings := r.Run.Readings
	if readings == nil {
		return nil
	}
	sequence := uint64(len(r.Run.Processes) + 1)
	tracks := map[int32]uint64{}
	return readings.Each(func(e *trace.Event) error {
		if !trace.ParseContext(e.Kind, readings.Strings().Text(e.Context)).Is("all") {
			return out.err
		}
		uuid, known := tracks[e.Device]
		if !known {
			uuid = sequence*processUUIDs + uint64(e.Device) + 1
			tracks[e.Device] = uuid
			var packet message
			packet.uint(packetSequence, sequence)
			packet.message(packetTrack, trackDescription(uuid, 0, fmt.Sprintf("GPU %s used, all programs", cardName(r, e.Device)), true))
			writePacket(out, packet)
		}
		var packet message
		packet.uint(packetTimestamp, uint64(max(0, e.Time)))
		packet.uint(packetSequence, sequence)
		packet.message(packetTrackEvent, counterEvent(nil, uuid, e.Provided))
		writePacket(out, packet)
		return out.err
	})
}

// cardName returns a card's index in NVML's list and its model.
func cardName(r *Recording, at int32) string {
	gpus := r.Run.Info.GPUs
	if at < 0 || int(at) >= len(gpus) {
		return fmt.Sprint(at)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", gpus[at].Index, gpus[at].Name))
}

// counterEvent returns an event with a counter's value. It reuses the buffer event, which may be nil.
func counterEvent(event message, track uint64, value int64) message {
	event = event[:0]
	event.uint(eventType, counter)
	event.uint(eventTrack, track)
	event.uint(eventCounter, uint64(value))
	return event
}
