package serving

import "github.com/memprof/memprof/analysis/kvcache"

// What a simulation counts of its steps, and the result it makes of that.

// counts says whether the warm-up is over.
func (s *simulation) counts() bool { return s.step >= s.options.Warmup }

// count counts the slots after steps steps, or a time without a step, that all had the present state and
// lasted duration ns together.
func (s *simulation) count(steps, duration int64) error {
	shares := s.memory.Shares(s.head())
	if shares.Sum() != s.options.Capacity || shares.Negative() {
		return &kvcache.StepError{Step: s.step + 1, Shares: shares, Capacity: s.options.Capacity}
	}
	first, begin := s.step+1, s.now
	s.step += steps
	s.now += duration
	running, waiting := int64(len(s.running)), int64(len(s.preempted))
	if s.waiting != nil {
		waiting++
	}
	s.series.Add(kvcache.Point{
		Step: first, Time: begin, Running: running, Waiting: waiting, Shares: shares,
	})
	counted := min(steps, s.step-s.options.Warmup)
	if counted < 0 || counted == 0 && steps > 0 {
		return nil
	}
	weight := counted
	if s.options.Timing != nil {
		weight = duration // of one step, or of none
	} else {
		duration = counted * s.options.StepTime
	}
	s.means.Add(shares, weight)
	s.batch += float64(running) * float64(weight)
	if s.kinds != nil {
		s.kinds.Weigh(weight)
	}
	s.result.Steps += counted
	s.result.Time += duration
	s.result.Peak = max(s.result.Peak, running)
	if s.blocks != nil {
		s.blocks.AddSharing(s.result, counted)
	}
	return nil
}

// finish completes the result.
func (s *simulation) finish() *kvcache.Result {
	r := s.result
	r.Mean = s.means.Of(r.Capacity)
	if s.means.Steps > 0 {
		r.Batch = s.batch / float64(s.means.Steps)
	}
	if s.kinds != nil {
		r.Kinds = s.kinds.Kinds()
	}
	if r.Time > 0 {
		r.Served = s.latency.served(r.Time, saturated(&s.options))
	}
	r.Series = s.series.Points()
	if s.blocks != nil {
		s.blocks.AddCounters(r)
	}
	return r
}
