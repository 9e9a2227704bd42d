package analysis

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
)

// device is a device of the ledger, its trackers and its result in the making.
type device struct {
	*ledger.Device
	result  DeviceResult
	log     iterations.Log
	current iterations.Iteration

	trend   *iterations.LeakTracker
	series  series
	period  *iterations.Finder // nil once there is a mark
	others  *accounting.Device
	tags    []*tagUse
	growths *growthTracker
	sums    torchalloc.Sums
	native  []*arena // those of an allocator that is only observed
	byPhase attribution.DevicePhases
	newest  newestRequest
	pauses  *pause.Tracker // nil without tags
	kept    *keyframes.Recorder
	keys    *keyframes.Chooser // nil unless they are wanted

	categories *attribution.CategoryCourse // nil unless they are wanted
	lives      *attribution.Lives          // likewise
}

func newDevice(id int32, opt *Options, growths *growthTracker) *device {
	of := ledger.NewDevice(id)
	of.Opening = opt.Opening
	d := &device{
		Device:  of,
		others:  accounting.NewDevice(of),
		growths: growths,
		series:  series{limit: opt.MaxPoints, due: new(int64)},
		period:  &iterations.Finder{},
		sums:    torchalloc.NewSums(),
	}
	d.result = DeviceResult{
		Device: id, Memory: &Memory{Chunks: &Chunks{}}, Failures: &Failures{}, Growing: &growths.Growing,
		OtherLibraries: &d.others.OtherLibraries, Held: &attribution.Result{},
	}
	return d
}

// newestRequest is the last request of a device, if nothing was freed since.
type newestRequest struct {
	seq           int64 // -1 for none
	bytes, before int64 // requested, and by the request before it
}

func (n *newestRequest) requested(e *trace.Event) { *n = newestRequest{e.Seq, e.Requested, n.bytes} }

// libraryWorkspace is the least size, in bytes, of what counts as a library's workspace; what is smaller counts as a temporary.
const libraryWorkspace = 1 << 20

// freedAlone says whether a block that is freed now was the newest request, and looks like a library's workspace: an
// operator's result is most often as large as that of the operator before.
func (n *newestRequest) freedAlone(s *ledger.Segment) bool {
	alone := s.Seq == n.seq && s.Requested >= libraryWorkspace && n.bytes != n.before
	n.seq = -1
	return alone
}

// now is the state after the event of seq, with the C that was read if chunks are unknown.
func (d *device) now(seq, time int64) ledger.Instant {
	i := d.Instant(seq, time)
	d.sums.Fill(&i)
	return i
}

// closePoint closes the last point of the series, if an event at a moment, which nothing was changed by yet, is
// behind it.
func (d *device) closePoint(moment int64) {
	if moment > d.series.last {
		d.series.close(d.Device)
	}
}

// detectIterations fills in the iterations of a device without marks, from the period of
// its requests, and says of everything seen in which one it was. ended says that the job came to
// its own end. What repeats more than twice in each of its forwards are layers.
func (d *device) detectIterations(ended bool, forwards int) {
	if d.period == nil {
		return
	}
	found, period := d.period.Finish(d.result.Final.Seq, d.result.Final.Time, d.result.Final.T, d.result.Final.C, d.PausedT, ended)
	if d.period = nil; forwards > 0 && found.Count > 2*forwards {
		return
	}
	d.log, d.result.Period, d.result.Iterations = found, period, found.List
	at := d.log.IndexAt
	d.result.Peak.Iteration = at(d.Peak.Seq)
	d.result.Final.Iteration = at(d.result.Final.Seq)
	for i := range d.result.Growths {
		d.result.Growths[i].Iteration = at(d.result.Growths[i].Seq)
	}
	for i := range d.result.OOMs {
		d.result.OOMs[i].At.Iteration = at(d.result.OOMs[i].Seq)
	}
	for i := range d.series.points {
		p := &d.series.points[i]
		p.Iteration, p.At.Iteration, p.Last.Iteration = at(p.seq), at(p.At.Seq), at(p.Last.Seq)
	}
}
