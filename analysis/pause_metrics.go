package analysis

// pauseMetrics are of devices whose memory has tags.
var pauseMetrics = []Metric{
	ofPauses("pause.untagged.bytes", Bytes, "greatest sum of live requests outside every region at a pause", func(d *DeviceResult) (float64, int64, bool) {
		return float64(d.Pauses.Untagged.Bytes), d.Pauses.Untagged.Seq, d.Pauses.Untagged.Bytes > 0 || len(d.Transitions) > 0
	}),
	ofPauses("pause.untagged.alike.bytes", Bytes, "labelled as most of a tag is, and outside every region", func(d *DeviceResult) (float64, int64, bool) {
		var sum int64
		for _, s := range d.Pauses.Categories {
			sum += s.Bytes
		}
		return float64(sum), -1, true
	}),
	ofCycle("pause.unneeded.bytes", Bytes, "greatest sum of tags that were awake in a stage that did not need them", func(s *Pauses) float64 {
		var most int64
		for stage := range s.Cycle.Stages {
			most = max(most, s.Cycle.Unneeded(stage))
		}
		return float64(most)
	}),
	ofCycle("pause.untagged.free.bytes", Bytes, "greatest sum outside of tags that was free during a whole visit of a stage", func(s *Pauses) float64 {
		var most int64
		for i := range s.Stages {
			most = max(most, s.Stages[i].Free)
		}
		return float64(most)
	}),
	ofCycle("pause.recorded.peak", Bytes, "greatest R from the start of the first stage on", func(s *Pauses) float64 { return float64(s.Recorded.Peak) }),
	ofCycle("pause.on_use.peak", Bytes, "least peak that the stages allow: of waking each tag when it is needed", func(s *Pauses) float64 { return float64(s.OnUse.Peak) }),
	ofCycle("pause.excess", Share, "recorded peak beyond the staged one; share of the staged one, a ratio, which may exceed 100%", func(s *Pauses) float64 {
		return share(s.Recorded.Peak-s.OnUse.Peak, s.OnUse.Peak)
	}),
	ofPauses("pause.failed.count", Count, "pauses and resumes of an arena that failed", func(d *DeviceResult) (float64, int64, bool) {
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

func ofPauses(name string, unit Unit, help string, of func(*DeviceResult) (float64, int64, bool)) Metric {
	return Metric{name, unit, help, func(d *DeviceResult) (float64, int64, bool) {
		if d.Pauses == nil {
			return 0, -1, false
		}
		return of(d)
	}}
}

func ofCycle(name string, unit Unit, help string, of func(*Pauses) float64) Metric {
	return ofPauses(name, unit, help, func(d *DeviceResult) (float64, int64, bool) {
		if len(d.Pauses.Cycle.Stages) == 0 {
			return 0, -1, false
		}
		return of(d.Pauses), -1, true
	})
}
