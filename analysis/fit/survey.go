package fit

import (
	"runtime"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// Survey is what a recording says of a process's devices, beyond its requests.
type Survey struct {
	Devices map[int32]*Device
	Events  int64
	Blocks  int64 // the most that were live at a time
	Arenas  int64 // likewise
	Failed  int64 // requests that the recorded allocator refused
	// Greatest is the greatest request, in bytes, and Waits says that blocks were freed while another stream used them.
	Greatest int64
	Waits    bool
	// Workspaces are the events, in order, of requests that look like workspaces of a library: freed before any other
	// request or free, and of more than a MiB.
	Workspaces []int64
	followed   *trace.Followed // nil if it would be too large
	room       chan struct{}   // of passes that run at a time
}

// mostBlocks is how many blocks all replays that run at a time have. With some 150 bytes each they stay below 1 GiB, with what the
// recording has in memory. An arena takes as much as ofArena blocks.
const (
	mostBlocks = 2_000_000
	ofArena    = 36
)

// together is how many replays may run at a time: each has a copy of all that is live.
func (s *Survey) together() int { return int(max(1, mostBlocks/max(s.Blocks+s.Arenas*ofArena, 1))) }

// leastWorkspace is the least request that counts as a workspace, in bytes: smaller ones are not worth doing without.
const leastWorkspace = 1 << 20

// Device is a device of a process.
type Device struct {
	Total int64 // bytes that the driver can allocate; 0 if not known
	// Driver is the greatest driver overhead, with what the accounting could not explain; Libraries is that of
	// other libraries. In bytes.
	Driver, Libraries int64
	// Unexplained is the part of Driver that no event explains.
	Unexplained int64
	Measured    bool // Driver is all: of a reading of the device's used memory, or of a simulated device
	Assumed     bool // Driver is [Job.Assumed]
}

// Look reads a process once.
func Look(j *Job) (*Survey, error) {
	if j.survey != nil {
		return j.survey, nil
	}
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	s := &Survey{Devices: map[int32]*Device{}}
	others := accounting.NewOthers(&accounting.Card{OwnOnly: !j.WholeCard}, j.Text)
	atReading := map[int32]int64{}
	var live, arenas int64
	newest := trace.Event{Addr: -1} // request, if nothing was freed since
	s.followed, err = trace.Follow(source, j.Opening, func(e *trace.Event) {
		s.event(j, e, others, atReading)
		switch e.Kind {
		case trace.KindAlloc:
			newest = *e
			live++
			s.Greatest = max(s.Greatest, e.Requested)
			s.Blocks = max(s.Blocks, live)
		case trace.KindFree:
			live--
			if e.Addr == newest.Addr && newest.Requested > leastWorkspace {
				s.Workspaces = append(s.Workspaces, newest.Seq)
			}
			newest.Addr = -1
		case trace.KindArena:
			arenas++
			s.Arenas = max(s.Arenas, arenas)
		case trace.KindPoolRelease:
			if e.Arena != trace.NoArena {
				arenas--
			}
		}
	})
	if err != nil {
		return nil, err
	}
	s.finish(j, atReading)
	s.room = make(chan struct{}, min(runtime.GOMAXPROCS(0), s.together()))
	j.survey = s
	return s, nil
}

// open opens a process, which may be in memory.
func (s *Survey) open(j *Job) (Source, error) {
	if s.followed != nil {
		return s.followed.Source(), nil
	}
	return j.Open()
}

func (s *Survey) device(number int32) *Device {
	d := s.Devices[number]
	if d == nil {
		d = &Device{}
		s.Devices[number] = d
	}
	return d
}

func (s *Survey) event(j *Job, e *trace.Event, others *accounting.Others, atReading map[int32]int64) {
	s.Events++
	if e.Kind == trace.KindOOM {
		s.Failed++
	}
	s.Waits = s.Waits || e.Kind == trace.KindStreamUse || e.Kind == trace.KindFreeDone
	if change, ok := others.Add(e); ok {
		d := s.device(change.Device)
		d.Driver, d.Libraries = max(d.Driver, others.Driver(change.Device)), max(d.Libraries, others.Libraries(change.Device))
	}
	if e.Kind == trace.KindArena && e.Device >= 0 {
		d := s.device(e.Device)
		if words := trace.ParseContext(e.Kind, j.Text(e.Context)); words.Is("main") && words.Get("growth") != "" {
			if total, err := e.CardMemory(words.Get("total")); err == nil { // a damaged event is refused by the replay
				d.Total = int64(total)
			}
		}
	}
	if r, read := j.Read[e.Device]; read && e.Seq <= r.Seq {
		atReading[e.Device] = others.Driver(e.Device)
	}
}

// finish adds what the readings say and the events do not.
func (s *Survey) finish(j *Job, atReading map[int32]int64) {
	for _, d := range s.Devices {
		d.Measured = j.Simulated
	}
	for number, r := range j.Read {
		d := s.device(number)
		d.Unexplained, d.Measured = r.Bytes-atReading[number], true
		d.Driver += d.Unexplained
	}
	for _, d := range s.Devices {
		if d.Assumed = j.Assumed > 0 && !d.Measured && d.Driver+d.Libraries == 0; d.Assumed {
			d.Driver, d.Unexplained = j.Assumed, j.Assumed
		}
	}
}

// card is one of so many bytes, of which some stay free.
func (s *Survey) card(j *Job, bytes, headroom int64) *accounting.Card {
	c := &accounting.Card{Bytes: uint64(bytes), Base: map[int32]int64{}, OwnOnly: !j.WholeCard}
	for number, d := range s.Devices {
		c.Base[number] = d.Unexplained + headroom
	}
	return c
}
