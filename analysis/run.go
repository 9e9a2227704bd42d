package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// Options of Run. Zero values stand for the defaults.
type Options struct {
	Process string // name in the Result
	// Text gives the text of a context; none gives "" for all. The Strings of a
	// dataset.Process have such a method.
	Text func(context int32) string
	// FirstSeq is the first event of the trace; those before it restate what was in
	// force and are in no count, peak or series.
	FirstSeq int64
	// Opening is the first event of an imported snapshot that does not restate what was there before it.
	Opening int64
	// Marks are the iterations before FirstSeq, which [At] counts, too.
	Marks int
	// Recovered says that the process did not come to its own end.
	Recovered bool
	// Live says that the process is still recorded.
	Live bool
	// Moments are times, in ascending order, at which the holdings of devices are wanted;
	// see [Readings.Moments].
	Moments []int64

	// Observe, if set, is called with each event, in order, opening ones too, and the state of the event's
	// device after it. after is nil if the event has no device. Both pointers are valid only during the call.
	Observe func(e *trace.Event, device int32, after *ledger.Instant)
	// LiveGroups makes the pass fill in [DeviceResult.PeakLive], OOMLive and FinalLive.
	LiveGroups bool
	// Explore makes the pass fill in Bands and [DeviceResult.ByCategory], and choose Keyframes, the instants that a page shows; see
	// [Result.Explore].
	Explore bool
	// ExactEvents is for package recording: a page has all events of a recording that has at most so many, else those
	// of the first, peak, last and worst iterations.
	ExactEvents int64
	// Lives makes the pass fill in [DeviceResult.Lives], which takes 16 bytes for each allocation.
	Lives bool

	AllFrames bool // stacks have all their frames; see package attribution

	MaxPoints  int // of a Series; default [MaxPoints], at least 2
	MaxGrowths int // kept of each device, and OOMs likewise; default 10,000
	Top        int // origins in each list, stacks in a Breakdown; default 10
	Groups     int // modules in a Breakdown; default 64
}

// MaxPoints is the most points of a series, unless Options say another.
const MaxPoints = 4096

func (o Options) withDefaults() Options {
	o.MaxPoints = max(2, cmp.Or(o.MaxPoints, MaxPoints))
	o.MaxGrowths = cmp.Or(o.MaxGrowths, 10_000)
	o.Top = cmp.Or(o.Top, 10)
	o.Groups = cmp.Or(o.Groups, 64)
	if o.Text == nil {
		o.Text = func(int32) string { return "" }
	}
	return o
}

// Run analyzes one process in one pass. Host memory is bounded by what is live and by how many
// arenas there were, not by the number of events; time is linear in the events, but for the
// logarithm of what is live. Of more than 65,536 iterations neighbours are kept as one. An error is
// the source's, or an *EventError that names the first event that cannot be: an alloc outside of free
// mapped memory, a free of what is not live, a mapping on top of another, an unmapping of what is in
// use, a state that does not add up, a device from number 1,024 on, an arena after 1,048,576 others.
func Run(src trace.Source, opt Options) (*Result, error) { return newAnalyzer(opt).run(src) }

func (a *analyzer) run(src trace.Source) (*Result, error) {
	for {
		b, err := src.Next()
		if errors.Is(err, io.EOF) {
			return a.finish()
		}
		if err != nil {
			return nil, err
		}
		if err := a.batch(b); err != nil {
			return nil, err
		}
	}
}

func newAnalyzer(opt Options) *analyzer {
	a := &analyzer{opt: opt.withDefaults(), ledger: ledger.New(), history: keyframes.NewHistory()}
	a.attribution = attribution.New(attribution.Options{Text: a.opt.Text, Top: a.opt.Top, Groups: a.opt.Groups, Opening: a.opt.Opening, AllFrames: a.opt.AllFrames})
	a.kv = kv.New(a.opt.Text)
	a.graphs = graphs.New(a.ledger, a.attribution, a.opt.Text, func(index int32, e *trace.Event) error { return a.finishEvent(a.arenas[index], e) })
	a.others = accounting.New(a.opt.Text, a.opt.Moments)
	a.moment = a.others.Next()
	if a.opt.Explore {
		a.bands = keyframes.NewBands()
	}
	return a
}

