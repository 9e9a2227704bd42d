package nvml

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

const (
	heartbeat     = 10 * time.Second     // an unchanged number is written again after this
	completeAfter = 10 * time.Minute     // a recorder that is killed loses the readings since the last part
	busyShare     = 20                   // the Sampler rests this many times as long as a round took,
	longestRest   = 2 * time.Second      // but no longer, as one slow answer says little of the next
	failuresInRow = 5                    // a GPU that fails so often is left alone
	promptly      = 5 * time.Millisecond // a list of processes that took longer is of no known time
	writtenWithin = 5 * time.Second      // a reading is written before others that are later by this: readers refuse times that fall by 10 s
)

// AnswersWithin is how long to wait for the cards: a driver in trouble may never return.
const AnswersWithin = 5 * time.Second

// Sampler reads what the devices have in use while a job runs, and writes it beside the job's recording, for
// the device accounting. A number is written when it changes, together with the time of the last reading of
// the old number. So between two events with the same number, every reading gave that number.
type Sampler struct {
	cards Cards
	now   func() int64 // nanoseconds since the run's clock base
	to    *dataset.Writer
	gpus  []readGPU
	job   *family // nil before the job was started

	completed int64 // when a part was last completed
	err       error // of writing; nothing is read after it
	failed    []string
	longest   time.Duration // with the cards
	gone      atomic.Bool   // whoever wanted the readings has given up waiting
	end, done chan struct{}
}

// ErrNoAnswer is that of a driver that does not answer in time.
var ErrNoAnswer = errors.New("the driver does not answer")

// readGPU is the state of one GPU.
type readGPU struct {
	whole     course
	processes map[int]*course
	total     int64
	failures  int
}

// course is one number over time.
type course struct {
	used          int64
	read, written int64 // times; -1 for never
	context       int32
}

// NewSampler takes the readings before the job. It fails with ErrNoAnswer if the cards do not answer within
// longest, so that the job need not wait.
func NewSampler(dir string, info *dataset.Info, cards Cards, longest time.Duration) (*Sampler, error) {
	meta := dataset.ProcessMeta{RunID: info.ID, Name: dataset.ReadingsName, Rank: -1, LocalRank: -1, WorldSize: -1}
	s := &Sampler{
		cards: cards, to: dataset.NewWriter(dir, meta, dataset.WriterOptions{}),
		now: func() int64 { return monotonic() - info.ClockBase }, longest: longest,
		end: make(chan struct{}), done: make(chan struct{}),
	}
	all := s.to.Intern(trace.FormatContext(trace.Field{Name: "all", Value: "1"}))
	for range cards.Count() {
		s.gpus = append(s.gpus, readGPU{
			whole: course{context: all, read: -1, written: -1}, processes: map[int]*course{},
		})
	}
	s.completed = s.now()
	first := make(chan struct{})
	go func() {
		defer close(first)
		s.round()
	}()
	if !s.answered(first) {
		return nil, ErrNoAnswer
	}
	return s, nil
}

// answered waits for the cards, for at most s.longest.
func (s *Sampler) answered(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(s.longest):
		s.gone.Store(true)
		return false
	}
}

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it was read when the run began
	return now.Nano()
}

// Follow reads until Stop. pid is the job's process: the use of its descendants is kept apart from that of other processes.
func (s *Sampler) Follow(pid int) {
	s.job = newFamily(pid)
	go func() {
		defer close(s.done)
		for {
			start := time.Now()
			s.round()
			rest := max(dataset.ReadingInterval, min(busyShare*time.Since(start), longestRest))
			select {
			case <-s.end:
				s.round()
				return
			case <-time.After(rest):
			}
		}
	}()
}

// Stop takes the last readings and completes their parts. It returns problems, for people.
func (s *Sampler) Stop() []string {
	close(s.end)
	if !s.answered(s.done) {
		s.to.RemoveTemporary() // what cannot be removed, recover removes
		return []string{"the devices' used memory is not in the recording to its end: " + ErrNoAnswer.Error()}
	}
	s.writeReadUntil(math.MaxInt64)
	if s.err == nil {
		s.err = s.to.Finish(dataset.Ending{State: dataset.StateClosed})
	}
	if s.err != nil {
		s.to.Abandon()
		s.failed = append(s.failed, fmt.Sprintf("the devices' used memory is not in the recording to its end: %v", s.err))
	}
	s.cards.Close()
	return s.failed
}

