package analysis

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/torchalloc"
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
	sums    *torchalloc.Sums // nil unless an allocator is only observed
	byPhase attribution.DevicePhases
	pauses  *pause.Tracker // nil without tags
	kept    *keyframes.Recorder
	keys    *keyframes.Chooser // nil unless they are wanted

	categories *attribution.CategoryCourse // nil unless they are wanted
}

func newDevice(id int32, opt *Options) *device {
	of := ledger.NewDevice(id)
	return &device{
		Device: of,
		others: accounting.NewDevice(of),
		result: DeviceResult{Device: id},
		series: series{limit: opt.MaxPoints, due: new(int64)},
		period: &iterations.Finder{},
	}
}

// now is the state after the event of seq, with the C that was read if chunks are unknown.
func (d *device) now(seq, time int64) ledger.Instant {
	i := d.Instant(seq, time)
	i.C = d.sums.Now(d.C)
	return i
}

// observe hands the state after an event that changed it to the trackers.
func (d *device) observe(seq, time int64) {
	if d.Observe(seq, time) {
		d.kept.Peak(d.Peak)
	}
	t, c, r := d.T, d.C, d.R
	it := &d.current
	if t > it.PeakT {
		it.PeakT = t
	}
	if c > it.PeakC {
		it.PeakC = c
	}
	if r > it.PeakR {
		it.PeakR = r
	}
	d.byPhase.Observe(t, c)
	d.series.add(d.Device, d.sums != nil, seq, time)
	d.trend.Observe(seq, time, d.HeldBytes(), d.result.Allocs)
	if d.keys != nil {
		d.keys.Observe(seq, time)
	}
	if d.categories != nil {
		d.categories.Observe(d.Device, seq, time)
	}
}

// closePoint closes the last point of the series, if an event at a moment, which nothing was changed by yet, is
// behind it.
func (d *device) closePoint(moment int64) {
	if moment > d.series.last {
		d.series.close(d.Device)
	}
}