// analyzer is the state of one pass.
type analyzer struct {
	opt     Options
	ledger  *ledger.Ledger
	arenas  []*arena  // those of the ledger, by Index
	last    *arena    // of the event before that has one; nil before the first
	devices []*device // in order of appearance
	marks   iterations.Log
	start   iterations.Iteration // where the current iteration started
	calls   iterations.CallLog

	kv          *kv.Tracker
	attribution *attribution.Tracker
	requests    iterations.PhaseRequests
	history     *keyframes.History
	second      bool             // it is a second pass
	chosen      *Result          // of the first pass, whose keyframes are wanted; may be nil
	bands       *keyframes.Bands // nil unless Options.Explore
	moment      int64            // the next of Options.Moments
	pointsDue   int64            // an event behind it may be behind an open point of a series
	others      *accounting.Tracker
	captures    int64 // of CUDA graphs, under way
	graphs      *graphs.Tracker

	budget   lookBudget
	opening  bool // the event at hand restates
	events   int64
	lost     int64
	lastSeq  int64
	lastTime int64
}

func (a *analyzer) batch(b *trace.Batch) error {
	e := new(trace.Event) // one for all events: valid for an observer during its call only
	for i := range b.Seq {
		b.Read(i, e)
		if err := a.event(e); err != nil {
			return err
		}
		if a.opt.Observe != nil {
			a.observe(e)
		}
	}
	return nil
}

// observe passes on an event, with its device after it.
func (a *analyzer) observe(e *trace.Event) {
	id := e.Device
	if ar := a.lookup(e.Arena); ar != nil {
		id = ar.Info.Device
	}
	for _, d := range a.devices {
		if d.ID == id {
			now := d.now(e.Seq, e.Time)
			a.opt.Observe(e, id, &now)
			return
		}
	}
	a.opt.Observe(e, id, nil)
}

func (a *analyzer) event(e *trace.Event) error {
	if e.Time > a.moment {
		a.passMoments(e.Time)
	}
	if e.Time > a.pointsDue {
		a.closePoints(e.Time)
	}
	if a.opening = e.Seq < a.opt.FirstSeq; !a.opening {
		if a.events == 0 {
			a.begin(e)
		}
		a.events++
		a.budget.Events = a.events
	}
	a.lastSeq, a.lastTime = e.Seq, e.Time
	if a.history.Now = e.Seq; a.second && !a.opening {
		a.history.Event(e.Seq, e.Time)
	}
	if e.Device < trace.NoDevice || e.Device >= maxDevices {
		return ledger.NewEventError(e, fmt.Errorf("device %d is not one of 0 to %d", e.Device, maxDevices-1))
	}
	var err error
	if h := &handlers[e.Kind]; h.arena != nil {
		err = a.ofArena(h, e)
	} else if h.event != nil {
		err = h.event(a, e)
	}
	if err != nil {
		return ledger.NewEventError(e, err)
	}
	return nil
}

// begin takes the first event that does not restate: the state before it counts.
func (a *analyzer) begin(e *trace.Event) {
	a.start = iterations.Iteration{StartSeq: e.Seq, Start: e.Time}
	a.kv.Begin(e.Time)
	for _, d := range a.devices {
		d.current = a.start
		d.byPhase.Start(a.attribution.Phases.Current, e.Time, d.T, d.Known(d.C))
		d.sums.Begin()
		if d.R > 0 {
			d.observe(e.Seq-1, e.Time)
		}
	}
}

// passMoments makes the accounting keep the state at the moments before time.
func (a *analyzer) passMoments(time int64) {
	a.others.Pass(a.lastSeq, time, func(note func(*accounting.Device)) {
		if a.events == 0 { // the process has no memory before its first event
			return
		}
		for _, d := range a.devices {
			note(d.others)
		}
	})
	a.moment = a.others.Next()
}

