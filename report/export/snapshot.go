package export

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// TorchSnapshot writes one process as a pickled snapshot of torch's allocator; see the package
// comment. It reads the events once for phases and iterations, and once for each device.
//
// A phase or an iteration becomes an external annotation with a START and an END. A pause frees and unmaps the
// blocks of its tag, and a resume maps and allocates them again.
func TorchSnapshot(w io.Writer, r *Recording, process *dataset.Process) error {
	out := buffered(w)
	s := &snapshot{pickler: newPickler(out), process: process, frames: map[origin]uint32{}}
	s.stacks.text = process.Strings().Text
	s.imported = r.Run.Info.ImportOf(process.Name)
	if start := r.Run.Info.Start; !start.IsZero() {
		s.epoch = start.UnixMicro()
	}
	s.dict(func() {
		s.text("external_annotations")
		s.annotations()
		s.text("device_traces")
		s.deviceTraces()
		s.text("segments")
		s.segments()
		s.text("allocator_settings")
		s.settings()
	})
	s.ops(opStop)
	if s.err != nil {
		return s.err
	}
	return out.Flush()
}

// SnapshotPasses returns how often TorchSnapshot reads the events of a process with this many devices.
func SnapshotPasses(devices int) int { return 1 + devices }

// snapshot is the state of TorchSnapshot.
type snapshot struct {
	*pickler
	process *dataset.Process
	epoch   int64 // of the clock base, in microseconds since 1970; 0 if unknown

	imported *dataset.Imported // nil if the process was recorded
	err      error             // of the first pass that failed

	devices  []int32 // with arenas, ascending
	memories []*memory
	stacks   stackTree
	open     []int32 // contexts of the open phases of the process, the innermost last
	frames   map[origin]uint32
}

// origin determines the frames of a block: the contexts of its request and of the innermost open phase.
type origin struct{ context, phase int32 }

// pass reads the events once. It keeps the stacks and open phases that name blocks.
func (s *snapshot) pass(visit func(*trace.Event) error) {
	s.open = s.open[:0]
	if s.err != nil {
		return
	}
	s.err = s.process.Each(func(e *trace.Event) error {
		switch e.Kind {
		case trace.KindStack:
			s.stacks.add(e)
		case trace.KindPhaseBegin:
			s.open = append(s.open, e.Context)
		case trace.KindPhaseEnd:
			s.endPhase(e.Context)
		}
		if err := visit(e); err != nil {
			return fmt.Errorf("%s: %w", s.process.Name, err)
		}
		_, err := s.out.Write(nil) // the first error of any write
		return err
	})
}

// endPhase closes the innermost open phase with that context.
func (s *snapshot) endPhase(context int32) {
	for at := len(s.open) - 1; at >= 0; at-- {
		if s.open[at] == context {
			s.open = slices.Delete(s.open, at, at+1)
			return
		}
	}
}

func (s *snapshot) micros(e *trace.Event) int64 { return s.epoch + e.Time/1000 }

// annotations writes phases and iterations, and finds the devices. It fails if the events are inconsistent: the
// later passes rely on them.
func (s *snapshot) annotations() {
	item, end := s.list()
	text := s.process.Strings().Text
	annotate := func(name, stage string, us int64) {
		item()
		s.dict(func() {
			s.textField("name", name)
			s.textField("stage", stage)
			s.field("device", 0)
			s.field("time_us", us)
		})
	}
	began := int64(-1)
	ledger := analysis.NewLive(analysis.Options{Text: text, FirstSeq: s.process.Parts[0].FirstSeq})
	s.pass(func(e *trace.Event) error {
		if err := ledger.Add(e); err != nil {
			return err
		}
		if began < 0 {
			began = s.micros(e)
		}
		switch e.Kind {
		case trace.KindArena:
			if !slices.Contains(s.devices, e.Device) && e.Device >= 0 {
				s.devices = append(s.devices, e.Device)
			}
		case trace.KindPhaseBegin:
			annotate(trace.ParseContext(e.Kind, text(e.Context)).Name(), "START", s.micros(e))
		case trace.KindPhaseEnd:
			annotate(trace.ParseContext(e.Kind, text(e.Context)).Name(), "END", s.micros(e))
		case trace.KindIteration:
			if s.imported != nil && s.imported.Iterations != "iteration" {
				break // the end of a phase, which is written
			}
			annotate("iteration", "START", began)
			annotate("iteration", "END", s.micros(e))
			began = s.micros(e)
		}
		return nil
	})
	end()
	slices.Sort(s.devices)
}

// deviceTraces writes a list of entries for each device up to the last, and keeps the memory that each has at
// the end.
func (s *snapshot) deviceTraces() {
	item, end := s.list()
	for device := int32(0); s.err == nil && len(s.devices) > 0 && device <= s.devices[len(s.devices)-1]; device++ {
		item()
		if !slices.Contains(s.devices, device) {
			s.ops(opEmptyList)
			continue
		}
		s.deviceTrace(device)
	}
	end()
}

