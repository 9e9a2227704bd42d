package accounting

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// changeSpan is how long before and after an event a reading may or may not include its change: memory is in
// use before the call that allocates it returns.
const changeSpan = int64(10 * time.Millisecond)

// maxMoments bounds how many moments of a shared device are examined: so many of its greatest stretches, and
// so many of its last.
const maxMoments = 256

// Readings are the used memory of a machine's GPUs while a job ran, in the order of run.json's list.
type Readings struct {
	GPUs []GPUReadings
}

// GPUReadings are those of one GPU.
type GPUReadings struct {
	All       Course         // of all processes on the device
	Processes map[int]Course // of the job's processes, by id; nil if the driver reports none
}

// Course is a series of readings as stretches of equal ones, in order of time.
type Course []stretch

// stretch is a sequence of equal readings. First and Last are the times of the first and the last of them.
type stretch struct {
	First, Last int64
	Used        int64
}

func (s *stretch) length() int64 { return s.Last - s.First }

// ReadReadings reads all events of a run's readings; text is [dataset.Strings.Text] of them.
// They fit in memory: there are few compared with the events of a process.
func ReadReadings(src trace.Source, text func(context int32) string) (*Readings, error) {
	r := &Readings{}
	for e, err := range trace.Events(src) {
		if err != nil {
			return nil, err
		}
		if err := r.add(e, text(e.Context)); err != nil {
			return nil, fmt.Errorf("reading %d: %w", e.Seq, err)
		}
	}
	return r, nil
}

// MostGPUs is more GPUs than a machine has. It bounds the memory that a damaged device number can cost.
const MostGPUs = 1024

func (r *Readings) add(e *trace.Event, whose string) error {
	if e.Kind != trace.KindDeviceUsed {
		return nil
	}
	_, used := e.DeviceMemory()
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

// Used is what was in use at a time, in bytes.
type Used struct{ Time, Bytes int64 }

// Times are readings in order of time. Between two equal ones all readings gave the same.
func (c Course) Times() (all []Used) {
	for _, s := range c {
		all = append(all, Used{s.First, s.Used})
		if s.Last > s.First {
			all = append(all, Used{s.Last, s.Used})
		}
	}
	return all
}

func (c Course) greatest() (used int64) {
	for _, s := range c {
		used = max(used, s.Used)
	}
	return used
}

// greatestWithin returns the greatest reading that was certainly taken between two times.
func (c Course) greatestWithin(since, until int64) (used int64, ok bool) {
	for i := range c {
		if s := &c[i]; s.readWithin(since, until) {
			used, ok = max(used, s.Used), true
		}
	}
	return used, ok
}

// of returns the readings of one GPU by its index; nil if there are none.
func (r *Readings) of(gpu int) *GPUReadings {
	if r == nil || gpu < 0 || gpu >= len(r.GPUs) {
		return nil
	}
	return &r.GPUs[gpu]
}

// UsedAt returns what a GPU had in use by the reading nearest to a time; -1 if none was taken near it.
func (r *Readings) UsedAt(gpu int, time int64) int64 {
	g := r.of(gpu)
	if g == nil {
		return -1
	}
	reading := g.All.nearest(time, math.MaxInt64)
	if !reading.Valid || max(reading.After, -reading.After) > seenFor {
		return -1
	}
	return reading.Used
}

// beside returns the most that the card had in use beside a process, in bytes. The use of both is read one after the other, so that one that
// changes says nothing.
func (g *GPUReadings) beside(own Course) (most int64) {
	for _, s := range own {
		if s.Last > s.First && s.Used > 0 { // 0: it is not there
			most = max(most, g.All.nearest(s.Last, math.MaxInt64).Used-s.Used)
		}
	}
	return most
}

// usedBeforeJob returns the first reading, which was taken before the job began, in bytes.
func (g *GPUReadings) usedBeforeJob() int64 { return g.All[0].Used }

// at chooses the reading for an instant. The memory of the process did not change from since to until: at returns
// the nearest reading in that span, preferably after the instant. Without one it returns the nearest reading of
// all that is not later than end, when the process was last recorded.
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

// readWithin says whether one of a stretch's readings was certainly taken between two times: the first, the
// last, or one between them if the overlap is at least two intervals long.
func (s *stretch) readWithin(since, until int64) bool {
	return s.First >= since && s.First <= until || s.Last >= since && s.Last <= until ||
		min(s.Last, until)-max(s.First, since) >= 2*dataset.ReadingInterval.Nanoseconds()
}

// nearest returns the reading nearest to an instant, even if memory changed in between.
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

// moment is a time at which the terms of a shared device may be compared with a reading.
type moment struct {
	time    int64
	stretch stretch
}

// moments returns the middles of the greatest and longest stretches, and of the last ones.
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

// Moments returns what Options.Moments must be for [Reconcile]; nil without readings.
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