// closePoints closes the points of series that an event at a moment is behind, before it changes anything.
func (a *analyzer) closePoints(moment int64) {
	a.pointsDue = math.MaxInt64
	for _, d := range a.devices {
		d.closePoint(moment)
		if d.series.open {
			a.pointsDue = min(a.pointsDue, d.series.last)
		}
	}
}

// The most that a process may have, far above what jobs have. Some events visit all of them, so these bounds keep
// the time of the pass linear in events.
const (
	maxDevices = 1024 // ordinals are below
	mostTags   = 1024 // of arenas, on a device
)

func (a *analyzer) deviceOf(id int32) *device {
	for _, d := range a.devices {
		if d.ID == id {
			return d
		}
	}
	d := newDevice(id, &a.opt, newGrowthTracker(a.opt.MaxGrowths, &a.budget))
	d.series.due = &a.pointsDue
	d.kept = keyframes.NewRecorder(d.Device, a.history)
	d.kept.Want(a.wantedOf(id))
	if a.opt.Explore {
		d.keys = keyframes.NewChooser(d.Device, a.opt.MaxPoints)
		d.categories = attribution.NewCategoryCourse(min(attribution.CoursePoints, a.opt.MaxPoints/2*2))
	}
	if a.opt.Lives {
		d.lives = &attribution.Lives{}
	}
	d.log = a.marks.Clone() // those before it was used
	d.Iteration = d.log.Count
	d.current = a.start
	d.byPhase.Start(a.attribution.Phases.Current, a.lastTime, d.T, d.C)
	d.trend = iterations.NewLeakTracker(d.log.Count > 0)
	if d.log.Count > 0 {
		d.period = nil
	}
	a.devices = append(a.devices, d)
	return d
}

func (a *analyzer) arena(e *trace.Event) error {
	made, err := a.ledger.Describe(e, a.opt.Text(e.Context), func(id int32) *ledger.Device { return a.deviceOf(id).Device })
	if err != nil || made == nil {
		return err
	}
	ar := &arena{Arena: made, device: a.deviceOf(e.Device)}
	a.followTags(ar)
	ar.observed()
	ar.tagged()
	if n := len(ar.device.tags); n > mostTags {
		return fmt.Errorf("device %d has more than %d tags", ar.Info.Device, mostTags)
	}
	a.arenas = append(a.arenas, ar)
	a.attribution.Arena(made.Info.Options)
	ar.graphs = a.graphs.Arena(made, e)
	return nil
}

// finish completes the results after the last event.
func (a *analyzer) finish() (*Result, error) {
	r := &Result{
		Process: a.opt.Process, Events: a.events, Duration: a.lastTime,
		Recovered: a.recovered(), Live: a.opt.Live, LastSeq: a.lastSeq, Calls: a.calls,
	}
	a.attribution.Finish(a.cutOff())
	for _, ar := range a.arenas {
		ar.device.growths.CutOff(&ar.growth, ar.Arena)
		info := ar.Info
		info.MaxR = ar.MaxR
		info.Final = ar.now(a.lastSeq, a.lastTime)
		info.Paused = ar.Paused()
		r.Arenas = append(r.Arenas, info)
	}
	if err := a.kv.Finish(a.lastTime, func(id int32, r *kv.Result) { d := a.deviceOf(id); d.result.KV = append(d.result.KV, r) }); err != nil {
		return nil, err
	}
	if a.bands != nil {
		r.Bands = a.bands.Finish(a.lastTime)
	}
	slices.SortFunc(a.devices, func(x, y *device) int { return cmp.Compare(x.ID, y.ID) })
	for _, d := range a.devices {
		if err := a.finishDevice(d); err != nil {
			return nil, err
		}
		// Copies: a pointer into a tracker would keep all of the pass.
		growing, libraries := *d.result.Growing, d.others.OtherLibraries
		d.result.Growing, d.result.OtherLibraries = &growing, &libraries
		r.Devices = append(r.Devices, d.result)
	}
	return r, nil
}

// recovered says whether the process did not come to its own end.
func (a *analyzer) recovered() bool { return a.opt.Recovered || a.lost > 0 }

