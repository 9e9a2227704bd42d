package kvcache

// Timing says how long steps take. Package timing has what was measured on GPUs.
type Timing interface {
	// Step returns how long a step takes, ns, at least 1.
	Step(w Work) int64
}

// Work is what one step computes and copies.
type Work struct {
	// Prefill is tokens of prompts, and generated ones that are computed again after a preemption. A prompt
	// is computed once for all its sequences.
	Prefill int64
	// Pairs is, over the tokens of Prefill, how many tokens each attends to, itself included.
	Pairs float64
	// Decode is how many sequences generate a token in the step. A prompt's last token generates one, too,
	// and is in Prefill only.
	Decode int64
	// Context is slots that sequences of Decode read: their tokens, once for each sequence.
	Context int64
	// Blocks is about how many blocks these slots are in: as many as they fill, and one for each sequence. 0 but
	// under paged.
	Blocks int64
	// Swapped is slots copied between device and host, both ways, and Pieces the blocks, or rows of pages, that
	// they are copied in.
	Swapped, Pieces int64
}

// uncomputed returns how many tokens a group has to compute that was just admitted.
func (s *simulation) uncomputed(g *group) int64 {
	if s.options.Timing == nil {
		return 0
	}
	prompts := int64(g.request.prompts())
	return prompts*int64(max(1, g.request.Prompt-g.found)) + int64(g.sequences)*int64(g.generated)
}

// compute counts what the step computes, under a Timing: a token for each sequence that generates, and of the
// prompts, the earliest arrival first, all or what the rest of Chunk allows. Groups whose prompt is complete
// by that generate their first token in the same step.
func (s *simulation) compute() {
	if s.options.Timing == nil {
		return
	}
	if !s.changed {
		s.work = Work{Decode: s.work.Decode, Context: s.work.Context + s.work.Decode}
		return
	}
	s.work, s.changed = Work{}, false
	for _, g := range s.running {
		if g.uncomputed == 0 {
			s.work.Decode += int64(g.sequences)
			s.work.Context += int64(g.sequences) * int64(g.length()+1)
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
	prompts := float64(g.request.prompts())
	whole := prompts * float64(g.length())
	return float64(n) * (whole - float64(g.uncomputed) + (float64(n)+prompts)/2) / prompts
}

// duration is how long the present step takes, ns.
func (s *simulation) duration() int64 {
	if s.options.Timing == nil {
		return s.options.StepTime
	}
	if s.blocks != nil {
		slots, pieces := s.blocks.swapped()
		s.work.Swapped, s.work.Pieces = slots-s.swapped, pieces-s.pieces
		s.swapped, s.pieces = slots, pieces
	}
	if size := int64(s.options.Policy.Block); size > 0 {
		s.work.Blocks = s.work.Context/size + s.work.Decode
	}
	return max(1, s.options.Timing.Step(s.work))
}
