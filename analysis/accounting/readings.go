package accounting

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/memprof/memprof/trace"
)

// settling is how long before an event of a change, and after one, the device may already
// or still be seen otherwise: memory is used a while before the call that took it returns.
const settling = int64(10 * time.Millisecond)

// maxMoments bounds how many moments of a device are looked at where several processes
// share it: as many of its greatest stretches, and as many of its last.
const maxMoments = 256

// Readings are what the GPUs of a machine had in use while a job ran, in the order of
// run.json's list.
type Readings struct {
	GPUs []GPUReadings
}

// GPUReadings are those of one GPU.
type GPUReadings struct {
	Total     int64
	All       Course         // of all who use the device
	Processes map[int]Course // of the job's processes, by id; nil where the driver shows none
}

// Course is what was read over time: stretches of equal readings, in order.
type Course []stretch

// stretch is a run of readings that all gave the same bytes. First and Last are the times
// of the first and the last of them.
type stretch struct {
	First, Last int64
	Used        int64
}

func (s *stretch) length() int64 { return s.Last - s.First }

// Source gives the events of the readings of a run, a batch at a time, and io.EOF at the end.
type Source interface {
	Next() (*trace.Batch, error)
}

// ReadReadings reads all events of a run's readings; text is [trace.Strings.Text] of them.
// They are few beside those of a process.
func ReadReadings(src Source, text func(context int32) string) (*Readings, error) {
	r := &Readings{}
	for {
		b, err := src.Next()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range b.Seq {
			e := b.Event(i)
			if err := r.add(&e, text(e.Context)); err != nil {
				return nil, fmt.Errorf("reading %d: %w", e.Seq, err)
			}
		}
	}
}

// MostGPUs is more than a machine has, so that a damaged number costs no memory.
const MostGPUs = 1024

func (r *Readings) add(e *trace.Event, whose string) error {
	if e.Kind != trace.KindDeviceUsed {
		return nil
	}
	total, used := e.DeviceMemory()
	if e.Device < 0 || e.Device >= MostGPUs || used < 0 {
		return fmt.Errorf("%d bytes used on device %d", used, e.Device)
	}
	for len(r.GPUs) <= int(e.Device) {
		r.GPUs = append(r.GPUs, GPUReadings{})
	}
	g := &r.GPUs[e.Device]
	for name, value := range trace.ParseContext(e.Kind, whose).Fields() {
		switch name {
		case "all":
			g.Total = total
			g.All = g.All.add(e.Time, used)
		case "pid":
			pid, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("process %q", value)
			}
			if g.Processes == nil {
				g.Processes = map[int]Course{}
			}
			g.Processes[pid] = g.Processes[pid].add(e.Time, used)
		}
	}
	return nil
}

func (c Course) add(time, used int64) Course {
	if n := len(c); n > 0 && c[n-1].Used == used {
		c[n-1].Last = max(c[n-1].Last, time)
		return c
	}
	return append(c, stretch{time, time, used})
}

func (c Course) greatest() (used int64) {
	for _, s := range c {
		used = max(used, s.Used)
	}
	return used
}

// greatestWithin is the greatest of the readings that were surely taken between two times.
func (c Course) greatestWithin(since, until int64) (used int64, ok bool) {
	for i := range c {
		if s := &c[i]; s.readWithin(since, until) {
			used, ok = max(used, s.Used), true
		}
	}
	return used, ok
}

// of are the readings of one GPU by its index; nil if there are none.
func (r *Readings) of(gpu int) *GPUReadings {
	if r == nil || gpu < 0 || gpu >= len(r.GPUs) {
		return nil
	}
	return &r.GPUs[gpu]
}

// baseline is the first reading, taken before the job began.
func (g *GPUReadings) baseline() int64 { return g.All[0].Used }

// at chooses the reading for an instant, the state of which lasted from since to until:
// the nearest one in that time, better after the instant than before it; otherwise the
// nearest of all not later than end, when the process was last recorded.
func (c Course) at(instant, since, until, end int64) Reading {
	var before *Reading
	for i := range c {
		s := &c[i]
		from, to := max(s.First, since), min(s.Last, until)
		if from > to || !s.readWithin(since, until) {
			continue
		}
		r := Reading{Valid: true, Used: s.Used, Steady: true}
		if to >= instant {
			r.After = max(0, from-instant)
			return r
		}
		r.After = to - instant
		before = &r
	}
	if before != nil {
		return *before
	}
	return c.nearest(instant, end)
}

// readWithin says whether one of a stretch's readings was surely taken between two times:
// at an end of it, or because more than the longest pause between readings lies there.
func (s *stretch) readWithin(since, until int64) bool {
	return s.First >= since && s.First <= until || s.Last >= since && s.Last <= until ||
		min(s.Last, until)-max(s.First, since) >= 2*trace.ReadingInterval.Nanoseconds()
}

// nearest is the reading nearest to an instant, whatever has changed in between.
func (c Course) nearest(instant, end int64) Reading {
	best := Reading{}
	distance := func(r Reading) int64 { return max(r.After, -r.After) }
	for i := range c {
		s := &c[i]
		r := Reading{Valid: true, Used: s.Used}
		switch {
		case s.Last < instant:
			r.After = s.Last - instant
		case s.First > instant:
			r.After = s.First - instant
		}
		if s.First > end && best.Valid {
			break
		}
		if !best.Valid || distance(r) < distance(best) {
			best = r
		}
	}
	return best
}

// moment is a time at which the books of a device may be closed.
type moment struct {
	time    int64
	stretch stretch
}

// moments are the middles of stretches: the greatest, longest ones, and the last.
func (g *GPUReadings) moments() []moment {
	order := make([]int, len(g.All))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &g.All[a], &g.All[b]
		return cmp.Or(cmp.Compare(y.Used, x.Used), cmp.Compare(y.length(), x.length()))
	})
	chosen := slices.Clone(order[:min(len(order), maxMoments)])
	for i := max(0, len(g.All)-maxMoments); i < len(g.All); i++ {
		chosen = append(chosen, i)
	}
	slices.Sort(chosen)
	var moments []moment
	for _, i := range slices.Compact(chosen) {
		s := g.All[i]
		moments = append(moments, moment{s.First + s.length()/2, s})
	}
	return moments
}

// Moments are what Options.Moments has to be for [CloseBooks], with readings or without.
func (r *Readings) Moments() []int64 {
	if r == nil {
		return nil
	}
	var times []int64
	for i := range r.GPUs {
		for _, m := range r.GPUs[i].moments() {
			times = append(times, m.time)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}
