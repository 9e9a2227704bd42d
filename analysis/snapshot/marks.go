package snapshot

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
)

// marks puts a job's annotations among the events of a device, by their time.
type marks struct {
	left      []annotation
	iteration string   // the annotation whose end ends an iteration; "" where there is none
	open      []string // phases, the innermost last
	count     int64    // of iterations
}

// newMarks chooses what ends iterations: a mark of that name, or the step of the first
// optimizer that has any.
func newMarks(all []annotation) *marks {
	m := &marks{left: slices.Clone(all)}
	slices.SortStableFunc(m.left, func(a, b annotation) int { return int(min(max(a.timeUS-b.timeUS, -1), 1)) })
	for _, a := range m.left {
		if a.name == "iteration" {
			m.iteration = a.name
			return m
		}
		if m.iteration == "" && strings.HasPrefix(a.name, "Optimizer.step#") {
			m.iteration = a.name
		}
	}
	return m
}

// mark writes an event that belongs to no device.
func (l *layout) mark(e trace.Event) error {
	e.Time, e.Device, e.Arena, l.wrote = l.now, trace.NoDevice, trace.NoArena, l.now
	return l.out.append(&e)
}

// until writes the marks before a time. Ends without a begin are left out.
func (l *layout) until(timeUS int64) error {
	m := l.marks
	for len(m.left) > 0 && m.left[0].timeUS < timeUS {
		a := m.left[0]
		m.left = m.left[1:]
		l.now = max(l.now, (a.timeUS-l.base)*1000)
		if err := l.leave(); err != nil {
			return err
		}
		name := clean(a.name)
		if err := l.annotate(a.begin, name); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) annotate(begin bool, name string) error {
	m := l.marks
	if name == "iteration" {
		if begin {
			return nil
		}
		return l.iteration()
	}
	if begin {
		m.open = append(m.open, name)
		return l.mark(trace.Event{Kind: trace.KindPhaseBegin, Context: l.w.Intern(name)})
	}
	if n := len(m.open); n == 0 || m.open[n-1] != name {
		return nil
	}
	m.open = m.open[:len(m.open)-1]
	if err := l.mark(trace.Event{Kind: trace.KindPhaseEnd, Context: l.w.Intern(name)}); err != nil || name != m.iteration {
		return err
	}
	return l.iteration()
}

func (l *layout) iteration() error {
	e := trace.Event{Kind: trace.KindIteration, Requested: l.marks.count}
	l.marks.count++
	return l.mark(e)
}
