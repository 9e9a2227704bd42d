package export

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
)

// publishedTrace is perfetto.protos.Trace as Perfetto publishes it. testdata/perfetto_trace.desc is
// protos/perfetto/trace/perfetto_trace.proto of Perfetto v58.2 (ec5d16b1), compiled by protoc, with
// the messages that are about tracks and their events, and all of their fields that are of such a type.
func publishedTrace(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	raw, err := os.ReadFile("testdata/perfetto_trace.desc")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName("perfetto.protos.Trace")
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MessageDescriptor)
}

// packets decodes a trace by the published schema, in which every field must be known.
func packets(t *testing.T, raw []byte) []protoreflect.Message {
	t.Helper()
	m := dynamicpb.NewMessage(publishedTrace(t))
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	allKnown(t, m)
	list := m.Get(m.Descriptor().Fields().ByName("packet")).List()
	var packets []protoreflect.Message
	for i := range list.Len() {
		packets = append(packets, list.Get(i).Message())
	}
	return packets
}

// allKnown demands that no field of a message, at any depth, is unknown, and that enums have a name
// for their values.
func allKnown(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		t.Fatalf("%s has fields that were not published: %x", m.Descriptor().FullName(), []byte(unknown))
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				allKnown(t, v.List().Get(i).Message())
			}
		case f.Message() != nil:
			allKnown(t, v.Message())
		case f.Enum() != nil && f.Enum().Values().ByNumber(v.Enum()) == nil:
			t.Fatalf("%s is %d", f.FullName(), v.Enum())
		}
		return true
	})
}

// get walks down fields by name; it is nil where one is not set.
func get(m protoreflect.Message, path ...string) any {
	for i, name := range path {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(f) {
			return nil
		}
		v := m.Get(f)
		if i == len(path)-1 {
			return v.Interface()
		}
		m = v.Message()
	}
	return m
}

// textOf writes a message on one line, its fields in order of number.
func textOf(m protoreflect.Message) string {
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	var out strings.Builder
	for _, f := range fields {
		values := []protoreflect.Value{m.Get(f)}
		if f.IsList() {
			values = nil
			for i := range m.Get(f).List().Len() {
				values = append(values, m.Get(f).List().Get(i))
			}
		}
		for _, v := range values {
			switch {
			case f.Message() != nil:
				fmt.Fprintf(&out, "%s{%s} ", f.Name(), strings.TrimSpace(textOf(v.Message())))
			case f.Enum() != nil:
				fmt.Fprintf(&out, "%s:%s ", f.Name(), f.Enum().Values().ByNumber(v.Enum()).Name())
			case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
				fmt.Fprintf(&out, "%s:%q ", f.Name(), v.Interface())
			default:
				fmt.Fprintf(&out, "%s:%v ", f.Name(), v.Interface())
			}
		}
	}
	return out.String()
}

func perfettoOf(t *testing.T, r *Recording, opt PerfettoOptions) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Perfetto(&out, r, opt); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPerfettoGolden(t *testing.T) {
	var lines bytes.Buffer
	for _, p := range packets(t, perfettoOf(t, recorded(t), PerfettoOptions{})) {
		lines.WriteString(strings.TrimSpace(textOf(p)) + "\n")
	}
	reporttest.Golden(t, "job.perfetto.txt", lines.Bytes())
}

// drawn is what a viewer makes of a trace: it follows the rules of the format, and fails where
// they are broken.
type drawn struct {
	tracks   map[uint64]string // names
	parents  map[uint64]uint64
	counters map[string]int64 // last values by name of the track
	peaks    map[string]int64
	slices   map[string][]string // ended ones, "name start end", by name of the track
	open     map[uint64][]string
	instants map[string][]string
}

func draw(t *testing.T, packets []protoreflect.Message) *drawn {
	t.Helper()
	d := &drawn{
		tracks: map[uint64]string{}, parents: map[uint64]uint64{}, counters: map[string]int64{}, peaks: map[string]int64{},
		slices: map[string][]string{}, open: map[uint64][]string{}, instants: map[string][]string{},
	}
	type sequence struct {
		names map[uint64]string
	}
	sequences := map[uint32]*sequence{}
	for _, p := range packets {
		id, _ := get(p, "trusted_packet_sequence_id").(uint32)
		s := sequences[id]
		if s == nil {
			s = &sequence{names: map[uint64]string{}}
			sequences[id] = s
		}
		if interned, ok := get(p, "interned_data").(protoreflect.Message); ok {
			list := interned.Get(interned.Descriptor().Fields().ByName("event_names")).List()
			for i := range list.Len() {
				e := list.Get(i).Message()
				if iid := get(e, "iid").(uint64); s.names[iid] != "" {
					t.Fatalf("name %d is defined twice", iid)
				} else {
					s.names[iid] = get(e, "name").(string)
				}
			}
		}
		if track, ok := get(p, "track_descriptor").(protoreflect.Message); ok {
			uuid := get(track, "uuid").(uint64)
			if _, twice := d.tracks[uuid]; twice {
				t.Fatalf("track %d is described twice", uuid)
			}
			d.tracks[uuid], _ = get(track, "name").(string)
			d.parents[uuid], _ = get(track, "parent_uuid").(uint64)
			continue
		}
		d.event(t, p, s.names)
	}
	return d
}

