package serving

import "github.com/memprof/memprof/analysis/kvcache"

// uncomputed returns how many tokens a group has to compute that was just admitted.
func (s *simulation) uncomputed(g *group) int64 {
	if s.options.Timing == nil {
		return 0
	}
	prompts := int64(g.Request.PromptCount())
	return prompts*int64(max(1, g.Request.Prompt-g.Found)) + int64(g.Sequences)*int64(g.Generated)
}

// compute counts what the step computes, under a Timing: a token for each sequence that generates, and of the
// prompts, the earliest arrival first, all or what the rest of Chunk allows. Groups whose prompt is complete
// by that generate their first token in the same step.
func (s *simulation) compute() {
	if s.options.Timing == nil {
		return
	}
	if !s.changed {
		s.work = kvcache.Work{Decode: s.work.Decode, Context: s.work.Context + s.work.Decode}
		return
	}
	s.work, s.changed = kvcache.Work{}, false
	for _, g := range s.running {
		if g.uncomputed == 0 {
			s.work.Decode += int64(g.Sequences)
			s.work.Context += int64(g.Sequences) * int64(g.Length()+1)
		}
	}
	left := s.options.Chunk - s.work.Decode
	for _, g := range s.running {
		n := g.uncomputed
		if n == 0 {
			continue
		}
		s.changed = true // it generates in the next step, or computes more
		if s.options.Chunk > 0 {
			// While generating sequences take all of it, prompts wait. They end.
			n = min(n, max(left, 0))
			left -= n
		}
		if n > 0 {
			s.work.Prefill += n
			s.work.Pairs += g.pairs(n)
			g.uncomputed -= n
		}
	}
}

// pairs returns the pairs of the next n uncomputed tokens: prompts are computed side by side from their found
// beginnings, and the tokens of a part attend to its middle on average.
func (g *group) pairs(n int64) float64 {
	prompts := float64(g.Request.PromptCount())
	whole := prompts * float64(g.Length())
	return float64(n) * (whole - float64(g.uncomputed) + (float64(n)+prompts)/2) / prompts
}

// duration is how long the present step takes, ns.
func (s *simulation) duration() int64 {
	if s.options.Timing == nil {
		return s.options.StepTime
	}
	if s.blocks != nil {
		slots, pieces := s.blocks.Swapped()
		s.work.Swapped, s.work.Pieces = slots-s.swapped, pieces-s.pieces
		s.swapped, s.pieces = slots, pieces
	}
	if size := int64(s.options.Policy.Block); size > 0 {
		s.work.Blocks = s.work.Context/size + s.work.Decode
	}
	return max(1, s.options.Timing.Step(s.work))
}