// Abandon discards everything, for a job that was not started.
func (s *Sampler) Abandon() {
	s.to.Abandon()
	s.cards.Close()
}

// round takes one reading of everything.
func (s *Sampler) round() {
	for i := range s.gpus {
		if s.err != nil {
			return
		}
		s.read(i)
	}
	if now := s.now(); s.err == nil && !s.gone.Load() && now-s.completed >= completeAfter.Nanoseconds() {
		s.completed = now
		s.err = s.to.CompletePart()
	}
}

func (s *Sampler) read(gpu int) {
	g := &s.gpus[gpu]
	if g.failures >= failuresInRow {
		return
	}
	now := s.now()
	used, total, err := s.cards.Memory(gpu)
	if err != nil {
		if g.failures++; g.failures == failuresInRow {
			s.failed = append(s.failed, err.Error())
		}
		return
	}
	g.failures, g.total = 0, total
	s.writeReadUntil(now - writtenWithin.Nanoseconds())
	s.take(gpu, &g.whole, now, used)
	if s.job == nil {
		return
	}
	// Also where the sum is as it was: one process may have taken what another returned.
	before := s.now()
	list := s.cards.Processes(gpu)
	if list != nil && s.now()-before <= promptly.Nanoseconds() {
		s.readProcesses(gpu, list)
	}
}

// readProcesses takes a list of the processes on a GPU. A process that is no longer in it uses nothing.
func (s *Sampler) readProcesses(gpu int, used map[int]int64) {
	g := &s.gpus[gpu]
	now := s.now()
	s.writeReadUntil(now - writtenWithin.Nanoseconds())
	for pid := range used {
		if g.processes[pid] == nil && s.job.has(pid) {
			g.processes[pid] = &course{context: s.to.Intern(trace.FormatContext(trace.Field{Name: "pid", Value: strconv.Itoa(pid)})), read: -1, written: -1}
		}
	}
	for _, pid := range g.pids() {
		c := g.processes[pid]
		s.take(gpu, c, now, used[pid])
		if _, there := used[pid]; !there {
			delete(g.processes, pid)
		}
	}
}

// pids returns the known processes in order, so that the order of events does not depend on the map.
func (g *readGPU) pids() []int { return slices.Sorted(maps.Keys(g.processes)) }

// take records one reading of a number.
func (s *Sampler) take(gpu int, c *course, now, used int64) {
	switch {
	case c.written < 0:
		s.write(gpu, c, now, used)
	case used != c.used:
		s.writeLast(gpu, c)
		s.write(gpu, c, now, used)
	case now-c.written >= heartbeat.Nanoseconds():
		s.write(gpu, c, now, used)
	}
	c.read = now
}

// writeReadUntil writes the times of last readings that are not later than a time.
func (s *Sampler) writeReadUntil(time int64) {
	for i := range s.gpus {
		g := &s.gpus[i]
		courses := []*course{&g.whole}
		for _, pid := range g.pids() {
			courses = append(courses, g.processes[pid])
		}
		for _, c := range courses {
			if c.read <= time {
				s.writeLast(i, c)
			}
		}
	}
}

// writeLast writes the time at which the number was last read.
func (s *Sampler) writeLast(gpu int, c *course) {
	if c.read > c.written {
		s.write(gpu, c, c.read, c.used)
	}
}

func (s *Sampler) write(gpu int, c *course, time, used int64) {
	if s.err != nil || s.gone.Load() {
		return
	}
	c.used, c.written = used, time
	s.err = s.to.Append(&trace.Event{
		Seq: s.to.NextSeq(), Time: time &^ (dataset.TimeStep - 1), Kind: trace.KindDeviceUsed,
		Device: int32(gpu), Arena: trace.NoArena, Requested: s.gpus[gpu].total, Provided: used, Context: c.context,
	})
}
