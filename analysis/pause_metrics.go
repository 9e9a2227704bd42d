package analysis

import (
	"github.com/memprof/memprof/analysis/pause"
)

// pauseMetrics are metrics of devices whose memory has tags.
var pauseMetrics = []Metric{
	paused.metric("pause.untagged.bytes", Bytes, "greatest sum of untagged live requests at a pause", func(d *DeviceResult) (float64, int64, bool) {
		untagged := &d.Pauses.Untagged
		return float64(untagged.Bytes), untagged.Seq, untagged.Bytes > 0 || len(d.Transitions) > 0
	}),
	ofCycle("pause.unneeded.bytes", Bytes, "greatest sum of tags that were resident in a stage that did not need them", func(s *pause.Result) float64 {
		var most int64
		for stage := range s.Cycle.Stages {
			most = max(most, s.Cycle.Unneeded(stage))
		}
		return float64(most)
	}),
	ofCycle("pause.untagged.free.bytes", Bytes, "greatest untagged memory that was free during a whole visit of a stage", func(s *pause.Result) float64 {
		var most int64
		for i := range s.Stages {
			most = max(most, s.Stages[i].Free)
		}
		return float64(most)
	}),
	ofCycle("pause.recorded.peak", Bytes, "greatest reserved memory since the first stage began", func(s *pause.Result) float64 { return float64(s.Recorded.Peak) }),
	ofCycle("pause.on_use.peak", Bytes, "lowest peak that the stages allow: each tag is resumed when it is used", func(s *pause.Result) float64 { return float64(s.OnUse.Peak) }),
	ofCycle("pause.excess", Share, "pause.recorded.peak minus pause.on_use.peak; share of pause.on_use.peak, may exceed 100%", func(s *pause.Result) float64 {
		return share(s.Recorded.Peak-s.OnUse.Peak, s.OnUse.Peak)
	}),
	paused.metric("pause.failed.count", Count, "pauses and resumes of an arena that failed", func(d *DeviceResult) (float64, int64, bool) {
		seq, failed := int64(-1), 0
		for _, t := range d.Transitions {
			if t.Failed == "" {
				continue
			}
			if failed++; seq < 0 {
				seq = t.Seq
			}
		}
		return float64(failed), seq, true
	}),
}

// paused are devices whose memory has tags.
var paused = ofWhole(func(d *DeviceResult) *DeviceResult {
	if d.Pauses == nil {
		return nil
	}
	return d
})

// cycle is what tags did in a job that has stages.
var cycle = ofWhole(func(d *DeviceResult) *pause.Result {
	if d.Pauses == nil || len(d.Pauses.Cycle.Stages) == 0 {
		return nil
	}
	return d.Pauses
})

func ofCycle(name string, unit Unit, help string, of func(*pause.Result) float64) Metric {
	return cycle.metric(name, unit, help, func(p *pause.Result) (float64, int64, bool) { return of(p), -1, true })
}