func (d *drawn) event(t *testing.T, p protoreflect.Message, names map[uint64]string) {
	t.Helper()
	event := get(p, "track_event").(protoreflect.Message)
	time := get(p, "timestamp").(uint64)
	uuid := get(event, "track_uuid").(uint64)
	track, known := d.tracks[uuid]
	if !known {
		t.Fatalf("event at %d on track %d, which nothing describes", time, uuid)
	}
	name, _ := get(event, "name").(string)
	if iid, ok := get(event, "name_iid").(uint64); ok {
		if name = names[iid]; name == "" {
			t.Fatalf("event at %d has name %d, which is not defined", time, iid)
		}
	}
	switch get(event, "type").(protoreflect.EnumNumber) {
	case sliceBegin:
		d.open[uuid] = append(d.open[uuid], fmt.Sprintf("%s %d", name, time))
	case sliceEnd:
		n := len(d.open[uuid])
		if n == 0 {
			t.Fatalf("slice of track %q ends at %d and none is open", track, time)
		}
		d.slices[track] = append(d.slices[track], fmt.Sprintf("%s %d", d.open[uuid][n-1], time))
		d.open[uuid] = d.open[uuid][:n-1]
	case instant:
		d.instants[track] = append(d.instants[track], fmt.Sprintf("%s %d", name, time))
	case counter:
		value := get(event, "counter_value").(int64)
		key := fmt.Sprintf("%s/%d", track, d.parents[uuid]>>32)
		d.counters[key] = value
		d.peaks[key] = max(d.peaks[key], value)
	}
}

func TestPerfetto(t *testing.T) {
	d := draw(t, packets(t, perfettoOf(t, recorded(t), PerfettoOptions{})))
	for name, want := range map[string][2]int64{ // greatest, last
		"GPU 0 requested/1":          {9_002_000, 5_001_000},
		"GPU 0 provided/1":           {9_002_240, 5_001_216},
		"GPU 0 reserved/1":           {16 * mib, 16 * mib},
		"GPU 0 pending/1":            {4_000_000, 0},
		"GPU 0 paused/1":             {16 * mib, 0},
		"GPU 1 requested/1":          {600, 0},
		"GPU 1 reserved/1":           {2 * mib, 0},
		"GPU 0 requested/2":          {100, 100},
		"GPU 0 used, all programs/0": {20 * mib, 20 * mib},
	} {
		if got := [2]int64{d.peaks[name], d.counters[name]}; got != want {
			t.Errorf("counter %s: greatest and last %d, want %d", name, got, want)
		}
	}
	for track, want := range map[string][]string{
		"iterations":        {"iteration 3 256000 5888000", "iteration 4 eval 5888000 7168000"},
		"phases (thread 7)": {hostile + " 2560000 3072000", "forward 1792000 3072000", hostile + " 3072000 4608000"},
		"GPU 0 allocations": {"(no module) 2816000 4352000", hostile + " 3328000 5120000"},
		"GPU 1 allocations": {"(no module) 3840000 6656000"},
	} {
		if !slices.Equal(d.slices[track], want) {
			t.Errorf("slices of %s: %q, want %q", track, d.slices[track], want)
		}
	}
	if want := []string{"map 3584000", "oom 6400000", "unmap 6912000"}; !slices.Equal(d.instants["GPU 1 events"], want) {
		t.Errorf("events of GPU 1: %q, want %q", d.instants["GPU 1 events"], want)
	}
	var alive []string
	for _, uuid := range slices.Sorted(maps.Keys(d.open)) {
		if strings.HasPrefix(d.tracks[uuid], "GPU") {
			alive = append(alive, d.open[uuid]...)
		}
	}
	if want := []string{"net.fc 1536000", "net.conv.0 2304000", "net.fc 768000"}; !slices.Equal(alive, want) {
		t.Errorf("alive at the end: %q, want %q", alive, want)
	}
}

// Allocations below the least size are no slices, and in the counters all the same.
func TestPerfettoMinBytes(t *testing.T) {
	d := draw(t, packets(t, perfettoOf(t, recorded(t), PerfettoOptions{MinBytes: 4_000_000})))
	if want := []string{"(no module) 2816000 4352000"}; !slices.Equal(d.slices["GPU 0 allocations"], want) {
		t.Errorf("slices %q, want %q", d.slices["GPU 0 allocations"], want)
	}
	if got := d.peaks["GPU 0 requested/1"]; got != 9_002_000 {
		t.Errorf("greatest T %d", got)
	}
}

// The lanes of a long training job: no more than blocks are live at once, none with two slices at a
// time, and the counters end where the analysis does.
func TestPerfettoLanes(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(20_000)
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
	run, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	live, most := 0, 0
	var requested int64
	for _, e := range events {
		switch e.Kind {
		case trace.KindAlloc:
			live++
			requested += e.Requested
		case trace.KindFree:
			live--
			requested -= e.Requested
		}
		most = max(most, live)
	}
	d := draw(t, packets(t, perfettoOf(t, &Recording{Run: run}, PerfettoOptions{})))
	lanes := 0
	for uuid, name := range d.tracks {
		if name == "GPU 0 allocations" {
			lanes++
		}
		if len(d.open[uuid]) > 1 {
			t.Errorf("lane %d has %d slices at once", uuid, len(d.open[uuid]))
		}
	}
	if lanes != most {
		t.Errorf("%d lanes for at most %d live blocks", lanes, most)
	}
	if got := d.counters["GPU 0 requested/1"]; got != requested {
		t.Errorf("T ends at %d, want %d", got, requested)
	}
}

// Encoding is checked against protobuf's own at the edges of integers.
func TestMessage(t *testing.T) {
	for _, n := range []int64{0, 1, 127, 128, math.MaxInt64, -1, math.MinInt64} {
		var m message
		m.message(tracePacket, func() (p message) { p.message(packetTrackEvent, counterEvent(nil, 1, n)); return p }())
		p := packets(t, m)
		if got := get(p[0], "track_event", "counter_value"); got != n {
			t.Errorf("%d comes back as %v", n, got)
		}
	}
}