func (s *snapshot) deviceTrace(device int32) {
	item, end := s.list()
	m := newMemory(device, s.process.Strings().Text)
	t := &entries{snapshot: s, item: item}
	m.entries = t
	s.pass(func(e *trace.Event) error {
		t.now, t.silent = e, s.imported != nil && e.Seq < s.imported.Opening
		m.event(e)
		return nil
	})
	t.silent = false
	if t.now != nil {
		t.entry("snapshot", 0, 0, 0, 0, nil)
	}
	end()
	s.memories = append(s.memories, m)
}

// entries writes the entries of a device's trace.
type entries struct {
	*snapshot
	item func()
	now  *trace.Event // the current event

	silent bool // the event restates what existed before the first one: no entry is written
}

// noPhase stands for a phase's context outside of all phases.
const noPhase = -1

// phase returns the context of the innermost open phase, or noPhase.
func (s *snapshot) phase() int32 {
	if n := len(s.open); n > 0 {
		return s.open[n-1]
	}
	return noPhase
}

// entry writes an entry with the frames of an origin; nil means no frames. block is the size of the block where it does not
// follow from torch's rules, else 0.
func (t *entries) entry(action string, addr, size, block, stream int64, from *origin) {
	if t.silent {
		return
	}
	t.item()
	t.dict(func() {
		t.textField("action", action)
		if action == "oom" {
			t.field("device_free", addr)
		} else {
			t.field("addr", addr)
		}
		t.field("size", size)
		if block > 0 {
			t.field("block_size", block)
		}
		t.field("stream", stream)
		t.field("time_us", t.micros(t.now))
		t.text("frames")
		if from == nil {
			t.ops(opEmptyList)
			return
		}
		t.writeFrames(*from)
		if name, _ := attribution.ParseOrigin(t.process.Strings().Text(from.context)); name != "" {
			t.textField("user_metadata", name)
		}
	})
}

// own returns the origin of the current event itself, where an imported recording has it.
func (t *entries) own() *origin {
	if t.imported == nil || t.now.Context == 0 {
		return nil
	}
	return &origin{t.now.Context, t.phase()}
}

func (t *entries) mapped(r mappedRange, a *arenaState) {
	t.segmentEntry("segment_alloc", "segment_map", r, a)
}

func (t *entries) unmapped(r mappedRange, a *arenaState) {
	t.segmentEntry("segment_free", "segment_unmap", r, a)
}

// segmentEntry writes an entry about a segment, or about a part of one if the arena coalesces.
func (t *entries) segmentEntry(whole, part string, r mappedRange, a *arenaState) {
	action := whole
	if a.coalesces {
		action = part
	}
	t.entry(action, r.from, r.to-r.from, 0, a.stream, t.own())
}

// settings writes the allocator's settings. memprof's own arenas are expandable segments.
func (s *snapshot) settings() {
	i := s.imported
	s.dict(func() {
		if i == nil || i.Settings == nil {
			s.text("expandable_segments")
			s.boolean(s.expandable())
			return
		}
		s.textField("PYTORCH_CUDA_ALLOC_CONF", i.Settings.Text)
		s.field("max_split_size", i.Settings.MaxSplit)
		s.text("expandable_segments")
		s.boolean(i.Settings.Expandable)
		s.text("roundup_power2_divisions")
		s.dict(func() {
			for at, divisor := range i.Settings.Roundup {
				s.field(strconv.Itoa(1<<min(at, 62)), int64(min(divisor, math.MaxInt64)))
			}
		})
	})
}

// expandable says whether an arena coalesces.
func (s *snapshot) expandable() bool {
	for _, m := range s.memories {
		for _, a := range m.arenas {
			if a.coalesces {
				return true
			}
		}
	}
	return len(s.memories) == 0
}

// writeFrames writes the frames of an origin. Blocks of one origin share the object.
func (s *snapshot) writeFrames(from origin) {
	if n, known := s.frames[from]; known {
		s.get(n)
		return
	}
	item, end := s.list()
	for _, f := range s.framesOf(from) {
		item()
		s.dict(func() {
			s.textField("name", f.function)
			s.textField("filename", f.file)
			s.field("line", f.line)
		})
	}
	end()
	s.frames[from] = s.put()
}

// framesOf returns the frames of the stack; without a stack, the origin's name and the open phase, and none in an
// imported recording.
func (s *snapshot) framesOf(from origin) []frame {
	text := s.process.Strings().Text
	name, stack := attribution.ParseOrigin(text(from.context))
	if stack != 0 {
		if frames := s.stacks.frames(stack); len(frames) > 0 {
			return frames
		}
	}
	if s.imported != nil {
		return nil
	}
	frames := []frame{{function: cmp.Or(name, "(no module)"), file: "module"}}
	if from.phase != noPhase {
		frames = append(frames, frame{function: trace.ParseContext(trace.KindPhaseBegin, text(from.phase)).Name(), file: "phase"})
	}
	return frames
}
