package recorder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
)

// A Watcher watches the events of a job as they come, for a condition on a metric that becomes true, like
// reserved.peak > 60GiB, and for requests that fail.
//
// Conditions are gates of [github.com/memprof/memprof/analysis/gate]. Where all are about greatest reserved
// bytes or failed requests, sums of the events decide; other metrics take the analysis of every event: what pauses and ranges of
// graph memory take from them, and what blocks give back, is more than sums.

// Trigger is a condition that a process comes to fulfil at most once.
type Trigger struct {
	gate gate.Gate
}

// sums of the events of a device.
type sums struct{ reserved, failed int64 }

// summed are the metrics that follow from sums.
var summed = map[string]func(*sums) int64{
	"reserved.peak": func(s *sums) int64 { return s.reserved },
	"oom.count":     func(s *sums) int64 { return s.failed },
}

// ParseTrigger reads a condition in the language of gates.
func ParseTrigger(text string) (Trigger, error) {
	g, err := gate.Parse(text)
	if err != nil {
		return Trigger{}, fmt.Errorf("trigger: %w", err)
	}
	switch {
	case g.Relative != nil:
		return Trigger{}, fmt.Errorf("trigger %q: a limit relative to a baseline is for check: give a number", text)
	case g.Selector.String() != "":
		return Trigger{}, fmt.Errorf("trigger %q: a selector is for check: a trigger is about each process and device", text)
	case !g.Metric.Of(analysis.Running):
		return Trigger{}, fmt.Errorf("trigger %q: %s has no value while a job runs: want %s", text, g.Metric.Name, plain.Alternatives(analysis.MetricsOf(analysis.Running)))
	}
	return Trigger{g}, nil
}

// Watcher follows the processes of a job. Its methods are for one goroutine.
type Watcher struct {
	triggers []Trigger
	cheap    bool
	tell     func(why string, failed bool)
	trouble  func(error)
	of       map[string]*watched
}

// NewWatcher calls tell, within Poll, with the reason when a process came to fulfil a trigger, or when requests failed since the last
// Poll. It calls trouble with the error if a process can no longer be followed.
func NewWatcher(triggers []Trigger, tell func(why string, failed bool), trouble func(error)) *Watcher {
	w := &Watcher{triggers: triggers, tell: tell, trouble: trouble, of: map[string]*watched{}, cheap: true}
	for i := range triggers {
		w.cheap = w.cheap && summed[triggers[i].gate.Metric.Name] != nil
	}
	return w
}

// watched is a process that is followed.
type watched struct {
	fired  []bool // by trigger
	failed int64  // requests since the last Poll
	seq    int64
	dirty  bool // there were events since the last Poll

	mapped  *trace.Live // fed with what changes mapped memory only
	devices map[int32]*sums
	live    *analysis.Live // in place of both where a metric needs all
	broken  error          // why live does not go on
}

func (w *Watcher) watched(name string, text func(int32) string) *watched {
	p := w.of[name]
	if p != nil {
		return p
	}
	p = &watched{fired: make([]bool, len(w.triggers)), mapped: trace.NewLive(), devices: map[int32]*sums{}}
	if !w.cheap {
		p.live = analysis.NewLive(analysis.Options{Process: name, Text: text})
	}
	w.of[name] = p
	return p
}

// Event takes an event of a process.
func (w *Watcher) Event(name string, e *trace.Event, text func(int32) string) {
	if len(w.triggers) == 0 && e.Kind != trace.KindOOM {
		return
	}
	p := w.watched(name, text)
	p.dirty = true
	if e.Kind == trace.KindOOM {
		p.failed++
	}
	switch {
	case len(w.triggers) == 0:
	case p.live == nil:
		p.sum(e)
	case p.broken == nil:
		numbered := *e
		numbered.Seq = p.seq
		p.seq++
		if p.broken = p.live.Add(&numbered); p.broken != nil {
			w.trouble(fmt.Errorf("--trigger: %s is no longer followed: %w", name, p.broken))
		}
	}
}

// sum keeps the sums of a device.
func (p *watched) sum(e *trace.Event) {
	switch e.Kind {
	case trace.KindMap, trace.KindUnmap, trace.KindPause, trace.KindResume:
		p.mapped.Add(e)
		d := p.device(e.Device)
		d.reserved = max(d.reserved, p.mapped.ReservedOn(e.Device))
	case trace.KindOOM:
		p.device(e.Device).failed++
	}
}

func (p *watched) device(id int32) *sums {
	d := p.devices[id]
	if d == nil {
		d = &sums{}
		p.devices[id] = d
	}
	return d
}

// Poll evaluates the triggers, and tells what has happened since the last call.
func (w *Watcher) Poll() {
	failed := int64(0)
	for _, name := range slices.Sorted(maps.Keys(w.of)) {
		p := w.of[name]
		failed += p.failed
		p.failed = 0
		if p.dirty {
			p.dirty = false
			w.evaluate(name, p)
		}
	}
	if failed > 0 {
		w.tell("a request failed for good", true)
	}
}

func (w *Watcher) evaluate(name string, p *watched) {
	var devices []int32
	if p.live != nil {
		state := p.live.State()
		for i := range state.Devices {
			devices = append(devices, state.Devices[i].Device)
		}
	} else {
		devices = slices.Sorted(maps.Keys(p.devices))
	}
	for i := range w.triggers {
		g := &w.triggers[i].gate
		for _, device := range devices {
			if p.fired[i] {
				break
			}
			if value, ok := p.value(&g.Metric, device); ok && g.Holds(value) {
				p.fired[i] = true
				w.tell(fmt.Sprintf("%s, in %s on device %d", strings.TrimSpace(g.Text), name, device), false)
			}
		}
	}
}

// value is that of a metric now.
func (p *watched) value(metric *analysis.Metric, device int32) (value float64, ok bool) {
	if p.live == nil {
		return float64(summed[metric.Name](p.devices[device])), true
	}
	value, _, ok = metric.Value(p.live.Subjects(device))
	return value, ok
}