// cutOff says whether it may have ended amid a phase: where a request failed, too.
func (a *analyzer) cutOff() bool {
	return a.recovered() || slices.ContainsFunc(a.devices, func(d *device) bool { return d.result.OOMCount > 0 })
}

func (a *analyzer) finishDevice(d *device) error {
	d.result.Peak, d.result.MaxT, d.result.MaxC, d.result.MaxR = d.Peak, d.MaxT, d.sums.MaxC(d.MaxT), d.MaxR
	d.result.Final = d.Instant(a.lastSeq, a.lastTime)
	d.result.Iterations = d.log.List
	d.result.Phases = d.byPhase.Finish(&a.attribution.Phases, a.lastTime, d.T, d.Known(d.C))
	if d.pauses != nil {
		d.result.Pauses = d.pauses.Finish(a.lastTime)
	}
	d.detectIterations(!a.recovered() && d.result.OOMCount == 0, a.attribution.Forwards())
	r := &d.result
	slices.SortFunc(r.Growths, func(x, y Growth) int { return cmp.Compare(x.Seq, y.Seq) })
	d.result.Paper = d.log.Paper(d.MaxR)
	r.Leak = &iterations.Leak{Verdict: iterations.TooShort}
	if points, ok := d.trend.Finish(r.Iterations, len(r.Iterations) > 0 && r.Period == 0, a.lastTime); ok {
		r.Leak = leak(&points, a.liveAt(d, &points), a.attribution, d.others)
	}
	d.result.Series.Points = d.series.finish(d.Device)
	if err := a.finishPeak(d); err != nil {
		return err
	}
	d.sums.Fill(&r.Final)
	d.sums.FillPeak(&r.Peak)
	r.Map.At = r.Peak
	d.result.Holdings = d.others.Finish(d.result.Peak, d.result.Final)
	a.finishCategories(d)
	a.finishLives(d)
	for _, u := range d.tags {
		d.result.Tags = append(d.result.Tags, u.TagUse)
	}
	d.result.Graphs = a.graphs.Finish(d.ID, d.MaxR+d.others.OtherLibraries.Peak) // each at its own moment
	return a.finishKeyframes(d)
}

// finishCategories fills in the course of the categories, if it was asked for.
func (a *analyzer) finishCategories(d *device) {
	if d.categories == nil {
		return
	}
	a.eachLive(d, func(ar *ledger.Arena, s *ledger.Segment) { a.categorize(d, ar, s, math.MaxInt64) })
	d.result.ByCategory = d.categories.Finish()
}

// finishLives adds the blocks that live on.
func (a *analyzer) finishLives(d *device) {
	if d.lives == nil {
		return
	}
	a.eachLive(d, func(_ *ledger.Arena, s *ledger.Segment) {
		b := s.Block()
		d.lives.Add(s.Seq, a.attribution.Category(&b))
	})
	d.result.Lives = d.lives
}

// eachLive calls f with each live block of a device, arena by arena.
func (a *analyzer) eachLive(d *device, f func(ar *ledger.Arena, s *ledger.Segment)) {
	for _, ar := range a.ledger.Arenas {
		if ar.Device != d.Device {
			continue
		}
		a.ledger.Each(ar, func(s *ledger.Segment) {
			if s.Kind == ledger.LiveSegment {
				f(ar, s)
			}
		})
	}
}

// finishKeyframes fills in the keyframes of a device: in a first pass which they are, in a second one all else.
func (a *analyzer) finishKeyframes(d *device) (err error) {
	if a.second {
		end := keyframes.End{Ledger: a.ledger, Attribution: a.attribution, Last: a.lastSeq, Time: a.lastTime}
		d.result.Keyframes, err = d.kept.Finish(end)
		return err
	}
	if d.keys != nil {
		var at func(seq int64) int
		if d.result.Period > 0 {
			at = d.log.IndexAt
		}
		d.result.Keyframes = d.keys.Finish(d.Instant(a.lastSeq, a.lastTime), at)
	}
	return nil
}
